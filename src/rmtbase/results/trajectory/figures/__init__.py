"""Figures and animations of a training run along its steps."""

from rmtbase.results.trajectory.figures._along_steps import figure_recipes

__all__ = ["figure_recipes"]
