"""Figures of a scores tree."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from rmtbase.drawing.axes import model_title, noun_of, symbol_of
from rmtbase.drawing.color_scales import DENSITY, MAGNITUDE_DENSITY, Z
from rmtbase.drawing.figure import ThemedFigure
from rmtbase.drawing.groups import elements_of, heads_of, matrices_of
from rmtbase.drawing.layout import Custom, FigureRecipe, FigureStyle, Panels, Single, legend_of_each
from rmtbase.drawing.null_curves import null_spectrum
from rmtbase.results.scores._heads import circuit_scores, circuits_of
from rmtbase.results.scores.figures import (
    _eigenvalues,
    _element_histograms,
    _heatmaps,
    _statistic_by_layer,
    _statistic_scatter,
)
from rmtbase.results.scores.summary import summarize_scores
from rmtbase.statistics import SPECTRAL_STATISTICS
from rmtbase.tables import heads_present, layer_numbers, shapes_of

_ROW = 0.055  # inches per row of a head
_BY_LAYER = ("sigma", "kl_matched_normal", "entropy_residual", "weibull_shape")
_WIDTHS = {"width-and-entropy": "entropy", "width-and-divergence": "kl_matched_normal"}
_LAWS = ("weibull_shape", "weibull_scale")
_GRIDS = {"": "log", "-linear": "linear", "-weights": "weights"}  # scales of densities, by the endings of the names
_OF_A_LAYER = {  # figures of a layer's spectra, a panel for each head
    "head-eigenvalues": _eigenvalues.head_eigenvalues,
    "head-eigenvalue-densities": _eigenvalues.head_eigenvalue_density,
}
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


def figure_recipes(tree: xr.DataTree) -> dict[str, FigureRecipe]:
    """Return a recipe of each figure of a scores tree, by name."""
    recipes: dict[str, FigureRecipe] = {}
    for circuit in circuits_of(tree):
        prefix = "" if circuit == "qk" else f"{circuit}-"
        recipes |= {f"{prefix}{name}": recipe for name, recipe in _of_heads(circuit_scores(tree, circuit)).items()}
    if "matrices" in tree.children:
        recipes |= _of_matrices(tree)
    if "experts" in tree.children:
        experts = matrices_of(tree, "experts")
        components, layers = experts["component"].values.tolist(), experts.sizes["layer"]
        recipes["expert-z-heat-map"] = _heat_maps(_heatmaps.expert_z_heatmap, tree, "component", components, layers)
    return recipes | (_of_head_elements(tree) if "elements" in tree["heads"].children else {})


def _on_request(recipes: Mapping[str, FigureRecipe]) -> dict[str, FigureRecipe]:
    return {name: replace(recipe, standard=False) for name, recipe in recipes.items()}


def _titled(tree: xr.DataTree, title: str) -> str:
    return "\n".join(filter(None, [model_title(tree), title]))


def _of_heads(tree: xr.DataTree) -> dict[str, FigureRecipe]:
    heads = heads_of(tree).transpose("layer", "head", ...)
    layers, statistics = heads.sizes["layer"], heads["statistic"].values.tolist()
    size: dict[str, Any] = {"width": 6.8, "height": _map_height(layers) + 0.3}
    rows: dict[str, Any] = {"width": 6.8, "height": min(max(3.4, 1.6 + _ROW * layers * heads.sizes["head"]), 9.0)}
    summary = summarize_scores(tree)
    unequal = len(set(summary.flagged.values())) > 1
    all_differ = 0 < summary.n_heads == len(summary.findings)  # then a map of q, or bars of equal length, show nothing
    at_floor = 2 * summary.at_floor > summary.n_heads  # then most points would lie on one line
    # The trace takes the place of a main statistic that the null fixes.
    spread = heads["null_std"]
    constant = (spread == 0).any(("layer", "head")) & ((spread == 0) | spread.isnull()).all(("layer", "head"))
    main = ["trace" if name in spread["statistic"].values[constant.values] else name for name in MAIN_STATISTICS]
    by_layer = partial(Panels, _statistic_by_layer.statistic_by_layer, tree, columns=2)
    recipes: dict[str, FigureRecipe] = {
        "moved-share-map": Single(_heatmaps.moved_share_heatmap, tree, **size),
        "omnibus-map": Single(_heatmaps.omnibus_heatmap, tree, **size, standard=not all_differ),
        "heads-by-statistic": Custom(partial(_bars, tree), standard=unequal),
        "z-heat-map": _heat_maps(_heatmaps.z_heatmap, tree, "statistic", main, layers),
        "ordered-eigenvalues": Single(_eigenvalues.ordered_eigenvalues, tree, width=8.0),
        "statistics-by-layer": by_layer([{"statistic": name} for name in main]),
        "p-value-qq": Single(_heatmaps.p_value_qq, tree, width=8.0, standard=not at_floor),
    }
    if str(tree.attrs["null_method"]) != "resampled":
        recipes["null-spectrum"] = Custom(partial(_null_spectra, tree))
    on_request: dict[str, FigureRecipe] = {
        "eigenvalue-map": Single(_eigenvalues.eigenvalue_heatmap, tree, **rows),
        "eigenvalue-map-over-mean": Single(_eigenvalues.eigenvalue_heatmap, tree, {"over": "mean"}, **rows),
        "eigenvalue-density-map": Single(_eigenvalues.eigenvalue_density_heatmap, tree, **rows),
        "spectrum-and-width": Custom(partial(_statistic_scatter.spectrum_and_width, tree, "eigenvalue")),
        "spectrum-and-width-singular": Custom(partial(_statistic_scatter.spectrum_and_width, tree, "singular value")),
    }
    present = heads_present(heads)
    for place in np.flatnonzero(present.any(axis=1)).tolist():
        layer, numbers = int(heads["layer"].values[place]), heads["head"].values[present[place]].tolist()
        options = [{"layer": layer, "head": head, "title": f"{noun_of(tree)} {head}"} for head in numbers]
        size = {"columns": 4, "height": 2.2, "panel": 2.7}
        if len(numbers) > _PANELS:
            size = {"columns": 6, "height": 1.9, "panel": 2.2}
        size |= {"share_y": True, "title": _titled(tree, _eigenvalues.layer_name(tree, layer))}
        for name, plot in _OF_A_LAYER.items():
            on_request[f"{name}-{layer}"] = Panels(plot, tree, options, **size)
    for name in statistics:
        if name.endswith(_SINGULAR) and name.removesuffix(_SINGULAR) in statistics:
            continue
        options = [{"statistic": name, "over": "nothing"}]
        if f"{name}{_SINGULAR}" in statistics:
            options.append({"statistic": f"{name}{_SINGULAR}"})
        elif name in SPECTRAL_STATISTICS and SPECTRAL_STATISTICS[name].scaling != 0:
            options.append({"statistic": name})
        on_request[f"by-layer-{name.replace('_', '-')}"] = by_layer(options, height=5.0, join=True)
    if f"normalized_participation_ratio{_SINGULAR}" in statistics:
        on_request["scatter-participation-entropy"] = Custom(partial(_shapes, tree))
    return recipes | _on_request(on_request)


def _of_matrices(tree: xr.DataTree) -> dict[str, FigureRecipe]:
    matrices = matrices_of(tree)
    statistics, components = (matrices[name].values.tolist() for name in ("statistic", "component"))
    main = [name for name in MAIN_ELEMENT_STATISTICS if name in statistics]
    maps = _heat_maps(_heatmaps.matrix_z_heatmap, tree, "statistic", main, matrices.sizes["layer"])
    recipes: dict[str, FigureRecipe] = {"matrix-z-heat-map": maps}
    if not set(_LAWS) <= set(statistics):
        return recipes
    shape, scale = ({"statistic": name} for name in _LAWS)
    by_layer = partial(Panels, _statistic_by_layer.matrix_statistic_by_layer, tree, columns=2, height=3.8)
    recipes["weibull-by-layer"] = by_layer([shape, scale])
    options = [{"component": name} for name in components]
    on_request: dict[str, FigureRecipe] = {
        "weibull-plane": Single(_element_histograms.weibull_plane, tree),
        "magnitude-map": Panels(
            _element_histograms.magnitude_heatmap, tree, options, 4, share_y=True, height=2.7, panel=3.4,
            scale=MAGNITUDE_DENSITY,
        ),
    }  # fmt: skip
    for component in components:
        fits = matrices["observed"].sel(component=component, statistic=list(_LAWS)).notnull().all("statistic")
        for layer in matrices["layer"].values[fits.values].tolist():
            place = {"layer": layer, "component": component}
            plot = partial(_element_histograms.weibull_and_residuals, tree, **place)
            on_request[f"weibull-plot-{component}-{layer}"] = Custom(plot)
            on_request[f"tail-{component}-{layer}"] = Single(_element_histograms.tail_counts, tree, place)
    return recipes | _on_request(on_request)


def _of_head_elements(tree: xr.DataTree) -> dict[str, FigureRecipe]:
    elements = elements_of(tree)
    components = elements["component"].values.tolist()
    statistics = {"sigma", *elements["statistic"].values.tolist()}
    statistics |= {"entropy"} if "entropy_residual" in statistics else set()
    recipes: dict[str, FigureRecipe] = {}
    rows = int(elements["histogram"].isel(bin=0, component=0).notnull().sum())
    size: dict[str, Any] = {"height": min(max(2.6, 1.2 + _ROW * rows), 8.0), "panel": 3.6, "scale": DENSITY}
    for ending, unit in (("", "spread"), ("-weights", "weight")):
        panels: list[dict[str, Any]] = [{"component": name, "unit": unit} for name in components]
        recipes[f"head-density-map{ending}"] = Panels(_element_histograms.head_density_heatmap, tree, panels, 3, **size)
    main = [name for name in _BY_LAYER if name in statistics]
    for component in components:
        panels = [{"statistic": name, "group": "elements", "component": component} for name in main]
        title = _titled(tree, f"elements of {symbol_of(component)} of each head")
        recipes[f"elements-by-layer-{component}"] = Panels(
            _statistic_by_layer.statistic_by_layer, tree, panels, 2, height=4.4, join=True, title=title
        )
    for name, beside in _WIDTHS.items():
        for component in components if {beside, "core_sigma"} <= statistics else ():
            panels = [{"beside": beside, "component": component}]
            recipe = Panels(_statistic_by_layer.width_by_layer, tree, panels, 1, height=4.74, panel=8.0)
            recipes[f"{name}-{component}"] = recipe
    if "W_QK" in components and {"mean", "skewness", "excess_kurtosis"} <= statistics:
        recipes["moment-corner"] = Custom(partial(_statistic_scatter.moment_corner, tree))
    grids = [(ending, scale) for ending, scale in _GRIDS.items() if scale != "weights" or "mean" in statistics]
    for component in components:
        present = elements["histogram"].sel(component=component).notnull().any("bin").transpose("layer", "head")
        for place in np.flatnonzero(present.any("head").values).tolist():
            layer, heads = int(elements["layer"][place]), elements["head"].values[present.values[place]].tolist()
            title = _titled(tree, f"{symbol_of(component)}, layer {layer_numbers(elements)[place]}")
            for ending, scale in grids:
                shared = {"layer": layer, "component": component, "scale": scale}
                recipes[f"head-densities-{component}-{layer}{ending}"] = Panels(
                    _element_histograms.head_density, tree, [shared | {"head": head} for head in heads], 4,
                    share_y=True, height=2.2, panel=2.7, title=title,
                )  # fmt: skip
    return _on_request(recipes)


def _shapes(tree: xr.DataTree, style: FigureStyle) -> ThemedFigure:
    """Draw entropy against participation of the spectra, by λ and by s, with layers in colour."""
    x, y = "normalized_participation_ratio", "spectral_entropy"
    options = [{"x": f"{x}{ending}", "y": f"{y}{ending}"} for ending in ("", _SINGULAR)]
    figure = Panels(_statistic_scatter.scatter_by_layer, tree, options, 2, share_x=False, height=3.8)(style)
    _statistic_scatter.layer_bar(figure, heads_of(tree), style.theme)
    return figure


def _null_spectra(tree: xr.DataTree, style: FigureStyle) -> ThemedFigure:
    cases = [{"case": case} for case in range(min(len(shapes_of(tree)), _PANELS))]
    if len(cases) == 1:
        return Single(null_spectrum, tree, width=8.0)(style)
    figure = Panels(null_spectrum, tree, cases, 2, share_x=False).draw(style)
    legend_of_each(figure, style.theme)
    return figure


def _bars(tree: xr.DataTree, style: FigureStyle) -> ThemedFigure:
    figure = Single(_heatmaps.flagged_by_statistic, tree)(style)
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    lines = 1 + max(name.count("\n") for name in names)
    figure.set_figheight(1.0 + len(names) * (0.06 + 1.3 * lines * style.theme.points("xtick.labelsize") / 72))
    return figure


def _map_height(layers: int) -> float:
    return min(3.6, max(2.2, 1.0 + 0.22 * layers))


def _heat_maps(plot: Callable[..., Axes], tree: xr.DataTree, option: str, names: Sequence[str], layers: int) -> Custom:
    panels = Panels(plot, tree, [{option: name} for name in names], 2, share_y=True, height=_map_height(layers))

    def draw(style: FigureStyle) -> ThemedFigure:
        figure = panels.draw(style)
        upright = any(label.get_rotation() for ax in figure.axes for label in ax.get_xticklabels())
        figure.set_figheight(max(figure.get_figheight(), _SCALE) + (_UPRIGHT if upright else 0.0))
        Z.bar(figure.axes, style.theme)
        return figure

    return Custom(draw)
