"""Scores: how far each head and each matrix of a model is from random, with calibrated p-values."""

from rmtbase.arguments import attach_checked

__getattr__, __dir__, __all__ = attach_checked(__name__, __file__)
