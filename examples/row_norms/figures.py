"""Largest row shares, layer by layer."""

import xarray as xr
from matplotlib.axes import Axes

from rmtbase.drawing.axes import Around, panel
from rmtbase.drawing.layout import FigureRecipe, Single
from rmtbase.drawing.theme import Theme


@panel
def largest_row_shares(ax: Axes, theme: Theme, table: xr.Dataset) -> Around:
    """Draw the largest share of a row of each head; heads with q < 0.05 are filled."""
    for color, component in zip(theme.series, table["component"].values.tolist(), strict=False):
        here = table.sel(component=component)
        for layer in range(table.sizes["layer"]):
            one = here.isel(layer=layer)
            for found, fill in ((one["q_value"] < 0.05, color), (one["q_value"] >= 0.05, "none")):
                y = one["largest_share"].values[found.values]
                ax.scatter([layer] * len(y), y, s=22, facecolors=fill, edgecolors=color)
        ax.scatter([], [], s=22, color=color, label=component.replace("_", " "))
    return Around(x="layer", y="largest share of a row in ‖W‖²")


def figure_recipes(table: xr.Dataset) -> dict[str, FigureRecipe]:
    """Name the figure of row norms."""
    return {"row-norms": Single(largest_row_shares, table, width=6.5)}
