"""Comparisons of models: classes, shapes, drifts, and tests of every two."""

from rmtbase.arguments import attach_checked

__getattr__, __dir__, __all__ = attach_checked(__name__, __file__)
