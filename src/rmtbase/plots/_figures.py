"""The figures of a table of any kind, by name."""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase

import xarray as xr
from matplotlib.figure import Figure

from rmtbase.errors import ParameterError
from rmtbase.plots._axes import fit_texts
from rmtbase.plots._changes import drawings_of_changes
from rmtbase.plots._figures_of_comparison import drawings_of_comparison
from rmtbase.plots._figures_of_scores import drawings_of_scores
from rmtbase.plots._figures_of_signal import drawings_of_signal
from rmtbase.plots._figures_of_tables import drawings_of_table
from rmtbase.plots._figures_of_trajectory import drawings_of_trajectory
from rmtbase.plots._layout import Drawing, Look, look_of
from rmtbase.plots._picture import Pictures
from rmtbase.plots._theme import Theme
from rmtbase.scoring import require_scores


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
    drawings = _drawings(table, look_of(theme, width))
    named = {
        name: drawing.draw()
        for name, drawing in drawings.items()
        if (drawing.standard if names is None else any(fnmatchcase(name, pattern) for pattern in names))
    }
    for figure in named.values():
        fit_texts(figure)
    return Pictures(named)


def figure_names(table: xr.Dataset | xr.DataTree) -> dict[str, bool]:
    """The name of every figure of a table, and whether it is among the standard ones, which :func:`figures` draws.

    Raises:
        ParameterError: no such table.
    """
    return {name: drawing.standard for name, drawing in _drawings(table, look_of("light", None)).items()}


def _drawings(table: xr.Dataset | xr.DataTree, look: Look) -> dict[str, Drawing]:
    if isinstance(table, xr.DataTree):
        if table.attrs.get("kind") == "trajectory":
            return drawings_of_trajectory(table, look)
        if table.attrs.get("kind") == "comparison":
            return drawings_of_comparison(table, look)
        if table.attrs.get("kind") == "changes":
            return drawings_of_changes(table, look)
        if table.attrs.get("kind") == "signal":
            return drawings_of_signal(table, look)
        require_scores(table)
        return drawings_of_scores(table, look)
    if not isinstance(table, xr.Dataset):
        raise ParameterError("table", type(table).__name__, "a table or a scores tree; open a file by open_table")
    return drawings_of_table(table, look)
