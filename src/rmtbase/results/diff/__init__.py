"""Differences of two checkpoints: how much changed, of which rank, along old or new directions."""

from rmtbase.arguments import attach_checked

__getattr__, __dir__, __all__ = attach_checked(__name__, __file__)
