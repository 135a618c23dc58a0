"""Effective depth: the residual path whose singular values are nearest to a matrix's."""

from rmtbase.arguments import attach_checked

__getattr__, __dir__, __all__ = attach_checked(__name__, __file__)
