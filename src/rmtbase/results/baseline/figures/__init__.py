"""Figures of baselines, spectra and elements of random matrices."""

from rmtbase.results.baseline.figures._baseline import figure_recipes

__all__ = ["figure_recipes"]
