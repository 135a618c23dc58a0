"""Figures of comparisons."""

from rmtbase.results.comparison.figures._comparison import figure_recipes
from rmtbase.results.comparison.figures._group_measures import group_measure, group_measure_by_step
from rmtbase.results.comparison.figures._models import component_shapes, pair_heatmap, scale_law, shape_drifts

__all__ = [
    "component_shapes",
    "figure_recipes",
    "group_measure",
    "group_measure_by_step",
    "pair_heatmap",
    "scale_law",
    "shape_drifts",
]
