"""Figures of scores."""

from rmtbase.results.scores.figures._scores import figure_recipes

__all__ = ["figure_recipes"]
