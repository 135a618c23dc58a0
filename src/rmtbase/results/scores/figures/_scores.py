"""Figures of a scores tree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from rmtbase.drawing.axes import model_title, noun_of, titled
from rmtbase.drawing.color_scales import Z
from rmtbase.drawing.figure import ThemedFigure
from rmtbase.drawing.groups import heads_of, matrices_of
from rmtbase.drawing.layout import FigureRecipe, FigureStyle, Single, legend_of_all, legend_of_each, panels
from rmtbase.drawing.null_curves import null_spectrum
from rmtbase.results.scores._heads import circuit_scores, circuits_of
from rmtbase.results.scores.figures._eigenvalues import (
    eigenvalue_density_heatmap,
    eigenvalue_heatmap,
    ordered_eigenvalues,
)
from rmtbase.results.scores.figures._elements import recipes_of_elements
from rmtbase.results.scores.figures._flagged_by_statistic import flagged_by_statistic
from rmtbase.results.scores.figures._head_spectra import head_eigenvalue_density, head_eigenvalues, head_spectra
from rmtbase.results.scores.figures._heatmaps import (
    expert_z_heatmap,
    matrix_z_heatmap,
    moved_share_heatmap,
    omnibus_heatmap,
    z_heatmap,
)
from rmtbase.results.scores.figures._p_value_qq import p_value_qq
from rmtbase.results.scores.figures._spectrum_and_width import spectrum_and_width
from rmtbase.results.scores.figures._statistic_by_layer import statistic_by_layer
from rmtbase.results.scores.figures._statistic_scatter import layer_bar, statistic_scatter
from rmtbase.results.scores.summary import summarize_scores
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


def figure_recipes(tree: xr.DataTree, style: FigureStyle) -> dict[str, FigureRecipe]:
    """Return a drawing for each figure of a scores tree, by name."""
    recipes: dict[str, FigureRecipe] = {}
    for circuit in circuits_of(tree):
        of_heads = _of_heads(circuit_scores(tree, circuit), style)
        recipes |= of_heads if circuit == "qk" else {f"{circuit}-{name}": draw for name, draw in of_heads.items()}
    if "matrices" in tree.children:
        matrices = matrices_of(tree)
        held, layers = matrices["statistic"].values.tolist(), matrices.sizes["layer"]
        shown = [name for name in MAIN_ELEMENT_STATISTICS if name in held]
        maps = partial(_heat_maps, matrix_z_heatmap, tree, "statistic")
        recipes["matrix-z-heat-map"] = FigureRecipe(partial(maps, shown, style, layers))
        if len(held) > len(shown):
            recipes["matrix-z-heat-map-all"] = FigureRecipe(partial(maps, held, style, layers), standard=False)
    if "experts" in tree.children:
        experts = matrices_of(tree, "experts")
        held, layers = experts["component"].values.tolist(), experts.sizes["layer"]
        maps = partial(_heat_maps, expert_z_heatmap, tree, "component", held, style, layers)
        recipes["expert-z-heat-map"] = FigureRecipe(maps)
    return recipes | recipes_of_elements(tree, style)


def _of_heads(tree: xr.DataTree, style: FigureStyle) -> dict[str, FigureRecipe]:
    """Return a drawing for each figure of the heads of one circuit, by name."""
    layers = tree["heads"].sizes.get("layer", 1)
    rows = 1.6 + _ROW * layers * tree["heads"].sizes["head"]
    height = min(max(3.4, rows), 9.0)
    summary = summarize_scores(tree)
    unequal = len(set(summary.flagged.values())) > 1
    all_differ = 0 < summary.n_heads == len(summary.findings)  # then a map of q, or bars of equal length, show nothing
    at_floor = 2 * summary.at_floor > summary.n_heads  # then most points would lie on one line
    map_of = Single(eigenvalue_heatmap, style, tree, 6.8, height)
    map_over_mean = Single(eigenvalue_heatmap, style, tree, 6.8, height, over="mean")
    density_of = Single(eigenvalue_density_heatmap, style, tree, 6.8, height)
    recipes = {
        "moved-share-map": FigureRecipe(
            Single(moved_share_heatmap, style, tree, 6.8, height=_map_height(layers) + 0.3)
        ),
        "omnibus-map": FigureRecipe(
            Single(omnibus_heatmap, style, tree, 6.8, height=_map_height(layers) + 0.3), standard=not all_differ
        ),
        "heads-by-statistic": FigureRecipe(partial(_bars, tree, style), standard=unequal),
        "z-heat-map": FigureRecipe(
            lambda: _heat_maps(z_heatmap, tree, "statistic", _main_statistics(tree), style, layers)
        ),
        "ordered-eigenvalues": FigureRecipe(Single(ordered_eigenvalues, style, tree, 8.0)),
        "statistics-by-layer": FigureRecipe(partial(_by_layer, tree, style)),
        "p-value-qq": FigureRecipe(Single(p_value_qq, style, tree, 8.0), standard=not at_floor),
    }
    if str(tree.attrs["null_method"]) != "resampled":
        recipes["null-spectrum"] = FigureRecipe(partial(_null_spectra, tree, style))
    theme, width = style
    widths = partial(spectrum_and_width, tree, theme=theme, width=width)
    return (
        recipes
        | {
            "eigenvalue-map": FigureRecipe(map_of, standard=False),
            "eigenvalue-map-over-mean": FigureRecipe(map_over_mean, standard=False),
            "eigenvalue-density-map": FigureRecipe(density_of, standard=False),
            "head-spectra": FigureRecipe(partial(head_spectra, tree, theme=theme, width=width), standard=False),
        }
        | {
            "spectrum-and-width": FigureRecipe(partial(widths, "eigenvalue"), standard=False),
            "spectrum-and-width-singular": FigureRecipe(partial(widths, "singular value"), standard=False),
        }
        | _of_layers(tree, style)
        | _of_statistics(tree, style)
    )


def _of_layers(tree: xr.DataTree, style: FigureStyle) -> dict[str, FigureRecipe]:
    """Return, for each layer, a figure of the spectra of all its heads, with one panel per head."""
    heads = heads_of(tree).transpose("layer", "head", ...)
    there, recipes = heads_present(heads), {}
    for place in np.flatnonzero(there.any(axis=1)).tolist():
        layer, own = int(heads["layer"].values[place]), [int(head) for head in heads["head"].values[there[place]]]
        for name, plot in (
            ("head-eigenvalues", head_eigenvalues),
            ("head-eigenvalue-densities", head_eigenvalue_density),
        ):
            recipes[f"{name}-{layer}"] = FigureRecipe(
                partial(_head_grid, plot, tree, layer, own, style), standard=False
            )
    return recipes


def _head_grid(
    plot: Callable[..., Axes], tree: xr.DataTree, layer: int, heads: Sequence[int], style: FigureStyle
) -> ThemedFigure:
    options = {str(head): {"table": tree, "layer": layer, "head": head} for head in heads}
    many = len(options) > _PANELS
    size = {"columns": 6, "height": 1.9, "panel": 2.2} if many else {"columns": 4, "height": 2.2, "panel": 2.7}
    figure = panels(partial(plot, legend=False), options, style, share_y=True, **size)
    what = figure.axes[0].get_title().rpartition(" ")[0].rpartition(" ")[0]
    parts = [part for part in (model_title(tree), what) if part]
    figure.suptitle("\n".join(parts), fontsize=style.theme.points("axes.titlesize"), color=style.theme.muted)
    for ax, head in zip(figure.axes, heads, strict=True):
        titled(ax, f"{noun_of(tree)} {head}", style.theme)
    legend_of_all(figure, style.theme)
    return figure


def _of_statistics(tree: xr.DataTree, style: FigureStyle) -> dict[str, FigureRecipe]:
    """Return a figure by layer for each statistic.

    Two panels compare eigenvalues with singular values, or the raw statistic with its ratio to the null, if both exist.
    """
    held, recipes = heads_of(tree)["statistic"].values.tolist(), {}
    for name in held:
        if name.removesuffix(_SINGULAR) in held and name.endswith(_SINGULAR):
            continue
        options = [{"statistic": name, "over": "nothing"}]
        if f"{name}{_SINGULAR}" in held:
            options.append({"statistic": f"{name}{_SINGULAR}"})
        elif name in SPECTRAL_STATISTICS and SPECTRAL_STATISTICS[name].scaling != 0:
            options.append({"statistic": name})
        recipes[f"by-layer-{name.replace('_', '-')}"] = FigureRecipe(
            partial(_side_by_side, tree, options, style), False
        )
    if "normalized_participation_ratio_singular" in held:
        recipes["scatter-participation-entropy"] = FigureRecipe(partial(_shapes, tree, style), standard=False)
    return recipes


def _side_by_side(tree: xr.DataTree, options: Sequence[dict], style: FigureStyle) -> ThemedFigure:
    named = {str(place): {"table": tree, **one} for place, one in enumerate(options)}
    plain = partial(statistic_by_layer, legend=False)
    figure = panels(plain, named, style, 2, share_y=False, height=5.0, title=model_title(tree))
    legend_of_all(figure, style.theme, same=True)
    return figure


def _shapes(tree: xr.DataTree, style: FigureStyle) -> ThemedFigure:
    """Draw entropy against participation of the spectra, by λ and by s, with layers in colour."""
    names = [f"{{}}{ending}" for ending in ("", _SINGULAR)]
    of = {"x": "normalized_participation_ratio", "y": "spectral_entropy"}
    options = {one: {"table": tree, **{axis: one.format(name) for axis, name in of.items()}} for one in names}
    plain = partial(statistic_scatter, group="heads", by_layer=True, legend=False)
    figure = panels(plain, options, style, 2, share_y=False, share_x=False, height=3.8, title=model_title(tree))
    legend_of_all(figure, style.theme)
    layer_bar(figure.axes, heads_of(tree), style.theme)
    return figure


def _null_spectra(tree: xr.DataTree, style: FigureStyle) -> ThemedFigure:
    """Draw the null of each shape of the heads on its own axes."""
    shapes = shapes_of(tree)[:_PANELS]
    if len(shapes) == 1:
        return Single(null_spectrum, style, tree, 8.0)()
    cases = {str(dims): {"table": tree, "case": case} for case, dims in enumerate(shapes)}
    title = model_title(tree)
    figure = panels(partial(null_spectrum, legend=False), cases, style, 2, share_y=False, title=title, share_x=False)
    legend_of_each(figure, style.theme)
    return figure


def _main_statistics(tree: xr.DataTree) -> tuple[str, ...]:
    """Return :data:`MAIN_STATISTICS`, with the trace in place of a statistic that the null fixes."""
    spread = tree["heads"].to_dataset()["null_std"]
    fixed, unscored = spread == 0, spread.isnull()
    held = spread["statistic"].values[(fixed.any(("layer", "head")) & (fixed | unscored).all(("layer", "head"))).values]
    return tuple("trace" if name in held else name for name in MAIN_STATISTICS)


def _bars(tree: xr.DataTree, style: FigureStyle) -> ThemedFigure:
    """Draw the bars of all statistics, far enough apart for their names."""
    figure = Single(flagged_by_statistic, style, tree)()
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    lines = 1 + max(name.count("\n") for name in names)
    figure.set_figheight(1.0 + len(names) * (0.06 + 1.3 * lines * style.theme.points("xtick.labelsize") / 72))
    return figure


def _map_height(layers: int) -> float:
    return min(3.6, max(2.2, 1.0 + 0.22 * layers))


def _heat_maps(
    plot: Callable[..., Axes], tree: xr.DataTree, option: str, names: Sequence[str], style: FigureStyle, layers: int
) -> ThemedFigure:
    """Draw one panel for each value of one of the plot's options."""
    options = {name: {"table": tree, option: name} for name in names}
    plain = partial(plot, colorbar=False)
    figure = panels(plain, options, style, 2, share_y=True, height=_map_height(layers), title=model_title(tree))
    upright = any(label.get_rotation() for ax in figure.axes for label in ax.get_xticklabels())
    figure.set_figheight(max(figure.get_figheight(), _SCALE) + (_UPRIGHT if upright else 0.0))
    Z.bar(figure.axes, style.theme)
    return figure


def _by_layer(tree: xr.DataTree, style: FigureStyle) -> ThemedFigure:
    options = {name: {"table": tree, "statistic": name} for name in _main_statistics(tree)}
    plain = partial(statistic_by_layer, legend=False)
    figure = panels(plain, options, style, 2, share_y=False, title=model_title(tree))
    legend_of_all(figure, style.theme)
    return figure
