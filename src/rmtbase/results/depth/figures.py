"""Figures of effective depth: distance of a weight matrix from the law of each depth, and its spectrum with laws."""

from __future__ import annotations

import json
from itertools import cycle, product

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from rmtbase.drawing.axes import NOT_TESTABLE, Around, cross_at_foot, grid_of_axes, model_title, new_figure, panel
from rmtbase.drawing.figure import ThemedFigure
from rmtbase.drawing.layout import NARROWEST, Custom, FigureRecipe, FigureStyle
from rmtbase.drawing.texts import literal
from rmtbase.drawing.theme import Theme
from rmtbase.laws import ResidualPath, ResidualUpdate
from rmtbase.reasons import Reason

__all__ = ["figure_recipes"]

_DEPTHS_SHOWN = (1, 4, 10, 20)  # whose laws are drawn in addition to the nearest one
_DISTANCES = {"wasserstein": "Wasserstein", "kolmogorov_smirnov": "Kolmogorov–Smirnov"}
_LAWS = {"path": ResidualPath, "update": ResidualUpdate}
_BINS = 48
_STYLES = ("--", ":", "-.", (0, (6, 2, 1, 2, 1, 2)), (0, (1, 1)))


@panel
def depth_profile(ax: Axes, theme: Theme, table: xr.Dataset, component: str) -> Around:
    """Draw the distance between a matrix's singular values and the law of each candidate depth."""
    matrix = _matrix(table, component)
    nearest = float(matrix["effective_depth"])
    if not np.isfinite(nearest):
        ax.set_xlim(float(matrix["depth"].min()), float(matrix["depth"].max()) + 1.0)
        cross_at_foot(ax, np.array([float(matrix["depth"].mean())]), theme)
        return Around(_untestable_title(matrix), legend="lower right")
    ax.plot(
        matrix["depth"], matrix["distance_profile"], color=theme.null, linewidth=1.2, marker="o", markersize=2.6,
        label="law of each depth",
    )  # fmt: skip
    verdict, fill = ("fits", theme.observed) if matrix["fits"] else ("no depth fits", theme.surface)
    colour = theme.observed if matrix["fits"] else theme.flagged
    ax.plot(
        nearest, float(matrix["distance"]), linestyle="none", marker="D", markersize=6.5, markerfacecolor=fill,
        markeredgecolor=colour, markeredgewidth=1.6,
        label=f"nearest: depth {nearest:g}\n{verdict}, p = {float(matrix['p_value']):.2g}",
    )  # fmt: skip
    ax.set_ylim(0.0, 1.05 * float(np.nanmax(table["distance_profile"])))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    y = f"distance ({_DISTANCES[json.loads(table.attrs['provenance'])['call']['distance']]})"
    return Around(_title(matrix), "depth of the residual path", y, legend="lower right")


@panel
def depth_spectrum(ax: Axes, theme: Theme, table: xr.Dataset, component: str) -> Around:
    """Draw the density of a matrix's singular values with the laws of several depths, each at its nearest scale."""
    matrix = _matrix(table, component)
    units, widest, rank = _units(table)
    unit = float(units.sel(layer=matrix["layer"], component=matrix["component"]))
    values = matrix["singular_value"].values
    values = values[np.isfinite(values)] / unit
    ax.set_xlim(0.0, widest)
    if not values.size:
        cross_at_foot(ax, np.array([0.5 * widest]), theme)
        return Around(_untestable_title(matrix), legend="upper right")
    edges = np.linspace(0.0, widest, _BINS + 1)
    density = np.histogram(values, edges)[0] / (values.size * np.diff(edges))
    ax.stairs(density, edges, fill=True, color=theme.observed, alpha=0.3, label="singular values")
    x = np.geomspace(1e-3 * widest, widest, 800)
    nearest = matrix["effective_depth"].item()
    lines = [
        (depth, colour, style, 1.2)
        for depth, colour, style in zip(_DEPTHS_SHOWN, cycle(theme.series[1:]), cycle(_STYLES), strict=False)
        if depth in matrix["depth"] and depth != nearest
    ]
    if np.isfinite(nearest):
        lines.append((int(nearest), theme.text, "-", 1.8))
    for depth, colour, style, width in sorted(lines, key=lambda line: line[0]):
        row = matrix.sel(depth=depth)
        scale = float(row["scale_profile"]) / unit
        if scale > 0.0:
            law = _LAWS[table.attrs["part"]](depth, float(row["sigma_profile"]))
            label = f"law of depth {depth}" + (", the nearest" if depth == nearest else "")
            ax.plot(x, law.pdf_singular_values(x / scale) / scale, color=colour, linestyle=style, lw=width, label=label)
    ax.set_xlim(0.0, widest)
    ax.set_ylim(0.4 * _BINS / (max(rank, 1) * widest), 30.0)
    ax.set_yscale("log")
    x_label, y_label = "singular value / root mean square", "density of singular values"
    return Around(_title(matrix), x_label, y_label, legend="upper right")


def _matrix(table: xr.Dataset, component: str) -> xr.Dataset:
    """Select a component in the middle one of the layers that have it."""
    layers = table["layer"].values[table["n_rows"].sel(component=component).notnull().values]
    return table.sel(layer=layers[len(layers) // 2], component=component)


def _units(table: xr.Dataset) -> tuple[xr.DataArray, float, int]:
    """Root mean square of each matrix's singular values, the end of an axis in that unit, and their largest number."""
    values = table["singular_value"]
    if not values.sizes["index"]:  # no matrix could be tested
        return xr.full_like(table["n_rows"], 1.0, dtype=float), 1.0, 0
    unit: xr.DataArray = (values**2).mean("index") ** 0.5
    largest = float((values.max("index") / unit).max())
    return unit, 1.05 * largest if np.isfinite(largest) else 1.0, values.sizes["index"]


def _title(matrix: xr.Dataset) -> str:
    stack, number = ("stack", "stack_layer") if "stack_layer" in matrix.coords else ("", "layer")
    layer = f"{matrix[stack].item() if stack else ''} layer {matrix[number].item()}".lstrip()
    words = literal(f"{layer}, " + str(matrix["component"].item()).replace("_", " "))
    return f"{words} ({int(matrix['n_rows'])} × {int(matrix['n_columns'])})"


def _untestable_title(matrix: xr.Dataset) -> str:
    reason = Reason.read(matrix["reason"].item()).words if "reason" in matrix else ""
    return f"{_title(matrix)}\n{NOT_TESTABLE}" + (f": {literal(reason, 120)}" if reason else "")


def figure_recipes(table: xr.Dataset) -> dict[str, FigureRecipe]:
    """Name the figure of effective depths."""

    def draw(style: FigureStyle) -> ThemedFigure:
        """Draw a row for each component on shared axes: one scale for all distances, one for all spectra."""
        components = table["component"].values.tolist()
        width = style.width or 10.5
        columns = 2 if width >= 2 * NARROWEST else 1
        rows = len(components) * 2 // columns
        figure = new_figure(style.theme, width, 2.9 * rows, model_title(table))
        grid = grid_of_axes(figure, style.theme, rows, columns, sharex="col" if columns == 2 else False)
        places = product(components, (depth_profile, depth_spectrum))
        for ax, (component, plot) in zip(grid.flat, places, strict=True):
            plot(table, component, ax=ax, theme=style.theme)
            if columns == 2 and component != components[-1]:
                ax.set_xlabel("")
        return figure

    return {"effective-depth": Custom(draw)}
