"""The figures of a table of any kind, by name."""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module

import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rmtbase.drawing.layout import Drawing, Look, Single, drawn, look_of
from rmtbase.drawing.theme import Theme
from rmtbase.errors import ParameterError
from rmtbase.results import KINDS


def figures(
    table: xr.Dataset | xr.DataTree,
    *,
    theme: Theme | str = "light",
    width: float | None = None,
    names: Collection[str] | None = None,
) -> dict[str, Figure]:
    """Draw the figures of a table by name: the standard ones of its kind, or those asked for.

    A baseline table gives the null's spectrum and its ordered eigenvalues for each shape, at its first σ: the others
    are the same picture, rescaled; and its elements, eigenvalues and densities at every σ. A scores tree gives the map
    of q-values of all statistics together, how many heads leave the null by each, heat maps of z, ordered eigenvalues,
    statistics by layer, p-values, and the null's spectrum; where it has /matrices or /experts, their heat maps too, and
    the Weibull shape by layer; of every further circuit those of heads again, ``"ov-omnibus-map"`` say. On request
    there are each statistic by layer, of eigenvalues and of singular values, spectra of a layer's heads, statistics
    against the elements' width, widths by layer with entropy or divergence, and maps of eigenvalues, densities and
    magnitudes, head by head or layer by layer, elements of heads by layer, scatters, corners and probability plots; of
    a baseline the same panels with a matrix of full rank above them. A
    trajectory gives statistics, spectra and the k–λ plane along its steps, a comparison which pairs of models differ,
    their shapes and scales. Signal and noise gives the learned directions of each circuit and of whole matrices,
    and the exponents of their tails where these were looked at.
    Effective depths give one picture of the middle layer: a row for each matrix, with the distance to each depth's law
    and the laws beside its spectrum. Compositions give the map of all pairs of heads, and the graph of those that
    survive. Changes give the maps of their shares along old directions. A table of spectra of any ensemble gives the
    spectrum of each case, on shared axes, and one of elements their density.

    Args:
        table: any of these.
        theme: ``"light"``, ``"dark"``, ``"print"``, or a :class:`Theme`, whose ``with_style`` takes a style file.
        width: of each figure in inches; as wide as suits it if None.
        names: draw these alone, of :func:`figure_names` of the table, with ``*`` and ``?`` for any characters and for
            one; the standard ones if None. A name that the table has no figure of is passed over.

    Raises:
        ParameterError: no such table, no such theme, or a width that no figure can have.
    """
    return drawn(_drawings(table, look_of(theme, width)), names)


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
        table: of any kind, as made or opened.
        name: one of :func:`figure_names`.
        ax: where to draw; a new figure if None. What lays out panels or bars needs a figure of its own.
        theme: as in :func:`figures`.
        width: as in :func:`figures`.

    Returns:
        The axes; of several panels the first. ``ax.figure`` is the figure.

    Raises:
        ParameterError: no such figure, or ``ax`` with one that lays out a figure of its own.
    """
    drawings = _drawings(table, look_of(theme, width))
    if name not in drawings:
        raise ParameterError("name", name, f"one of {', '.join(drawings)}")
    if ax is None:
        return drawn({name: drawings[name]}, [name])[name].axes[0]
    draw = drawings[name].draw
    if not isinstance(draw, Single):
        raise ParameterError("ax", "axes", f"None: {name} lays out a figure of its own")
    return draw.on(ax)


def figure_names(table: xr.Dataset | xr.DataTree) -> dict[str, bool]:
    """The name of every figure of a table, and whether it is among the standard ones, which :func:`figures` draws.

    Raises:
        ParameterError: no such table.
    """
    return {name: drawing.standard for name, drawing in _drawings(table, look_of("light", None)).items()}


def _drawings(table: xr.Dataset | xr.DataTree, look: Look) -> dict[str, Drawing]:
    if not isinstance(table, xr.Dataset | xr.DataTree):
        raise ParameterError("table", type(table).__name__, "a table or a scores tree; open a file by open_table")
    plain = "scores" if isinstance(table, xr.DataTree) else "baseline"
    folder = KINDS.get(str(table.attrs.get("kind")), plain)
    return import_module(f"rmtbase.results.{folder}.figures").drawings(table, look)
