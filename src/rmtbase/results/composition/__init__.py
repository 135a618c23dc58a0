"""Composition: which heads read what earlier heads write, against chance."""

from rmtbase.arguments import attach_checked

__getattr__, __dir__, __all__ = attach_checked(__name__, __file__)
