"""Largest row shares, layer by layer."""

from typing import Any

import xarray as xr
from matplotlib.axes import Axes

from rmtbase.drawing.axes import themed_axes
from rmtbase.drawing.layout import FigureRecipe, FigureStyle, Single
from rmtbase.drawing.theme import Theme


def largest_row_shares(table: xr.Dataset, *, ax: Axes | None = None, theme: Theme | str = "light") -> Axes:
    """Draw the largest share of a row of each head; heads with q < 0.05 are filled."""
    ax, theme = themed_axes(ax, theme, table)
    for color, component in zip(theme.series, table["component"].values.tolist(), strict=False):
        here = table.sel(component=component)
        for layer in range(table.sizes["layer"]):
            one = here.isel(layer=layer)
            for found, fill in ((one["q_value"] < 0.05, color), (one["q_value"] >= 0.05, "none")):
                y = one["largest_share"].values[found.values]
                ax.scatter([layer] * len(y), y, s=22, facecolors=fill, edgecolors=color)
        ax.scatter([], [], s=22, color=color, label=component.replace("_", " "))
    ax.set(xlabel="layer", ylabel="largest share of a row in ‖W‖²")
    ax.legend()
    return ax


def figure_recipes(table: xr.Dataset, style: FigureStyle) -> dict[str, Any]:
    """Name the figure of row norms."""
    return {"row-norms": FigureRecipe(Single(largest_row_shares, style, table, 6.5))}
