"""Whole figures: panels that share their axes, and the standard set of a table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rmtbase.errors import ParameterError
from rmtbase.plots._axes import (
    add_legend,
    fit_texts,
    legend_columns,
    legend_height,
    literal,
    matrices_of,
    model_title,
    new_axes,
    new_figure,
    panel_size,
    styled,
    titled,
)
from rmtbase.plots._effective_depth import depth_profile, depth_spectrum
from rmtbase.plots._element_density import density_limits, element_density
from rmtbase.plots._ensemble_spectrum import ensemble_spectrum, spectrum_limits
from rmtbase.plots._flagged_by_statistic import flagged_by_statistic
from rmtbase.plots._heatmaps import SCALES, expert_z_heatmap, matrix_z_heatmap, omnibus_heatmap, z_colorbar, z_heatmap
from rmtbase.plots._null_spectrum import null_spectrum
from rmtbase.plots._ordered_eigenvalues import ordered_eigenvalues
from rmtbase.plots._p_value_qq import p_value_qq
from rmtbase.plots._picture import Picture, Pictures
from rmtbase.plots._statistic_by_layer import statistic_by_layer
from rmtbase.plots._theme import Theme, as_theme
from rmtbase.scoring import circuit_scores, circuits_of, require_scores
from rmtbase.statistics import ELEMENT_STATISTICS
from rmtbase.tables import null_method, shapes_of

MAIN_STATISTICS = ("normalized_participation_ratio", "effective_rank", "largest_eigenvalue", "log_determinant")
"""What the standard figures of a model show: how many directions carry the spectrum (on λ and on s), its largest
eigenvalue, and all of them together."""

_PANELS = 12  # of one figure of spectra
_FLAT = 8.0  # times: heights of panels further apart share a logarithmic axis
_PANEL, _NARROWEST = 4.8, 2.6  # inches: a panel's width unless told, and the least
_MOST_COLUMNS = 4
_SMALL_PRINT = 5.0  # inches: narrower figures have smaller letters
_SMALLER = {"font.size": 8.5}
_SCALE, _UPRIGHT = 4.2, 0.8  # inches: the least of a colour scale of z and its titles; of upright names
_WIDTHS = (2.0, 40.0)  # inches, of a figure


class _Look(NamedTuple):
    """How all the figures of a set look: theme, and width in inches where one is asked for."""

    theme: Theme
    width: float | None


def compare(
    plot: Callable[..., Axes],
    tables: Mapping[str, xr.Dataset | xr.DataTree],
    *,
    theme: Theme | str = "light",
    width: float | None = None,
    **options: Any,
) -> Figure:
    """Draw several tables beside each other with one plot function, on shared axes, so that panels can be compared.

    Args:
        plot: a function of this room, ``statistic_by_layer`` say, but not ``flagged_by_statistic``, which sorts the
            bars of each table by themselves.
        tables: what to draw by title: models, revisions or baselines. More than four take further rows.
        theme: colours, or their name.
        width: of the figure in inches.
        **options: passed on to ``plot``.

    Raises:
        ParameterError: no tables, a plot whose axes cannot be shared, or what ``plot`` raises.
    """
    if not tables:
        raise ParameterError("tables", tables, "at least one, by title")
    if plot is flagged_by_statistic:
        raise ParameterError("plot", plot.__name__, "one whose axes several tables can share")
    look = _look(theme, width)
    colorbar = SCALES.get(plot)
    panels = {title: {**options, "table": table} for title, table in tables.items()}
    rows = -(-len(panels) // _MOST_COLUMNS)
    plain = partial(plot, **{"colorbar" if colorbar else "legend": False})
    figure = _panels(plain, panels, look, -(-len(panels) // rows), share_y=True)
    for ax, title in zip(figure.axes, panels, strict=True):
        what, *facts = ax.get_title().split("\n")
        titled(ax, "\n".join([literal(title), *facts]), look.theme)
        if colorbar:
            figure.suptitle(what, fontsize=look.theme.points("figure.titlesize"), color=look.theme.text)
    if colorbar:
        colorbar(figure.axes, look.theme)
    else:
        _legend(figure, look.theme)
    fit_texts(figure)
    return figure


def figures(
    table: xr.Dataset | xr.DataTree,
    *,
    theme: Theme | str = "light",
    width: float | None = None,
    names: Collection[str] | None = None,
) -> dict[str, Figure]:
    """Draw the standard figures of a baseline table, of effective depths or of a scores tree, by name.

    A baseline table gives the null's spectrum and its ordered eigenvalues for each shape, at its first σ: the others
    are the same picture, rescaled. A scores tree gives the map of q-values of all statistics together, how many heads
    leave the null by each, heat maps of z, ordered eigenvalues, statistics by layer, p-values, and the null's spectrum;
    where it has /matrices or /experts, their heat maps too; of every further circuit those of heads again,
    ``"ov-omnibus-map"`` say. Effective depths give one picture of the middle layer: a row for each matrix, with the
    distance to each depth's law and the laws beside its spectrum. A table of spectra of any ensemble gives the spectrum
    of each case, on shared axes, and one of elements their density.

    Args:
        table: any of these.
        theme: ``"light"``, ``"dark"``, ``"print"``, or a :class:`Theme`, whose ``with_style`` takes a style file.
        width: of each figure in inches; as wide as suits it if None.
        names: of a scores tree draw these alone; all if None.

    Raises:
        ParameterError: no such table, no such theme, or a width that no figure can have.
    """
    named = _figures(table, _look(theme, width), names)
    for figure in named.values():
        fit_texts(figure)
    return Pictures(named)


def _look(theme: Theme | str, width: float | None) -> _Look:
    theme = as_theme(theme)
    if width is not None:
        if not _WIDTHS[0] <= width <= _WIDTHS[1]:
            raise ParameterError("width", width, f"{_WIDTHS[0]:g} to {_WIDTHS[1]:g} inches")
        if width < _SMALL_PRINT:
            theme = replace(theme, settings={**_SMALLER, **theme.settings})
    return _Look(theme, width)


def _figures(table: xr.Dataset | xr.DataTree, look: _Look, names: Collection[str] | None) -> dict[str, Picture]:
    if isinstance(table, xr.DataTree):
        require_scores(table)
        return _of_scores(table, look, names)
    if not isinstance(table, xr.Dataset):
        raise ParameterError("table", type(table).__name__, "a table or a scores tree; open a file by open_table")
    if "distance_profile" in table:
        return {"effective-depth": _of_depths(table, look)}
    if "case" not in table.dims:
        raise ParameterError("table", sorted(map(str, table.dims)), "a baseline table (dim case) or a scores tree")
    if "density_law" in table:
        return _of_elements(table, look) if "share_outside" in table else _of_spectra(table, look)
    if "bin_edge" not in table:
        raise ParameterError("table", table.attrs.get("kind"), "a baseline table: an atlas has no pictures of its own")
    first: dict[tuple[int, int], int] = {}
    for case, shape in enumerate(zip(table["d_model"].values.tolist(), table["d_head"].values.tolist(), strict=True)):
        first.setdefault(shape, case)
    named = {}
    for (d_model, d_head), case in first.items():
        named[f"null-spectrum-{d_model}x{d_head}"] = _single(null_spectrum, look, table, case=case)
        named[f"ordered-eigenvalues-{d_model}x{d_head}"] = _single(ordered_eigenvalues, look, table, case=case)
    return named


def _of_spectra(table: xr.Dataset, look: _Look) -> dict[str, Picture]:
    def share_limits(panels: Sequence[Axes], rows: Sequence[xr.Dataset]) -> None:
        # One range of x and one of y for all; y is logarithmic where the highest would leave the lowest flat.
        left, right, top = zip(*map(spectrum_limits, rows), strict=True)
        for ax in panels:
            ax.set_xlim(min(left), max(right))
            if max(top) > _FLAT * min(top):
                ax.set_yscale("log")
                ax.set_ylim(min(top) / 1e3, 1.5 * max(top))
            else:
                ax.set_ylim(0.0, max(top))

    return _pages(ensemble_spectrum, table, "spectra", look, share_limits)


def _of_elements(table: xr.Dataset, look: _Look) -> dict[str, Picture]:
    def share_limits(panels: Sequence[Axes], rows: Sequence[xr.Dataset]) -> None:
        low, high = zip(*map(density_limits, rows), strict=True)
        panels[0].set_ylim(min(low), max(high))

    return _pages(element_density, table, "elements", look, share_limits)


def _pages(
    plot: Callable[..., Axes],
    table: xr.Dataset,
    name: str,
    look: _Look,
    share_limits: Callable[[Sequence[Axes], Sequence[xr.Dataset]], None],
) -> dict[str, Picture]:
    """A panel for each case, on axes that those of a page share."""
    cases = range(table.sizes["case"])
    pages = [cases[first : first + _PANELS] for first in range(0, len(cases), _PANELS)]
    named = {}
    for number, page in enumerate(pages, 1):
        panels = {str(case): {"table": table, "case": case} for case in page}
        figure = _panels(partial(plot, legend=False), panels, look, 3, share_y=True)
        share_limits(figure.axes, [table.isel(case=case) for case in page])
        _legend(figure, look.theme)  # a case without a law has fewer lines
        named[name if len(pages) == 1 else f"{name}-{number}"] = figure
    return named


def _of_scores(tree: xr.DataTree, look: _Look, wanted: Collection[str] | None) -> dict[str, Picture]:
    drawers: dict[str, Callable[[], Picture]] = {}
    for circuit in circuits_of(tree):
        of_heads = _of_heads(circuit_scores(tree, circuit), look)
        drawers |= of_heads if circuit == "qk" else {f"{circuit}-{name}": draw for name, draw in of_heads.items()}
    if "matrices" in tree.children:
        matrices = matrices_of(tree)
        held, layers = matrices["statistic"].values.tolist(), matrices.sizes["layer"]
        shown = tuple(name for name in ELEMENT_STATISTICS if name in held)
        drawers["matrix-z-heat-map"] = partial(_heat_maps, matrix_z_heatmap, tree, "statistic", shown, look, layers)
    if "experts" in tree.children:
        experts = matrices_of(tree, "experts")
        held, layers = experts["component"].values.tolist(), experts.sizes["layer"]
        drawers["expert-z-heat-map"] = partial(_heat_maps, expert_z_heatmap, tree, "component", held, look, layers)
    return {name: draw() for name, draw in drawers.items() if wanted is None or name in wanted}


def _of_heads(tree: xr.DataTree, look: _Look) -> dict[str, Callable[[], Picture]]:
    """What draws each picture of the heads of one circuit."""
    layers = tree["heads"].sizes.get("layer", 1)
    drawers = {
        "omnibus-map": partial(_single, omnibus_heatmap, look, tree, 6.8, height=_map_height(layers) + 0.3),
        "heads-by-statistic": partial(_bars, tree, look),
        "z-heat-map": lambda: _heat_maps(z_heatmap, tree, "statistic", _main_statistics(tree), look, layers),
        "ordered-eigenvalues": partial(_single, ordered_eigenvalues, look, tree, 8.0),
        "statistics-by-layer": partial(_by_layer, tree, look),
        "p-value-qq": partial(_single, p_value_qq, look, tree, 8.0),
    }
    if null_method(tree.attrs) != "resampled":
        drawers["null-spectrum"] = partial(_null_spectra, tree, look)
    return drawers


def _null_spectra(tree: xr.DataTree, look: _Look) -> Picture:
    """The null of each shape that heads have, on axes of its own."""
    shapes = shapes_of(tree)[:_PANELS]
    if len(shapes) == 1:
        return _single(null_spectrum, look, tree, 8.0)
    panels = {str(dims): {"table": tree, "case": case} for case, dims in enumerate(shapes)}
    title = model_title(tree)
    figure = _panels(partial(null_spectrum, legend=False), panels, look, 2, share_y=False, title=title, share_x=False)
    _legend_each(figure, look.theme)
    return figure


def _of_depths(table: xr.Dataset, look: _Look) -> Picture:
    """Rows on shared axes: one scale for all distances, one for all spectra."""
    components = table["component"].values.tolist()
    width = look.width or 10.5
    columns = 2 if width >= 2 * _NARROWEST else 1
    rows = len(components) * 2 // columns
    figure = new_figure(look.theme, width, 2.9 * rows, model_title(table))
    grid = figure.subplots(rows, columns, sharex="col" if columns == 2 else False, squeeze=False)
    places = iter(grid.flat)
    for component in components:
        for plot in (depth_profile, depth_spectrum):
            ax = styled(next(places), look.theme)
            plot(table, component=component, ax=ax, theme=look.theme)
            if columns == 2 and component != components[-1]:
                ax.set_xlabel("")
    return figure


def _main_statistics(tree: xr.DataTree) -> tuple[str, ...]:
    """:data:`MAIN_STATISTICS`, the trace in the place of one that the null holds fixed."""
    spread = tree["heads"].to_dataset()["null_std"]
    fixed, unscored = spread == 0, spread.isnull()
    held = spread["statistic"].values[(fixed.any(("layer", "head")) & (fixed | unscored).all(("layer", "head"))).values]
    return tuple("trace" if name in held else name for name in MAIN_STATISTICS)


def _single(
    plot: Callable[..., Axes],
    look: _Look,
    table: xr.Dataset | xr.DataTree,
    width: float = 7.0,
    height: float | None = None,
    **options: Any,
) -> Picture:
    """One pair of axes, as high as their width and their legend ask."""
    width = look.width or width
    figure = new_figure(look.theme, width, height or 0.9 + 0.48 * width, model_title(table))
    ax = plot(table, ax=new_axes(figure, look.theme), theme=look.theme, **options)
    figure.set_figheight(figure.get_figheight() + legend_height(ax, look.theme))
    return figure


def _bars(tree: xr.DataTree, look: _Look) -> Picture:
    """The bars of all statistics, far enough apart for their names."""
    figure = _single(flagged_by_statistic, look, tree)
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    lines = 1 + max(name.count("\n") for name in names)
    figure.set_figheight(1.0 + len(names) * (0.06 + 1.3 * lines * look.theme.points("xtick.labelsize") / 72))
    return figure


def _map_height(layers: int) -> float:
    return min(3.6, max(2.2, 1.0 + 0.22 * layers))


def _heat_maps(
    plot: Callable[..., Axes], tree: xr.DataTree, option: str, names: Sequence[str], look: _Look, layers: int
) -> Picture:
    """A panel for each value of one of the plot's options."""
    panels = {name: {"table": tree, option: name} for name in names}
    figure = _panels(
        partial(plot, colorbar=False),
        panels,
        look,
        2,
        share_y=True,
        height=_map_height(layers),
        title=model_title(tree),
    )
    upright = any(label.get_rotation() for ax in figure.axes for label in ax.get_xticklabels())
    figure.set_figheight(max(figure.get_figheight(), _SCALE) + (_UPRIGHT if upright else 0.0))
    z_colorbar(figure.axes, look.theme)
    return figure


def _by_layer(tree: xr.DataTree, look: _Look) -> Picture:
    panels = {name: {"table": tree, "statistic": name} for name in _main_statistics(tree)}
    plain = partial(statistic_by_layer, legend=False)
    figure = _panels(plain, panels, look, 2, share_y=False, title=model_title(tree))
    _legend(figure, look.theme)
    return figure


def _legend(figure: Picture, theme: Theme) -> None:
    """One legend below panels of which one says what all do; one below each where they differ."""
    handles, labels = max((ax.get_legend_handles_labels() for ax in figure.axes), key=lambda named: len(named[1]))
    if all(set(ax.get_legend_handles_labels()[1]) <= set(labels) for ax in figure.axes):
        place: dict[str, Any] = {"loc": "outside lower center"}
        place["ncols"] = legend_columns(labels, theme, figure.get_figwidth() - 0.3)
        size = theme.points("legend.fontsize")
        figure.legend(handles, labels, **place, fontsize=size, labelcolor=theme.text, frameon=False)
        return
    _legend_each(figure, theme)


def _legend_each(figure: Picture, theme: Theme) -> None:
    """A legend below each of the panels, which become as much higher."""
    for ax in figure.axes:
        add_legend(ax, theme)
    height = figure.get_figheight()
    rows = height / panel_size(figure.axes[0])[1]
    figure.set_figheight(height + rows * max(legend_height(ax, theme) for ax in figure.axes))


def _panels(
    plot: Callable[..., Axes],
    panels: Mapping[str, dict[str, Any]],
    look: _Look,
    columns: int,
    share_y: bool,
    height: float = 3.2,
    title: str = "",
    share_x: bool = True,
) -> Picture:
    """A grid of panels whose labels of a shared x axis are at the rim: below the lowest panel of each column."""
    columns = min(columns, len(panels))
    if look.width is not None:
        columns = min(columns, max(1, int(look.width / _NARROWEST)))
    width = look.width or max(6.4, _PANEL * columns)
    height *= min(1.0, max(0.72, width / columns / _PANEL))
    rows = -(-len(panels) // columns)
    figure = new_figure(look.theme, width, height * rows, title)
    grid = figure.subplots(rows, columns, sharex=share_x, sharey=share_y, squeeze=False)
    for place, (ax, options) in enumerate(zip(grid.flat, panels.values(), strict=False)):
        options = dict(options)
        plot(options.pop("table"), ax=styled(ax, look.theme), theme=look.theme, **options)
        label = ax.get_xlabel()
        if share_y:
            ax.label_outer()
        is_lowest = place + columns >= len(panels)
        ax.set_xlabel(label if is_lowest or not share_x else "")
        if is_lowest:
            ax.tick_params(axis="x", labelbottom=True)
    for ax in list(grid.flat)[len(panels) :]:
        ax.remove()
    return figure
