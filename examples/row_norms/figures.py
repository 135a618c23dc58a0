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
        share, q_value = (table[name].sel(component=component).values for name in ("largest_share", "q_value"))
        for layer, (heads, q) in enumerate(zip(share, q_value, strict=True)):
            for mask, fill in ((q < 0.05, color), (q >= 0.05, "none")):
                ax.scatter([layer] * int(mask.sum()), heads[mask], s=22, facecolors=fill, edgecolors=color)
        ax.scatter([], [], s=22, color=color, label=component.replace("_", " "))
    return Around(y="largest share of a row in ‖W‖²", layers=table)


def figure_recipes(table: xr.Dataset) -> dict[str, FigureRecipe]:
    """Name the figure of row norms."""
    return {"row-norms": Single(largest_row_shares, table, width=6.5)}
