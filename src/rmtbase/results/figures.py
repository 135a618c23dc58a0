"""Figures of a table of any kind, by name."""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module

import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rmtbase.arguments import checked
from rmtbase.drawing.axes import panel_size
from rmtbase.drawing.layout import WIDTHS, FigureRecipe, FigureStyle, Single, draw_figures, figure_style
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

    A baseline table gives the null's spectrum and ordered eigenvalues for each shape, at the shape's first σ (other σ
    only rescale the figure), and the elements, eigenvalues and densities at every σ. On request the same panels are
    drawn below those of a matrix of full rank.

    A scores tree gives the map of q-values of all statistics together, the number of heads that differ from random
    heads by each statistic, heat maps of z, ordered eigenvalues, statistics by layer, p-values, and the null's
    spectrum. If it has /matrices or /experts, it also gives their heat maps and the Weibull shape by layer. Every
    further circuit gives the figures of heads again, for example ``"ov-omnibus-map"``. On request there are each
    statistic by layer, of eigenvalues and of singular values; spectra of a layer's heads; statistics against the
    elements' width; widths by layer with entropy or divergence; maps of eigenvalues, densities and magnitudes, by head
    or by layer; elements of heads by layer; scatter plots, corner plots and probability plots.

    A trajectory gives statistics, spectra and the k–λ plane along its steps. A comparison shows which pairs of models
    differ, and their shapes and scales. Signal and noise gives the learned directions of each circuit and of whole
    matrices, and the exponents of their tails if these were computed. Effective depths give one figure of the middle
    layer: a row for each matrix, with the distance to each depth's law and the laws beside its spectrum. Compositions
    give the map of all pairs of heads, and the graph of the pairs that survive. Changes give the maps of their sizes,
    of each head's share of its matrix's change, and of old directions in them. A table of spectra of any ensemble gives
    the spectrum of each case, on shared axes; a table of elements gives their density.

    Args:
        table: a table of any of these kinds.
        theme: ``"light"``, ``"dark"``, ``"print"``, or a :class:`Theme`, whose ``with_style`` takes a style file.
        width: width of each figure in inches; if None, each figure has its own default.
        names: draw only these of :func:`figure_names`, with ``*`` for any characters and ``?`` for one; the standard
            figures if None. Names of which the table has no figure are ignored.

    Raises:
        ParameterError: no such table, no such theme, or a width that no figure can have.
    """
    return draw_figures(_recipes(table, figure_style(theme, width)), names)


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
    recipes = _recipes(table, figure_style(theme, width))
    if name not in recipes:
        raise ParameterError("name", name, f"one of {', '.join(recipes)}")
    if ax is None:
        return draw_figures({name: recipes[name]}, [name])[name].axes[0]
    draw = recipes[name].draw
    if not isinstance(draw, Single):
        raise ParameterError("ax", "axes", f"None: {name} lays out a figure of its own")
    return draw.on(ax)


@checked
def figure_names(table: xr.Dataset | xr.DataTree) -> dict[str, bool]:
    """Name every figure of a table, with True for the standard ones, which :func:`figures` draws by default.

    Raises:
        ParameterError: no such table.
    """
    return {name: recipe.standard for name, recipe in _recipes(table, figure_style("light", None)).items()}


def _recipes(table: xr.Dataset | xr.DataTree, style: FigureStyle) -> dict[str, FigureRecipe]:
    plain = "scores" if isinstance(table, xr.DataTree) else "baseline"
    folder = KINDS.get(str(table.attrs.get("kind")), plain)
    return import_module(f"rmtbase.results.{folder}.figures").figure_recipes(table, style)
