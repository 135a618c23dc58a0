"""Scores: how far each head and each matrix of a model is from random, with calibrated p-values."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
