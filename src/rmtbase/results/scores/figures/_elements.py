"""Figures of the elements of heads and matrices, if a scores tree holds their statistics and histograms."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from rmtbase.drawing.axes import model_title, new_figure, styled, symbol_of, titled
from rmtbase.drawing.color_scales import DENSITY, MAGNITUDE_DENSITY
from rmtbase.drawing.groups import elements_of, matrices_of
from rmtbase.drawing.layout import NARROWEST, Drawing, Look, Single, legend_of_all, panels
from rmtbase.drawing.picture import Picture, PictureAxes
from rmtbase.results.scores.figures._element_histograms import head_density, head_density_heatmap, magnitude_heatmap
from rmtbase.results.scores.figures._statistic_by_layer import matrix_statistic_by_layer, statistic_by_layer
from rmtbase.results.scores.figures._statistic_scatter import moment_corner, statistic_scatter
from rmtbase.results.scores.figures._weibull_plane import body_and_tail, weibull_plane
from rmtbase.results.scores.figures._weibull_plot import tail_counts, trim_noise, weibull_plot, weibull_residuals
from rmtbase.results.scores.figures._width_by_layer import width_by_layer

_ROW = 0.055  # inches per row of a head
_BY_LAYER = ("sigma", "kl_matched_normal", "entropy_residual", "weibull_shape")
_WIDTHS = (
    ("width-and-entropy", ("entropy_residual",), "entropy"),
    ("width-and-divergence", ("core_sigma", "kl_matched_normal"), "kl_matched_normal"),
)
_LAWS = ("weibull_shape", "weibull_scale")


_GRIDS = (("", "log", "spread"), ("-linear", "linear", "spread"), ("-weights", "linear", "weight"))
"""Variants of the figures of a layer's heads: ending of the name, scale of densities, unit of the elements."""


def drawings_of_elements(tree: xr.DataTree, look: Look) -> dict[str, Drawing]:
    """Return a drawing for each figure of elements, by name; empty if the file has no such groups."""
    drawings: dict[str, Drawing] = {}
    if "matrices" in tree.children:
        drawings |= _of_matrices(tree, look)
    if "elements" in tree["heads"].children:
        drawings |= _of_heads(tree, look)
    return drawings


def _of_matrices(tree: xr.DataTree, look: Look) -> dict[str, Drawing]:
    matrices, drawings = matrices_of(tree), {}
    held = matrices["statistic"].values.tolist()
    if not set(_LAWS) <= set(held):
        return {}
    drawings["weibull-by-layer"] = Drawing(partial(_weibull_by_layer, tree, look, False))
    drawings["weibull-by-layer-published"] = Drawing(partial(_weibull_by_layer, tree, look, True), standard=False)
    drawings["weibull-plane"] = Drawing(Single(weibull_plane, look, tree), standard=False)
    drawings["trim-noise"] = Drawing(Single(trim_noise, look, tree), standard=False)
    if "body_tail_gap" in held:
        drawings["body-and-tail"] = Drawing(Single(body_and_tail, look, tree, 8.0), standard=False)
    if "log_magnitude_histogram" not in matrices:
        return drawings
    components = [str(one) for one in matrices["component"].values]
    drawings["magnitude-map"] = Drawing(partial(_magnitude_maps, tree, components, look), standard=False)
    for component in components:
        fits = matrices["observed"].sel(component=component, statistic=list(_LAWS)).notnull().all("statistic")
        layers = matrices["layer"].values[fits.values].tolist()
        for layer in layers:
            draw = partial(_weibull_plots, tree, layer, component, look)
            drawings[f"weibull-plot-{component}-{layer}"] = Drawing(draw, standard=False)
            tail = Single(tail_counts, look, tree, layer=layer, component=component)
            drawings[f"tail-{component}-{layer}"] = Drawing(tail, standard=False)
    return drawings


def _of_heads(tree: xr.DataTree, look: Look) -> dict[str, Drawing]:
    elements = elements_of(tree)
    components = [str(one) for one in elements["component"].values]
    held = elements["statistic"].values.tolist()
    drawings: dict[str, Drawing] = {}
    for name, unit in (("head-density-map", "spread"), ("head-density-map-weights", "weight")):
        if "histogram" in elements and (unit == "spread" or "sigma" in elements):
            drawings[name] = Drawing(partial(_density_maps, tree, components, unit, look), standard=False)
    shown = [name for name in _BY_LAYER if name in held or name in elements]
    for component in components if shown else ():
        draw = partial(_by_layer, tree, component, shown, look)
        drawings[f"elements-by-layer-{component}"] = Drawing(draw, standard=False)
    for name, needed, beside in _WIDTHS:
        for component in components if set(needed) <= set(held) and "sigma" in elements else ():
            draw = partial(_widths, tree, beside, component, look)
            drawings[f"{name}-{component}"] = Drawing(draw, standard=False)
    if "W_QK" in components and {"mean", "skewness", "excess_kurtosis"} <= set(held):
        theme, width = look
        drawings["moment-corner"] = Drawing(partial(moment_corner, tree, theme=theme, width=width), standard=False)
    pairs = [("skewness", "excess_kurtosis"), ("sigma", "entropy_residual"), ("sigma", "kl_matched_normal")]
    pairs += [("sigma", "core_sigma")]
    pairs += [("sigma", "entropy")] if "entropy_residual" in held else []
    for x, y in pairs:
        if (y in held or y == "entropy") and (x in held or x in elements):
            name = f"scatter-{x}-{y}".replace("_", "-")
            drawings[name] = Drawing(partial(_scatters, tree, x, y, components, look), standard=False)
    if "histogram" in elements:
        for component in components:
            there = elements["histogram"].sel(component=component).notnull().any("bin")
            for layer in elements["layer"].values[there.any("head").values].tolist():
                heads = there["head"].values[there.sel(layer=layer).values].tolist()
                for ending, scale, unit in _GRIDS:
                    if unit == "weight" and not ("sigma" in elements and "mean" in held):
                        continue
                    of = {"scale": scale, "unit": unit}
                    draw = partial(_density_grid, tree, component, layer, heads, of, look)
                    drawings[f"head-densities-{component}-{layer}{ending}"] = Drawing(draw, standard=False)
    return drawings


def _weibull_by_layer(tree: xr.DataTree, look: Look, published: bool) -> Picture:
    options = {
        name: {"table": tree, "statistic": name, "published": published and name == "weibull_shape"} for name in _LAWS
    }
    plain = partial(matrix_statistic_by_layer, legend=False)
    figure = panels(plain, options, look, 2, share_y=False, height=3.8, title=model_title(tree))
    legend_of_all(figure, look.theme)
    return figure


def _by_layer(tree: xr.DataTree, component: str, names: Sequence[str], look: Look) -> Picture:
    options = {name: {"table": tree, "statistic": name, "component": component} for name in names}
    plain = partial(statistic_by_layer, group="elements", legend=False)
    title = "\n".join(part for part in (model_title(tree), f"elements of {symbol_of(component)} of each head") if part)
    figure = panels(plain, options, look, 2, share_y=False, height=4.4, title=title)
    for ax in figure.axes:
        titled(ax, "", look.theme)
    legend_of_all(figure, look.theme, same=True)
    return figure


def _widths(tree: xr.DataTree, beside: str, component: str, look: Look) -> Picture:
    figure = Single(width_by_layer, look, tree, 8.0, beside=beside, component=component, legend=False)()
    legend_of_all(figure, look.theme)
    return figure


def _magnitude_maps(tree: xr.DataTree, components: Sequence[str], look: Look) -> Picture:
    options = {name: {"table": tree, "component": name} for name in components}
    plain = partial(magnitude_heatmap, colorbar=False)
    figure = panels(plain, options, look, 4, share_y=True, height=2.7, title=model_title(tree), panel=3.4)
    MAGNITUDE_DENSITY.bar(figure.axes, look.theme)
    return figure


def _density_maps(tree: xr.DataTree, components: Sequence[str], unit: str, look: Look) -> Picture:
    options = {name: {"table": tree, "component": name, "unit": unit} for name in components}
    first = elements_of(tree)["histogram"].isel(bin=0, component=0)
    rows = int(np.isfinite(first.values).sum())
    height = min(max(2.6, 1.2 + _ROW * rows), 8.0)
    plain = partial(head_density_heatmap, colorbar=False)
    figure = panels(plain, options, look, 3, share_y=False, height=height, title=model_title(tree), panel=3.6)
    DENSITY.bar(figure.axes, look.theme)
    return figure


def _scatters(tree: xr.DataTree, x: str, y: str, components: Sequence[str], look: Look) -> Picture:
    options = {name: {"table": tree, "x": x, "y": y, "component": name} for name in components}
    plain = partial(statistic_scatter, group="elements", legend=False)
    figure = panels(plain, options, look, 3, share_y=False, share_x=False, title=model_title(tree), panel=3.6)
    legend_of_all(figure, look.theme)
    return figure


def _density_grid(
    tree: xr.DataTree, component: str, layer: int, heads: Sequence[int], of: dict[str, Any], look: Look
) -> Picture:
    options = {str(head): {"table": tree, "layer": layer, "head": head, "component": component} for head in heads}
    plain = partial(head_density, legend=False, **of)
    figure = panels(plain, options, look, 4, share_y=True, height=2.2, title=model_title(tree), panel=2.7)
    what, _, _ = figure.axes[0].get_title().rpartition(" head ")
    _entitle(figure, look, model_title(tree), what)
    for ax, head in zip(figure.axes, options, strict=True):
        titled(ax, f"head {head}", look.theme)
        ax.set_ylabel("density" if ax.get_ylabel() else "")
        ax.set_xlabel(("element $w$" if of["unit"] == "weight" else r"$(w - \bar w)/s$") if ax.get_xlabel() else "")
    legend_of_all(figure, look.theme)
    return figure


def _weibull_plots(tree: xr.DataTree, layer: int, component: str, look: Look) -> Picture:
    """Draw the Weibull plot and its residuals, side by side or one below the other."""
    width = look.width or 9.6
    columns = 2 if width >= 2 * NARROWEST else 1
    figure = new_figure(look.theme, width, 4.0 if columns == 2 else 6.6, model_title(tree))
    grid = figure.subplots(2 // columns, columns, squeeze=False, subplot_kw={"axes_class": PictureAxes})
    for ax, plot in zip(grid.flat, (weibull_plot, weibull_residuals), strict=True):
        plot(tree, layer, component, ax=styled(ax, look.theme), theme=look.theme, legend=False)
    title, _, fit = grid.flat[0].get_title().partition("\n")
    _entitle(figure, look, model_title(tree), title)
    titled(grid.flat[0], fit, look.theme)
    titled(grid.flat[1], "less the fit", look.theme)
    legend_of_all(figure, look.theme)
    return figure


def _entitle(figure: Picture, look: Look, *parts: str) -> None:
    """Give the figure the nonempty lines of its title."""
    size = look.theme.points("axes.titlesize")
    figure.suptitle("\n".join(part for part in parts if part), fontsize=size, color=look.theme.muted)
