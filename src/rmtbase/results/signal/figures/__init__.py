"""Figures of signal: learned directions, and exponents of heavy tails."""

from rmtbase.results.signal.figures._learned_directions import learned_directions
from rmtbase.results.signal.figures._signal import figure_recipes
from rmtbase.results.signal.figures._tail_exponents import tail_exponents

__all__ = ["figure_recipes", "learned_directions", "tail_exponents"]
