"""Largest row shares, layer by layer."""

from rmtbase.drawing.axes import Around, panel
from rmtbase.drawing.layout import Single


@panel
def largest_row_shares(ax, theme, table):
    """Draw the largest share of a row of each head; heads with q < 0.05 are filled."""
    for color, component in zip(theme.series, table["component"].values.tolist(), strict=False):
        share, q = (table[name].sel(component=component).values for name in ("largest_share", "q_value"))
        for mask, fill in ((q < 0.05, color), (q >= 0.05, "none")):
            ax.scatter(mask.nonzero()[0], share[mask], s=22, facecolors=fill, edgecolors=color)
        ax.scatter([], [], s=22, color=color, label=component.replace("_", " "))
    return Around(y="largest share of a row in ‖W‖²", layers=table)


def figure_recipes(table):
    """Name the figure of row norms."""
    return {"row-norms": Single(largest_row_shares, table, width=6.5)}
