"""Trajectories: scores of the checkpoints of a training run, and the step from which each head differs."""

from rmtbase.arguments import attach_checked

__getattr__, __dir__, __all__ = attach_checked(__name__, __file__)
