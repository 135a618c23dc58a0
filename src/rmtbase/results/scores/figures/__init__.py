"""Figures of scores."""

from rmtbase.results.scores.figures._eigenvalues import (
    eigenvalue_density_heatmap,
    eigenvalue_heatmap,
    farthest_middle_nearest,
    null_quantiles,
    null_scales,
    ordered_eigenvalues,
)
from rmtbase.results.scores.figures._element_histograms import (
    head_density,
    head_density_heatmap,
    magnitude_heatmap,
    magnitudes_along_steps,
)
from rmtbase.results.scores.figures._flagged_by_statistic import flagged_by_statistic
from rmtbase.results.scores.figures._head_spectra import head_eigenvalue_density, head_eigenvalues, head_spectra
from rmtbase.results.scores.figures._heatmaps import (
    add_cells,
    components_axis,
    expert_z_heatmap,
    matrix_z_heatmap,
    omnibus_heatmap,
    z_heatmap,
)
from rmtbase.results.scores.figures._p_value_qq import p_value_qq
from rmtbase.results.scores.figures._scores import MAIN_ELEMENT_STATISTICS, MAIN_STATISTICS, figure_recipes
from rmtbase.results.scores.figures._side_by_side import compare, overlay
from rmtbase.results.scores.figures._spectrum_and_width import spectrum_and_width
from rmtbase.results.scores.figures._statistic_by_layer import (
    PUBLISHED_BAND,
    draw_published_band,
    matrix_statistic_by_layer,
    relative_label,
    relative_to_null,
    statistic_by_layer,
)
from rmtbase.results.scores.figures._statistic_scatter import moment_corner, statistic_scatter
from rmtbase.results.scores.figures._weibull_plane import body_and_tail, weibull_plane
from rmtbase.results.scores.figures._weibull_plot import tail_counts, trim_noise, weibull_plot, weibull_residuals
from rmtbase.results.scores.figures._width_by_layer import width_by_layer

__all__ = [
    "MAIN_ELEMENT_STATISTICS",
    "MAIN_STATISTICS",
    "PUBLISHED_BAND",
    "add_cells",
    "body_and_tail",
    "compare",
    "components_axis",
    "draw_published_band",
    "eigenvalue_density_heatmap",
    "eigenvalue_heatmap",
    "expert_z_heatmap",
    "farthest_middle_nearest",
    "figure_recipes",
    "flagged_by_statistic",
    "head_density",
    "head_density_heatmap",
    "head_eigenvalue_density",
    "head_eigenvalues",
    "head_spectra",
    "magnitude_heatmap",
    "magnitudes_along_steps",
    "matrix_statistic_by_layer",
    "matrix_z_heatmap",
    "moment_corner",
    "null_quantiles",
    "null_scales",
    "omnibus_heatmap",
    "ordered_eigenvalues",
    "overlay",
    "p_value_qq",
    "relative_label",
    "relative_to_null",
    "spectrum_and_width",
    "statistic_by_layer",
    "statistic_scatter",
    "tail_counts",
    "trim_noise",
    "weibull_plane",
    "weibull_plot",
    "weibull_residuals",
    "width_by_layer",
    "z_heatmap",
]
