"""Figures of a scores tree."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from rmtbase.drawing.axes import (
    LEVEL,
    NOT_TESTABLE,
    Around,
    model_title,
    noun_of,
    panel,
    panel_size,
    statistic_words,
    symbol_of,
)
from rmtbase.drawing.color_scales import DENSITY, MAGNITUDE_DENSITY, Z
from rmtbase.drawing.figure import ThemedFigure
from rmtbase.drawing.groups import elements_of, heads_of, matrices_of
from rmtbase.drawing.layout import Custom, FigureRecipe, FigureStyle, Panels, Single, legend_of_all, legend_of_each
from rmtbase.drawing.null_curves import null_spectrum
from rmtbase.drawing.texts import literal, wrapped
from rmtbase.drawing.theme import Theme
from rmtbase.results.scores._heads import circuit_scores, circuits_of
from rmtbase.results.scores.figures import (
    _eigenvalues,
    _element_histograms,
    _heatmaps,
    _statistic_by_layer,
    _statistic_scatter,
    _weibull_plot,
)
from rmtbase.results.scores.figures._p_value_qq import p_value_qq
from rmtbase.results.scores.figures._spectrum_and_width import spectrum_and_width
from rmtbase.results.scores.summary import summarize_scores
from rmtbase.statistics import SPECTRAL_STATISTICS
from rmtbase.tables import heads_present, layer_numbers, shapes_of

_ROW = 0.055  # inches per row of a head
_BY_LAYER = ("sigma", "kl_matched_normal", "entropy_residual", "weibull_shape")
_WIDTHS = (
    ("width-and-entropy", {"entropy_residual", "sigma"}, "entropy"),
    ("width-and-divergence", {"core_sigma", "kl_matched_normal", "sigma"}, "kl_matched_normal"),
)
_PAIRS = (
    ("skewness", "excess_kurtosis", {"skewness", "excess_kurtosis"}),
    ("sigma", "entropy_residual", {"sigma", "entropy_residual"}),
    ("sigma", "kl_matched_normal", {"sigma", "kl_matched_normal"}),
    ("sigma", "core_sigma", {"sigma", "core_sigma"}),
    ("sigma", "entropy", {"sigma", "entropy_residual"}),
)
"""Statistics of scatter plots, x and y, with what they need."""

_LAWS = ("weibull_shape", "weibull_scale")
_GRIDS = (("", "log"), ("-linear", "linear"), ("-weights", "weights"))
"""Variants of the figures of a layer's heads: ending of the name, and scale."""

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
_NAMES = 0.44  # largest share of the figure's width for the names of statistics


def _of_matrices(tree: xr.DataTree) -> dict[str, FigureRecipe]:
    matrices = matrices_of(tree)
    if not set(_LAWS) <= set(matrices["statistic"].values):
        return {}
    shape, scale = ({"statistic": name} for name in _LAWS)
    layout = {"columns": 2, "height": 3.8}
    published = [shape | {"published": True}, scale]
    recipes: dict[str, FigureRecipe] = {
        "weibull-by-layer": Panels(_statistic_by_layer.matrix_statistic_by_layer, tree, [shape, scale], **layout),
        "weibull-by-layer-published": Panels(
            _statistic_by_layer.matrix_statistic_by_layer, tree, published, **layout, standard=False
        ),
        "weibull-plane": Single(_weibull_plot.weibull_plane, tree, standard=False),
    }
    if "log_magnitude_histogram" not in matrices:
        return recipes
    components = matrices["component"].values.tolist()
    maps = {"columns": 4, "share_y": True, "height": 2.7, "panel": 3.4, "scale": MAGNITUDE_DENSITY}
    options = [{"component": name} for name in components]
    recipes["magnitude-map"] = Panels(_element_histograms.magnitude_heatmap, tree, options, **maps, standard=False)
    for component in components:
        fits = matrices["observed"].sel(component=component, statistic=list(_LAWS)).notnull().all("statistic")
        for layer in matrices["layer"].values[fits.values].tolist():
            place = {"layer": layer, "component": component}
            plot = Custom(partial(_weibull_plot.weibull_and_residuals, tree, **place), standard=False)
            recipes[f"weibull-plot-{component}-{layer}"] = plot
            recipes[f"tail-{component}-{layer}"] = Single(_weibull_plot.tail_counts, tree, place, standard=False)
    return recipes


def _of_head_elements(tree: xr.DataTree) -> dict[str, FigureRecipe]:
    elements = elements_of(tree)
    components = elements["component"].values.tolist()
    statistics = {*elements["statistic"].values.tolist(), *(["sigma"] if "sigma" in elements else [])}
    options = [{"component": name} for name in components]
    recipes: dict[str, FigureRecipe] = {}
    if "histogram" in elements:
        rows = int(elements["histogram"].isel(bin=0, component=0).notnull().sum())
        maps = {"columns": 3, "height": min(max(2.6, 1.2 + _ROW * rows), 8.0), "panel": 3.6, "scale": DENSITY}
        for ending, unit in (("", "spread"), ("-weights", "weight")):
            if unit == "spread" or "sigma" in statistics:
                panels = [of_one | {"unit": unit} for of_one in options]
                recipes[f"head-density-map{ending}"] = Panels(
                    _element_histograms.head_density_heatmap, tree, panels, **maps, standard=False
                )
    shown = [name for name in _BY_LAYER if name in statistics]
    for component in components if shown else ():
        panels = [{"statistic": name, "group": "elements", "component": component} for name in shown]
        title = "\n".join(filter(None, [model_title(tree), f"elements of {symbol_of(component)} of each head"]))
        recipes[f"elements-by-layer-{component}"] = Panels(
            _statistic_by_layer.statistic_by_layer, tree, panels, 2, height=4.4, join=True, title=title, standard=False
        )
    for name, needed, beside in _WIDTHS:
        for component in components if needed <= statistics else ():
            draw = partial(_width, tree, {"beside": beside, "component": component, "legend": False})
            recipes[f"{name}-{component}"] = Custom(draw, standard=False)
    if "W_QK" in components and {"mean", "skewness", "excess_kurtosis"} <= statistics:
        recipes["moment-corner"] = Custom(partial(_statistic_scatter.moment_corner, tree), standard=False)
    for x, y, needed in _PAIRS:
        if needed <= statistics:
            panels = [{"x": x, "y": y, "component": name} for name in components]
            scatter = Panels(
                _statistic_scatter.statistic_scatter, tree, panels, 3, share_x=False, panel=3.6, standard=False
            )
            recipes[f"scatter-{x}-{y}".replace("_", "-")] = scatter
    for component in components if "histogram" in elements else ():
        present = elements["histogram"].sel(component=component).notnull().any("bin").transpose("layer", "head")
        for place in np.flatnonzero(present.any("head").values).tolist():
            layer, heads = int(elements["layer"][place]), elements["head"].values[present.values[place]].tolist()
            title = f"{symbol_of(component)}, layer {layer_numbers(elements)[place]}"
            for ending, scale in _GRIDS:
                if scale == "weights" and not {"sigma", "mean"} <= statistics:
                    continue
                shared = {"layer": layer, "component": component, "scale": scale}
                panels = [shared | {"head": head} for head in heads]
                recipes[f"head-densities-{component}-{layer}{ending}"] = Panels(
                    _element_histograms.head_density, tree, panels, 4, share_y=True, height=2.2, panel=2.7,
                    title="\n".join(filter(None, [model_title(tree), title])), standard=False,
                )  # fmt: skip
    return recipes


def _width(tree: xr.DataTree, options: Mapping[str, Any], style: FigureStyle) -> ThemedFigure:
    figure = Single(_statistic_by_layer.width_by_layer, tree, options, width=8.0)(style)
    legend_of_all(figure, style.theme)
    return figure


def figure_recipes(tree: xr.DataTree) -> dict[str, FigureRecipe]:
    """Return a recipe of each figure of a scores tree, by name."""
    recipes: dict[str, FigureRecipe] = {}
    for circuit in circuits_of(tree):
        of_heads = _of_heads(circuit_scores(tree, circuit))
        recipes |= of_heads if circuit == "qk" else {f"{circuit}-{name}": recipe for name, recipe in of_heads.items()}
    if "matrices" in tree.children:
        matrices = matrices_of(tree)
        statistics, layers = matrices["statistic"].values.tolist(), matrices.sizes["layer"]
        shown = [name for name in MAIN_ELEMENT_STATISTICS if name in statistics]
        recipes["matrix-z-heat-map"] = _heat_maps(_heatmaps.matrix_z_heatmap, tree, "statistic", shown, layers)
        recipes |= _of_matrices(tree)
    if "experts" in tree.children:
        experts = matrices_of(tree, "experts")
        components, layers = experts["component"].values.tolist(), experts.sizes["layer"]
        recipes["expert-z-heat-map"] = _heat_maps(_heatmaps.expert_z_heatmap, tree, "component", components, layers)
    return recipes | (_of_head_elements(tree) if "elements" in tree["heads"].children else {})


def _of_heads(tree: xr.DataTree) -> dict[str, FigureRecipe]:
    """Return a recipe of each figure of the heads of one circuit, by name."""
    layers = tree["heads"].sizes.get("layer", 1)
    size: dict[str, Any] = {"width": 6.8, "height": _map_height(layers) + 0.3}
    height = min(max(3.4, 1.6 + _ROW * layers * tree["heads"].sizes["head"]), 9.0)
    rows: dict[str, Any] = {"width": 6.8, "height": height, "standard": False}
    summary = summarize_scores(tree)
    unequal = len(set(summary.flagged.values())) > 1
    all_differ = 0 < summary.n_heads == len(summary.findings)  # then a map of q, or bars of equal length, show nothing
    at_floor = 2 * summary.at_floor > summary.n_heads  # then most points would lie on one line
    # The trace takes the place of a main statistic that the null fixes.
    spread = tree["heads"].to_dataset()["null_std"]
    fixed = spread == 0
    constant = fixed.any(("layer", "head")) & (fixed | spread.isnull()).all(("layer", "head"))
    fixed_names = spread["statistic"].values[constant.values]
    main = ["trace" if name in fixed_names else name for name in MAIN_STATISTICS]
    recipes: dict[str, FigureRecipe] = {
        "moved-share-map": Single(_heatmaps.moved_share_heatmap, tree, **size),
        "omnibus-map": Single(_heatmaps.omnibus_heatmap, tree, **size, standard=not all_differ),
        "heads-by-statistic": Custom(partial(_bars, tree), standard=unequal),
        "z-heat-map": _heat_maps(_heatmaps.z_heatmap, tree, "statistic", main, layers),
        "ordered-eigenvalues": Single(_eigenvalues.ordered_eigenvalues, tree, width=8.0),
        "statistics-by-layer": Panels(
            _statistic_by_layer.statistic_by_layer, tree, [{"statistic": name} for name in main], 2
        ),
        "p-value-qq": Single(p_value_qq, tree, width=8.0, standard=not at_floor),
    }
    if str(tree.attrs["null_method"]) != "resampled":
        recipes["null-spectrum"] = Custom(partial(_null_spectra, tree))
    recipes |= {
        "eigenvalue-map": Single(_eigenvalues.eigenvalue_heatmap, tree, **rows),
        "eigenvalue-map-over-mean": Single(_eigenvalues.eigenvalue_heatmap, tree, {"over": "mean"}, **rows),
        "eigenvalue-density-map": Single(_eigenvalues.eigenvalue_density_heatmap, tree, **rows),
        "spectrum-and-width": Custom(partial(spectrum_and_width, tree, "eigenvalue"), standard=False),
        "spectrum-and-width-singular": Custom(partial(spectrum_and_width, tree, "singular value"), standard=False),
    }
    return recipes | _of_layers(tree) | _of_statistics(tree)


def _of_layers(tree: xr.DataTree) -> dict[str, FigureRecipe]:
    """Return, for each layer, a figure of the spectra of all its heads, with one panel per head."""
    table = heads_of(tree).transpose("layer", "head", ...)
    present, recipes = heads_present(table), {}
    for place in np.flatnonzero(present.any(axis=1)).tolist():
        layer, heads = int(table["layer"].values[place]), table["head"].values[present[place]].tolist()
        options = [{"layer": layer, "head": head, "title": f"{noun_of(tree)} {head}"} for head in heads]
        size: dict[str, Any] = {"columns": 4, "height": 2.2, "panel": 2.7}
        if len(heads) > _PANELS:
            size = {"columns": 6, "height": 1.9, "panel": 2.2}
        title = "\n".join(filter(None, [model_title(tree), _eigenvalues.layer_name(tree, layer)]))
        size |= {"share_y": True, "title": title, "standard": False}
        recipes[f"head-eigenvalues-{layer}"] = Panels(_eigenvalues.head_eigenvalues, tree, options, **size)
        recipes[f"head-eigenvalue-densities-{layer}"] = Panels(
            _eigenvalues.head_eigenvalue_density, tree, options, **size
        )
    return recipes


def _of_statistics(tree: xr.DataTree) -> dict[str, FigureRecipe]:
    """Return a figure by layer for each statistic."""
    statistics = heads_of(tree)["statistic"].values.tolist()
    recipes: dict[str, FigureRecipe] = {}
    for name in statistics:
        if name.endswith(_SINGULAR) and name.removesuffix(_SINGULAR) in statistics:
            continue
        options = [{"statistic": name, "over": "nothing"}]
        if f"{name}{_SINGULAR}" in statistics:
            options.append({"statistic": f"{name}{_SINGULAR}"})
        elif name in SPECTRAL_STATISTICS and SPECTRAL_STATISTICS[name].scaling != 0:
            options.append({"statistic": name})
        by_layer = Panels(
            _statistic_by_layer.statistic_by_layer, tree, options, 2, height=5.0, join=True, standard=False
        )
        recipes[f"by-layer-{name.replace('_', '-')}"] = by_layer
    if "normalized_participation_ratio_singular" in statistics:
        recipes["scatter-participation-entropy"] = Custom(partial(_shapes, tree), standard=False)
    return recipes


def _shapes(tree: xr.DataTree, style: FigureStyle) -> ThemedFigure:
    """Draw entropy against participation of the spectra, by λ and by s, with layers in colour."""
    x, y = "normalized_participation_ratio", "spectral_entropy"
    options = [{"x": f"{x}{ending}", "y": f"{y}{ending}"} for ending in ("", _SINGULAR)]
    figure = Panels(_statistic_scatter.scatter_by_layer, tree, options, 2, share_x=False, height=3.8)(style)
    _statistic_scatter.layer_bar(figure, heads_of(tree), style.theme)
    return figure


def _null_spectra(tree: xr.DataTree, style: FigureStyle) -> ThemedFigure:
    """Draw the null of each shape of the heads on its own axes."""
    cases = [{"case": case} for case in range(min(len(shapes_of(tree)), _PANELS))]
    if len(cases) == 1:
        return Single(null_spectrum, tree, width=8.0)(style)
    figure = Panels(null_spectrum, tree, cases, 2, share_x=False).draw(style)
    legend_of_each(figure, style.theme)
    return figure


@panel
def flagged_by_statistic(ax: Axes, theme: Theme, scores: xr.DataTree | xr.Dataset) -> Around:
    """Draw the number of heads that each statistic flags by itself, with the largest number on top."""
    heads = heads_of(scores)
    q = heads["q_value"].transpose("statistic", ...).values.reshape(heads.sizes["statistic"], -1)
    known, count = np.asarray(np.isfinite(q).any(axis=1)), np.asarray((q < LEVEL).sum(axis=1))
    order = np.lexsort((np.arange(len(count)), -count, ~known))
    place = np.arange(len(order))
    total = int(np.isfinite(heads["omnibus_q_value"].values).sum())
    ax.barh(place, np.where(known, total, 0)[order], color=theme.grid, height=0.72, linewidth=0)
    ax.barh(place, count[order], color=theme.flagged, height=0.72, linewidth=0)
    size = theme.points("xtick.labelsize")
    for y, (heads_flagged, is_known) in enumerate(zip(count[order].tolist(), known[order].tolist(), strict=True)):
        words = f" {heads_flagged}" if is_known else f" {NOT_TESTABLE}"
        ax.text(heads_flagged, y, words, va="center", ha="left", fontsize=size, color=theme.text)
    names = [statistic_words(name) for name in heads["statistic"].values[order].tolist()]
    ax.set_yticks(place, [wrapped(literal(name), size, _NAMES * panel_size(ax)[0]) for name in names])
    ax.set_ylim(len(order) - 0.5, -0.5)
    ax.set_xlim(0, max(total, 1) * 1.08)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    ax.grid(visible=False)
    ax.tick_params(axis="y", length=0)
    share = f", of {total}" if total == int(heads_present(heads).sum()) else f",\nof {total} testable"
    return Around("", f"{noun_of(scores)}s with q < {LEVEL:g}{share}", "", legend=None)


def _bars(tree: xr.DataTree, style: FigureStyle) -> ThemedFigure:
    figure = Single(flagged_by_statistic, tree)(style)
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    lines = 1 + max(name.count("\n") for name in names)
    figure.set_figheight(1.0 + len(names) * (0.06 + 1.3 * lines * style.theme.points("xtick.labelsize") / 72))
    return figure


def _map_height(layers: int) -> float:
    return min(3.6, max(2.2, 1.0 + 0.22 * layers))


def _heat_maps(plot: Callable[..., Axes], tree: xr.DataTree, option: str, names: Sequence[str], layers: int) -> Custom:
    """Return a figure with one panel for each value of one of the plot's options."""
    panels = Panels(plot, tree, [{option: name} for name in names], 2, share_y=True, height=_map_height(layers))

    def draw(style: FigureStyle) -> ThemedFigure:
        figure = panels.draw(style)
        upright = any(label.get_rotation() for ax in figure.axes for label in ax.get_xticklabels())
        figure.set_figheight(max(figure.get_figheight(), _SCALE) + (_UPRIGHT if upright else 0.0))
        Z.bar(figure.axes, style.theme)
        return figure

    return Custom(draw)
