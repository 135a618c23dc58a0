"""Plots: xarray in, Axes out. No function here touches pyplot or Matplotlib's settings."""

from rmtbase.plots._along_steps import departures, spectra_along_steps, statistic_along_steps
from rmtbase.plots._animation import ANIMATION_FORMATS, Animation, animation, animation_of, save_animation
from rmtbase.plots._axes import statistic_label, statistic_words
from rmtbase.plots._baseline_panels import eigenvalues_by_rank, element_laws, spectral_densities
from rmtbase.plots._changes import change_heatmap
from rmtbase.plots._color_scales import Q_LEVELS, Z_LEVELS, z_colorbar
from rmtbase.plots._comparison import component_shapes, pair_heatmap, scale_law, shape_drifts
from rmtbase.plots._composition import MOST_EDGES, composition_graph, composition_heatmap
from rmtbase.plots._effective_depth import DEPTHS_SHOWN, depth_profile, depth_spectrum
from rmtbase.plots._eigenvalues import eigenvalue_density_heatmap, eigenvalue_heatmap, ordered_eigenvalues
from rmtbase.plots._element_histograms import (
    head_density,
    head_density_heatmap,
    magnitude_heatmap,
    magnitudes_along_steps,
)
from rmtbase.plots._element_tables import element_density, element_property
from rmtbase.plots._ensemble_spectrum import ensemble_spectrum
from rmtbase.plots._figures import figure_names, figures
from rmtbase.plots._figures_of_scores import MAIN_ELEMENT_STATISTICS, MAIN_STATISTICS
from rmtbase.plots._flagged_by_statistic import flagged_by_statistic
from rmtbase.plots._group_measures import group_measure, group_measure_by_step
from rmtbase.plots._head_spectra import head_eigenvalue_density, head_eigenvalues, head_spectra
from rmtbase.plots._heatmaps import expert_z_heatmap, matrix_z_heatmap, omnibus_heatmap, z_heatmap
from rmtbase.plots._learned_directions import learned_directions
from rmtbase.plots._null_spectrum import null_spectrum
from rmtbase.plots._p_value_qq import p_value_qq
from rmtbase.plots._picture import FORMATS, content, save
from rmtbase.plots._side_by_side import compare, overlay
from rmtbase.plots._spectrum_and_width import spectrum_and_width
from rmtbase.plots._statistic_by_layer import (
    PUBLISHED_BAND,
    matrix_statistic_by_layer,
    statistic_by_layer,
)
from rmtbase.plots._statistic_scatter import moment_corner, statistic_scatter
from rmtbase.plots._tail_exponents import tail_exponents
from rmtbase.plots._theme import DARK, LIGHT, PRINT, THEMES, Theme, as_theme
from rmtbase.plots._weibull_plane import body_and_tail, weibull_plane
from rmtbase.plots._weibull_plot import tail_counts, trim_noise, weibull_plot, weibull_residuals
from rmtbase.plots._width_by_layer import width_by_layer

__all__ = [
    "ANIMATION_FORMATS",
    "DARK",
    "DEPTHS_SHOWN",
    "FORMATS",
    "LIGHT",
    "MAIN_ELEMENT_STATISTICS",
    "MAIN_STATISTICS",
    "MOST_EDGES",
    "PRINT",
    "PUBLISHED_BAND",
    "Q_LEVELS",
    "THEMES",
    "Z_LEVELS",
    "Animation",
    "Theme",
    "animation",
    "animation_of",
    "as_theme",
    "body_and_tail",
    "change_heatmap",
    "compare",
    "component_shapes",
    "composition_graph",
    "composition_heatmap",
    "content",
    "departures",
    "depth_profile",
    "depth_spectrum",
    "eigenvalue_density_heatmap",
    "eigenvalue_heatmap",
    "eigenvalues_by_rank",
    "element_density",
    "element_laws",
    "element_property",
    "ensemble_spectrum",
    "expert_z_heatmap",
    "figure_names",
    "figures",
    "flagged_by_statistic",
    "group_measure",
    "group_measure_by_step",
    "head_density",
    "head_density_heatmap",
    "head_eigenvalue_density",
    "head_eigenvalues",
    "head_spectra",
    "learned_directions",
    "magnitude_heatmap",
    "magnitudes_along_steps",
    "matrix_statistic_by_layer",
    "matrix_z_heatmap",
    "moment_corner",
    "null_spectrum",
    "omnibus_heatmap",
    "ordered_eigenvalues",
    "overlay",
    "p_value_qq",
    "pair_heatmap",
    "save",
    "save_animation",
    "scale_law",
    "shape_drifts",
    "spectra_along_steps",
    "spectral_densities",
    "spectrum_and_width",
    "statistic_along_steps",
    "statistic_by_layer",
    "statistic_label",
    "statistic_scatter",
    "statistic_words",
    "tail_counts",
    "tail_exponents",
    "trim_noise",
    "weibull_plane",
    "weibull_plot",
    "weibull_residuals",
    "width_by_layer",
    "z_colorbar",
    "z_heatmap",
]
