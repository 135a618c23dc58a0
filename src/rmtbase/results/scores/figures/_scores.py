"""Figures of a scores tree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from rmtbase.drawing.axes import model_title, noun_of, titled
from rmtbase.drawing.color_scales import Z
from rmtbase.drawing.groups import heads_of, matrices_of
from rmtbase.drawing.layout import Drawing, Look, Single, legend_of_all, legend_of_each, panels
from rmtbase.drawing.null_curves import null_spectrum
from rmtbase.drawing.picture import Picture
from rmtbase.results.scores._heads import circuit_scores, circuits_of
from rmtbase.results.scores.figures._eigenvalues import (
    eigenvalue_density_heatmap,
    eigenvalue_heatmap,
    ordered_eigenvalues,
)
from rmtbase.results.scores.figures._elements import drawings_of_elements
from rmtbase.results.scores.figures._flagged_by_statistic import flagged_by_statistic
from rmtbase.results.scores.figures._head_spectra import head_eigenvalue_density, head_eigenvalues, head_spectra
from rmtbase.results.scores.figures._heatmaps import expert_z_heatmap, matrix_z_heatmap, omnibus_heatmap, z_heatmap
from rmtbase.results.scores.figures._p_value_qq import p_value_qq
from rmtbase.results.scores.figures._spectrum_and_width import spectrum_and_width
from rmtbase.results.scores.figures._statistic_by_layer import statistic_by_layer
from rmtbase.results.scores.figures._statistic_scatter import layer_bar, statistic_scatter
from rmtbase.statistics import SPECTRAL_STATISTICS
from rmtbase.tables import heads_present, shapes_of

MAIN_STATISTICS = ("normalized_participation_ratio", "effective_rank", "largest_eigenvalue", "log_determinant")
"""Statistics in the standard figures of a model: the number of directions that carry the spectrum (by λ and by s), its
largest eigenvalue, and all eigenvalues together."""

MAIN_ELEMENT_STATISTICS = (
    "mean", "skewness", "excess_kurtosis", "largest_magnitude", "entropy_residual", "weibull_shape",
)  # fmt: skip
"""Statistics of the elements of matrices in the standard figures."""

_SINGULAR = "_singular"  # suffix of the names of statistics of singular values
_PANELS = 12  # most panels in one figure of spectra
_SCALE, _UPRIGHT = 4.2, 0.8  # inches: least height for a colour scale of z and its titles; height of vertical names
_ROW = 0.055  # inches per row of a head


def drawings(tree: xr.DataTree, look: Look) -> dict[str, Drawing]:
    """Return a drawing for each figure of a scores tree, by name."""
    drawings: dict[str, Drawing] = {}
    for circuit in circuits_of(tree):
        of_heads = _of_heads(circuit_scores(tree, circuit), look)
        drawings |= of_heads if circuit == "qk" else {f"{circuit}-{name}": draw for name, draw in of_heads.items()}
    if "matrices" in tree.children:
        matrices = matrices_of(tree)
        held, layers = matrices["statistic"].values.tolist(), matrices.sizes["layer"]
        shown = [name for name in MAIN_ELEMENT_STATISTICS if name in held]
        maps = partial(_heat_maps, matrix_z_heatmap, tree, "statistic")
        drawings["matrix-z-heat-map"] = Drawing(partial(maps, shown, look, layers))
        if len(held) > len(shown):
            drawings["matrix-z-heat-map-all"] = Drawing(partial(maps, held, look, layers), standard=False)
    if "experts" in tree.children:
        experts = matrices_of(tree, "experts")
        held, layers = experts["component"].values.tolist(), experts.sizes["layer"]
        maps = partial(_heat_maps, expert_z_heatmap, tree, "component", held, look, layers)
        drawings["expert-z-heat-map"] = Drawing(maps)
    return drawings | drawings_of_elements(tree, look)


def _of_heads(tree: xr.DataTree, look: Look) -> dict[str, Drawing]:
    """Return a drawing for each figure of the heads of one circuit, by name."""
    layers = tree["heads"].sizes.get("layer", 1)
    rows = 1.6 + _ROW * layers * tree["heads"].sizes["head"]
    height = min(max(3.4, rows), 9.0)
    map_of = Single(eigenvalue_heatmap, look, tree, 6.8, height)
    map_over_mean = Single(eigenvalue_heatmap, look, tree, 6.8, height, over="mean")
    density_of = Single(eigenvalue_density_heatmap, look, tree, 6.8, height)
    drawings = {
        "omnibus-map": Drawing(Single(omnibus_heatmap, look, tree, 6.8, height=_map_height(layers) + 0.3)),
        "heads-by-statistic": Drawing(partial(_bars, tree, look)),
        "z-heat-map": Drawing(lambda: _heat_maps(z_heatmap, tree, "statistic", _main_statistics(tree), look, layers)),
        "ordered-eigenvalues": Drawing(Single(ordered_eigenvalues, look, tree, 8.0)),
        "statistics-by-layer": Drawing(partial(_by_layer, tree, look)),
        "p-value-qq": Drawing(Single(p_value_qq, look, tree, 8.0)),
    }
    if str(tree.attrs["null_method"]) != "resampled":
        drawings["null-spectrum"] = Drawing(partial(_null_spectra, tree, look))
    theme, width = look
    widths = partial(spectrum_and_width, tree, theme=theme, width=width)
    return (
        drawings
        | {
            "eigenvalue-map": Drawing(map_of, standard=False),
            "eigenvalue-map-over-mean": Drawing(map_over_mean, standard=False),
            "eigenvalue-density-map": Drawing(density_of, standard=False),
            "head-spectra": Drawing(partial(head_spectra, tree, theme=theme, width=width), standard=False),
        }
        | {
            "spectrum-and-width": Drawing(partial(widths, "eigenvalue"), standard=False),
            "spectrum-and-width-singular": Drawing(partial(widths, "singular value"), standard=False),
        }
        | _of_layers(tree, look)
        | _of_statistics(tree, look)
    )


def _of_layers(tree: xr.DataTree, look: Look) -> dict[str, Drawing]:
    """Return, for each layer, a figure of the spectra of all its heads, with one panel per head."""
    heads = heads_of(tree).transpose("layer", "head", ...)
    there, drawings = heads_present(heads), {}
    for place in np.flatnonzero(there.any(axis=1)).tolist():
        layer, own = int(heads["layer"].values[place]), [int(head) for head in heads["head"].values[there[place]]]
        for name, plot in (
            ("head-eigenvalues", head_eigenvalues),
            ("head-eigenvalue-densities", head_eigenvalue_density),
        ):
            drawings[f"{name}-{layer}"] = Drawing(partial(_head_grid, plot, tree, layer, own, look), standard=False)
    return drawings


def _head_grid(plot: Callable[..., Axes], tree: xr.DataTree, layer: int, heads: Sequence[int], look: Look) -> Picture:
    options = {str(head): {"table": tree, "layer": layer, "head": head} for head in heads}
    many = len(options) > _PANELS
    size = {"columns": 6, "height": 1.9, "panel": 2.2} if many else {"columns": 4, "height": 2.2, "panel": 2.7}
    figure = panels(partial(plot, legend=False), options, look, share_y=True, **size)
    what = figure.axes[0].get_title().rpartition(" ")[0].rpartition(" ")[0]
    parts = [part for part in (model_title(tree), what) if part]
    figure.suptitle("\n".join(parts), fontsize=look.theme.points("axes.titlesize"), color=look.theme.muted)
    for ax, head in zip(figure.axes, heads, strict=True):
        titled(ax, f"{noun_of(tree)} {head}", look.theme)
    legend_of_all(figure, look.theme)
    return figure


def _of_statistics(tree: xr.DataTree, look: Look) -> dict[str, Drawing]:
    """Return a figure by layer for each statistic.

    Two panels compare eigenvalues with singular values, or the raw statistic with its ratio to the null, if both exist.
    """
    held, drawings = heads_of(tree)["statistic"].values.tolist(), {}
    for name in held:
        if name.removesuffix(_SINGULAR) in held and name.endswith(_SINGULAR):
            continue
        options = [{"statistic": name, "over": "nothing"}]
        if f"{name}{_SINGULAR}" in held:
            options.append({"statistic": f"{name}{_SINGULAR}"})
        elif name in SPECTRAL_STATISTICS and SPECTRAL_STATISTICS[name].scaling != 0:
            options.append({"statistic": name})
        drawings[f"by-layer-{name.replace('_', '-')}"] = Drawing(partial(_side_by_side, tree, options, look), False)
    if "normalized_participation_ratio_singular" in held:
        drawings["scatter-participation-entropy"] = Drawing(partial(_shapes, tree, look), standard=False)
    return drawings


def _side_by_side(tree: xr.DataTree, options: Sequence[dict], look: Look) -> Picture:
    named = {str(place): {"table": tree, **one} for place, one in enumerate(options)}
    plain = partial(statistic_by_layer, legend=False)
    figure = panels(plain, named, look, 2, share_y=False, height=5.0, title=model_title(tree))
    legend_of_all(figure, look.theme, same=True)
    return figure


def _shapes(tree: xr.DataTree, look: Look) -> Picture:
    """Draw entropy against participation of the spectra, by λ and by s, with layers in colour."""
    names = [f"{{}}{ending}" for ending in ("", _SINGULAR)]
    of = {"x": "normalized_participation_ratio", "y": "spectral_entropy"}
    options = {one: {"table": tree, **{axis: one.format(name) for axis, name in of.items()}} for one in names}
    plain = partial(statistic_scatter, group="heads", by_layer=True, legend=False)
    figure = panels(plain, options, look, 2, share_y=False, share_x=False, height=3.8, title=model_title(tree))
    legend_of_all(figure, look.theme)
    layer_bar(figure.axes, heads_of(tree), look.theme)
    return figure


def _null_spectra(tree: xr.DataTree, look: Look) -> Picture:
    """Draw the null of each shape of the heads on its own axes."""
    shapes = shapes_of(tree)[:_PANELS]
    if len(shapes) == 1:
        return Single(null_spectrum, look, tree, 8.0)()
    cases = {str(dims): {"table": tree, "case": case} for case, dims in enumerate(shapes)}
    title = model_title(tree)
    figure = panels(partial(null_spectrum, legend=False), cases, look, 2, share_y=False, title=title, share_x=False)
    legend_of_each(figure, look.theme)
    return figure


def _main_statistics(tree: xr.DataTree) -> tuple[str, ...]:
    """Return :data:`MAIN_STATISTICS`, with the trace in place of a statistic that the null fixes."""
    spread = tree["heads"].to_dataset()["null_std"]
    fixed, unscored = spread == 0, spread.isnull()
    held = spread["statistic"].values[(fixed.any(("layer", "head")) & (fixed | unscored).all(("layer", "head"))).values]
    return tuple("trace" if name in held else name for name in MAIN_STATISTICS)


def _bars(tree: xr.DataTree, look: Look) -> Picture:
    """Draw the bars of all statistics, far enough apart for their names."""
    figure = Single(flagged_by_statistic, look, tree)()
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    lines = 1 + max(name.count("\n") for name in names)
    figure.set_figheight(1.0 + len(names) * (0.06 + 1.3 * lines * look.theme.points("xtick.labelsize") / 72))
    return figure


def _map_height(layers: int) -> float:
    return min(3.6, max(2.2, 1.0 + 0.22 * layers))


def _heat_maps(
    plot: Callable[..., Axes], tree: xr.DataTree, option: str, names: Sequence[str], look: Look, layers: int
) -> Picture:
    """Draw one panel for each value of one of the plot's options."""
    options = {name: {"table": tree, option: name} for name in names}
    plain = partial(plot, colorbar=False)
    figure = panels(plain, options, look, 2, share_y=True, height=_map_height(layers), title=model_title(tree))
    upright = any(label.get_rotation() for ax in figure.axes for label in ax.get_xticklabels())
    figure.set_figheight(max(figure.get_figheight(), _SCALE) + (_UPRIGHT if upright else 0.0))
    Z.bar(figure.axes, look.theme)
    return figure


def _by_layer(tree: xr.DataTree, look: Look) -> Picture:
    options = {name: {"table": tree, "statistic": name} for name in _main_statistics(tree)}
    plain = partial(statistic_by_layer, legend=False)
    figure = panels(plain, options, look, 2, share_y=False, title=model_title(tree))
    legend_of_all(figure, look.theme)
    return figure
