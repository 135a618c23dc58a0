"""Figures of a table of any kind, by name."""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module

import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rmtbase.arguments import checked
from rmtbase.drawing.axes import panel_size
from rmtbase.drawing.layout import WIDTHS, FigureRecipe, Single, draw_figures, figure_style
from rmtbase.drawing.theme import Theme
from rmtbase.errors import ParameterError
from rmtbase.results import KINDS


@checked
def figures(
    table: xr.Dataset | xr.DataTree,
    *,
    theme: Theme | str = "light",
    width: float | None = None,
    names: Collection[str] | None = None,
) -> dict[str, Figure]:
    """Draw the figures of a table by name: the standard figures of its kind, or the requested ones.

    Which figures a kind of table has is shown by :func:`figure_names` and by the gallery of the documentation.

    Args:
        table: a table of any of these kinds.
        theme: ``"light"``, ``"dark"``, ``"print"``, or a :class:`Theme`, whose ``with_style`` takes a style file.
        width: width of each figure in inches; if None, each figure has its own default.
        names: draw only these of :func:`figure_names`, with ``*`` for any characters and ``?`` for one; the standard
            figures if None. Names of which the table has no figure are ignored.

    Raises:
        ParameterError: no such table, no such theme, or a width that no figure can have.
    """
    return draw_figures(_recipes(table), figure_style(theme, width), names)


@checked
def plot(
    table: xr.Dataset | xr.DataTree,
    name: str,
    ax: Axes | None = None,
    *,
    theme: Theme | str = "light",
    width: float | None = None,
) -> Axes:
    """Draw one figure of a table by its name.

    Args:
        table: a table of any kind, computed or opened.
        name: one of :func:`figure_names`.
        ax: axes to draw on; a new figure if None. Figures with several panels or colour bars need a new figure. Their
            figure gets Matplotlib's constrained layout, which leaves room for labels, unless it has another. A legend
            that would take more than a quarter of the panel's height is left to ``ax.legend()``.
        theme: as in :func:`figures`.
        width: as in :func:`figures`; with ``ax``, by default that of its panel.

    Returns:
        The axes, the first of several panels. ``ax.figure`` is the figure.

    Raises:
        ParameterError: no such figure, or ``ax`` is given for one that needs a new figure.
    """
    if ax is not None and width is None:
        width = max(panel_size(ax)[0], WIDTHS[0])  # small letters in small panels
    recipes, style = _recipes(table), figure_style(theme, width)
    if name not in recipes:
        raise ParameterError("name", name, f"one of {', '.join(recipes)}")
    recipe = recipes[name]
    if ax is None:
        return draw_figures({name: recipe}, style, [name])[name].axes[0]
    if not isinstance(recipe, Single):
        raise ParameterError("ax", "axes", f"None: {name} lays out a figure of its own")
    return recipe.on(ax, style)


@checked
def figure_names(table: xr.Dataset | xr.DataTree) -> dict[str, bool]:
    """Name every figure of a table, with True for the standard ones, which :func:`figures` draws by default.

    Raises:
        ParameterError: no such table.
    """
    return {name: recipe.standard for name, recipe in _recipes(table).items()}


def _recipes(table: xr.Dataset | xr.DataTree) -> dict[str, FigureRecipe]:
    plain = "scores" if isinstance(table, xr.DataTree) else "baseline"
    folder = KINDS.get(str(table.attrs.get("kind")), plain)
    return import_module(f"rmtbase.results.{folder}.figures").figure_recipes(table)
