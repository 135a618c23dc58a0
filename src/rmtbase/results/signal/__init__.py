"""Signal: the learned directions of each head and matrix, and how strong each is."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
