"""Signal: the learned directions of each head and matrix, and how strong each is."""

from rmtbase.arguments import attach_checked

__getattr__, __dir__, __all__ = attach_checked(__name__, __file__)
