"""Plots: xarray in, Axes out. No function here touches pyplot or Matplotlib's settings."""

from rmtbase.plots._axes import statistic_label, statistic_words
from rmtbase.plots._effective_depth import DEPTHS_SHOWN, depth_profile, depth_spectrum
from rmtbase.plots._element_density import element_density
from rmtbase.plots._ensemble_spectrum import ensemble_spectrum
from rmtbase.plots._figures import MAIN_STATISTICS, compare, figures
from rmtbase.plots._flagged_by_statistic import flagged_by_statistic
from rmtbase.plots._heatmaps import (
    Q_LEVELS,
    Z_LEVELS,
    expert_z_heatmap,
    matrix_z_heatmap,
    omnibus_heatmap,
    q_colorbar,
    z_colorbar,
    z_heatmap,
)
from rmtbase.plots._null_spectrum import null_spectrum
from rmtbase.plots._ordered_eigenvalues import ordered_eigenvalues
from rmtbase.plots._p_value_qq import p_value_qq
from rmtbase.plots._picture import FORMATS, content, save
from rmtbase.plots._statistic_by_layer import statistic_by_layer
from rmtbase.plots._theme import DARK, LIGHT, PRINT, THEMES, Theme, as_theme

__all__ = [
    "DARK",
    "DEPTHS_SHOWN",
    "FORMATS",
    "LIGHT",
    "MAIN_STATISTICS",
    "PRINT",
    "Q_LEVELS",
    "THEMES",
    "Z_LEVELS",
    "Theme",
    "as_theme",
    "compare",
    "content",
    "depth_profile",
    "depth_spectrum",
    "element_density",
    "ensemble_spectrum",
    "expert_z_heatmap",
    "figures",
    "flagged_by_statistic",
    "matrix_z_heatmap",
    "null_spectrum",
    "omnibus_heatmap",
    "ordered_eigenvalues",
    "p_value_qq",
    "q_colorbar",
    "save",
    "statistic_by_layer",
    "statistic_label",
    "statistic_words",
    "z_colorbar",
    "z_heatmap",
]
