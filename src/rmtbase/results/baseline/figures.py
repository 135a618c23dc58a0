"""Figures of a table of draws, the spectrum of any ensemble with its limiting law, and the panels of a baseline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, MaxNLocator
from scipy import stats

from rmtbase.drawing.axes import Around, grid_of_axes, looks, new_figure, panel, statistic_label
from rmtbase.drawing.figure import ThemedFigure
from rmtbase.drawing.layout import Custom, FigureRecipe, FigureStyle, Panels, Single, legend_of_all
from rmtbase.drawing.null_curves import (
    DIMENSIONLESS,
    Histogram,
    add_density,
    case_name,
    eigenvalue_label,
    null_spectrum,
)
from rmtbase.drawing.scales import log_axis, prefer_log
from rmtbase.drawing.theme import Theme
from rmtbase.errors import ParameterError
from rmtbase.laws import GaussianChain, low_rank_product, product_element
from rmtbase.results.scores.figures._eigenvalues import ordered_eigenvalues

_UNSEEN = 1e-3  # share of the smallest eigenvalues that is left out of the figure
_MARGIN, _DENSITY_MARGIN = 1.05, 2.0  # of the axes of eigenvalues and of densities of elements, as factors
_PANELS = 12  # in one figure of spectra
_FLAT = 8.0  # ratio of heights above which panels share a logarithmic axis
_PROPERTIES = ("std", "histogram_entropy", "histogram_kl")
_MOST = 10  # cases on one pair of axes
_REACH = 4.0  # half-width of the axis, in standard deviations of the widest law
_POINTS = 401
_PANEL, _NARROWEST = 4.2, 3.2  # inches
_NEAR_ZERO = 1e-4  # left end of the axis for a spectrum that begins at zero, as a share of its upper edge
_BAND = (0.025, 0.975)
_FAR_APART = 6.0  # ratio of upper edges above which spectra share a logarithmic axis


@panel
def ensemble_spectrum(ax: Axes, theme: Theme, table: xr.Dataset, case: int = 0) -> Around:
    """Draw the density of ln λ in units of its mean, without the smallest 0.1 %: Monte Carlo, and the limiting law."""
    row = table.isel(case=case)
    unit, histogram, law = _curves(row)
    left, right, top = spectrum_limits(row)
    centre = np.sqrt(histogram.edges[1:] * histogram.edges[:-1])
    # The outline shows a spectrum that is narrower than a pixel, such as that of an orthogonal matrix.
    add_density(ax, theme, histogram, centre, outline=1.0)
    if np.isfinite(law).any():
        ax.plot(centre, law, color=theme.free_law, linewidth=1.6, label="limiting law")
        for edge in (float(row["edge_lower"]), float(row["edge_upper"])):
            if edge > 0:
                ax.axvline(edge / unit, color=theme.free_law, linewidth=1.2, linestyle=":")
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(LogLocator(numticks=7))
    ax.set_xlim(left, right)
    ax.set_ylim(0.0, top)
    x_label = r"eigenvalue over their mean, $\lambda/\langle\lambda\rangle$"
    return Around(case_name(row), x_label, r"density per unit of $\ln\lambda$")


def spectrum_limits(row: xr.Dataset) -> tuple[float, float, float]:
    """Return the axis limits of :func:`ensemble_spectrum` for one case: left, right and top."""
    _, (edges, density, _), law = _curves(row)
    below = np.cumsum(density * np.diff(np.log(edges)))
    shown = np.flatnonzero((below >= _UNSEEN * below[-1]) & (density > 0))
    top = 1.05 * float(np.nanmax(np.fmax(density, law)))
    return float(edges[shown[0]]) / _MARGIN, float(edges[shown[-1] + 1]) * _MARGIN, top


def _curves(row: xr.Dataset) -> tuple[float, Histogram, np.ndarray]:
    """Return the mean eigenvalue (or median trace over the rank), the histogram of ln λ in its units, and the law."""
    trace = row.sel(statistic="trace")
    center = trace["mean"] if np.isfinite(trace["mean"]) else trace["quantile"].sel(probability=0.5)
    unit = float(center) / int(row["rank"])
    edges = row["bin_edge"].values
    per_log = np.diff(edges) / np.diff(np.log(edges))
    density, error, law = (row[name].values * per_log for name in ("density", "density_standard_error", "density_law"))
    return unit, Histogram(edges / unit, density, error), law


@panel
def element_density(ax: Axes, theme: Theme, table: xr.Dataset, case: int = 0) -> Around:
    """Draw the density of an element in units of its standard deviation: Monte Carlo, and the law."""
    row = table.isel(case=case)
    unit = _unit(row)
    edges = row["bin_edge"].values / unit
    density, error, law = (row[name].values * unit for name in ("density", "density_standard_error", "density_law"))
    centre = 0.5 * (edges[1:] + edges[:-1])
    add_density(ax, theme, Histogram(edges, density, error), centre)
    if np.isfinite(law).any():
        ax.plot(centre, np.where(law > 0, law, np.nan), color=theme.free_law, linewidth=1.6, label="law of one element")
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(numticks=7))
    ax.set_xlim(edges[0], edges[-1])
    ax.set_ylim(density_limits(row))
    x_label = r"element over its standard deviation, $w/\sigma_w$"
    return Around(case_name(row), x_label, r"density of $w/\sigma_w$")


def density_limits(row: xr.Dataset) -> tuple[float, float]:
    """Return the limits of the density axis of :func:`element_density`, beyond all nonzero densities of a case."""
    unit = _unit(row)
    simulated, law = (row[name].values[row[name].values > 0] * unit for name in ("density", "density_law"))
    if not simulated.size:
        return 1 / _DENSITY_MARGIN, _DENSITY_MARGIN
    highest = max(simulated.max(), law.max(initial=0.0))
    return float(simulated.min()) / _DENSITY_MARGIN, float(highest) * _DENSITY_MARGIN


def _unit(row: xr.Dataset) -> float:
    spread = row["mean"].where(row["statistic"] == "std", drop=True).values
    return float(spread[0]) if spread.size and np.isfinite(spread[0]) and spread[0] > 0 else 1.0


@panel
def element_property(ax: Axes, theme: Theme, table: xr.Dataset, statistic: str) -> Around:
    """Draw one statistic of the elements of random matrices against d_head: Monte Carlo, and the analytic value."""
    size = table["d_head"].values.astype(float)
    order = np.argsort(size)
    row = table.isel(case=order).sel(statistic=statistic)
    analytic = row["analytic_mean"].values
    if np.isfinite(analytic).any():
        ax.plot(size[order], analytic, color=theme.free_law, linestyle="--", linewidth=1.4, label="analytic")
    ax.errorbar(
        size[order], row["mean"].values, row["standard_error"].values, color=theme.observed, linestyle="none",
        marker="o", markersize=4, label="Monte Carlo ± standard error",
    )  # fmt: skip
    ax.set_xscale("log")
    if prefer_log(row["mean"].values):
        ax.set_yscale("log")
    return Around("", statistic_label("d_head"), statistic_label(statistic))


class _Case(NamedTuple):
    row: xr.Dataset
    keywords: dict[str, Any]
    drawn: dict[str, Any]
    spread: float  # standard deviation of an element of the matrix W of full rank
    square: GaussianChain  # law of the eigenvalues of WᵀW


@panel
def element_laws(ax: Axes, theme: Theme, table: xr.Dataset, full_rank: bool = False, heading: str = "") -> Around:
    """Draw the exact law of one element of W_QK for every case of a baseline table."""
    cases = list(_cases(table, theme))
    laws: list[Any] = [
        stats.norm(scale=case.spread) if full_rank else product_element(**case.keywords) for case in cases
    ]
    widest = max(law.std() for law in laws)
    x = np.union1d(np.linspace(-_REACH, _REACH, _POINTS) * widest, np.linspace(-_REACH, _REACH, _POINTS) * 0.1 * widest)
    for case, law in zip(cases, laws, strict=True):
        ax.plot(x, law.pdf(x), **case.drawn)
    ax.set_xlim(x[0], x[-1])
    ax.set_ylim(bottom=0.0)
    over = r" / \sqrt{d}" if table.attrs["normalization"] == "sqrt_d" else ""
    matrix = "W" if full_rank else "W_{QK}"
    label = rf"element of ${matrix}{over}$"
    return Around(f"{heading}elements", label, "density of the element", unit=DIMENSIONLESS)


@panel
def eigenvalues_by_rank(
    ax: Axes, theme: Theme, table: xr.Dataset, full_rank: bool = False, heading: str = ""
) -> Around:
    """Draw mean and central 95 % of each ordered eigenvalue up to d_head; of full rank the quantiles of the law."""
    cases = list(_cases(table, theme))
    probability = table["probability"].values
    places = [int(np.argmin(np.abs(probability - level))) for level in _BAND]
    largest, means = 0, []
    for case in cases:
        if full_rank:
            d_model = int(case.row["d_model"])
            rank = np.unique(np.geomspace(1, d_model, _POINTS).round())
            means.append(case.square.ppf(1.0 - (rank - 0.5) / d_model))
            largest = max(largest, d_model)
            ax.plot(rank, means[-1], **case.drawn)
            continue
        d_head = int(case.row["d_head"])
        rank, mean = np.arange(1, d_head + 1), case.row["eigenvalue_mean"].values[:d_head]
        low, high = (case.row["eigenvalue_quantile"].values[:d_head, place] for place in places)
        ax.fill_between(rank, low, high, color=case.drawn["color"], alpha=0.25, linewidth=0)
        ax.plot(rank, mean, **case.drawn)
        means.append(mean)
        largest = max(largest, d_head)
    if prefer_log(*means) and not full_rank:
        log_axis(ax)
    else:
        ax.set_ylim(bottom=0.0)
    ax.set_xlim(1 - 0.02 * largest, 1.02 * largest)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    title = "eigenvalues, by the law" if full_rank else "eigenvalues, mean and 95 %"
    return Around(f"{heading}{title}", "rank $k$ of the eigenvalue, largest first", r"eigenvalue $\lambda_k$")


@panel
def spectral_densities(ax: Axes, theme: Theme, table: xr.Dataset, full_rank: bool = False, heading: str = "") -> Around:
    """Draw the density of the eigenvalues, simulated and by its law, on a logarithmic axis if far apart."""
    cases = list(_cases(table, theme))
    laws = [case.square if full_rank else low_rank_product(**case.keywords) for case in cases]
    ends = np.array([law.support for law in laws])
    # A spectrum that begins at zero has an unbounded density there; the density of ln λ can be shown.
    far_apart = ends[:, 0].min() <= 0 or ends[:, 1].max() > _FAR_APART * ends[:, 1].min()
    for case, law in zip(cases, laws, strict=True):
        lower, upper = law.support
        x = lower + (upper - lower) * 0.5 * (1.0 - np.cos(np.linspace(0.0, np.pi, _POINTS)))
        x = x if lower > 0 else np.geomspace(_NEAR_ZERO, 1.0, 4 * _POINTS) * upper
        edges, density, factor = case.row["bin_edge"].values, case.row["density"].values, np.ones(_POINTS)
        if far_apart:  # so that equal areas are equal shares of the eigenvalues on a logarithmic axis, too
            edges, density = edges[edges > 0], density[edges[:-1] > 0]
            density = density * np.diff(edges) / np.diff(np.log(edges))
            factor = x
        if not full_rank:
            ax.stairs(density, edges, fill=True, color=case.drawn["color"], alpha=0.3, linewidth=0)
        y = np.asarray(law.pdf(x)) * factor
        ax.plot(x[np.isfinite(y)], y[np.isfinite(y)], **case.drawn)
    if far_apart:
        ax.set_xscale("log")
        if ends[:, 0].min() <= 0:
            ax.set_xlim(_NEAR_ZERO * ends[:, 1].min(), 2.0 * ends[:, 1].max())
    else:
        ax.set_xlim(left=0.0)
    ax.set_ylim(bottom=0.0)
    title = "spectral density: the law" if full_rank else "spectral density: simulated (filled), law (line)"
    label = eigenvalue_label(str(table.attrs["normalization"]), **({"matrix": "W"} if full_rank else {}))
    density = r"density per unit of $\ln\lambda$" if far_apart else r"density of $\lambda$"
    return Around(f"{heading}{title}", label, density, unit=DIMENSIONLESS)


def baseline_panels(table: xr.Dataset, style: FigureStyle, with_full_rank: bool = False) -> ThemedFigure:
    """Draw the three panels side by side, or below each other if narrow; those of full rank come first."""
    kinds = (True, False) if with_full_rank else (False,)
    width = style.width or 3 * _PANEL
    columns = 3 if width >= 3 * _NARROWEST else 1
    rows = 3 * len(kinds) // columns
    figure = new_figure(style.theme, width, (3.6 if columns == 3 else 3.0) * rows)
    grid = grid_of_axes(figure, style.theme, rows, columns)
    plots = product(kinds, (element_laws, eigenvalues_by_rank, spectral_densities))
    for ax, (full_rank, plot) in zip(grid.flat, plots, strict=True):
        heading = ("$W$ of full rank: " if full_rank else "$W_{QK}$: ") if with_full_rank else ""
        plot(table, full_rank, heading, ax=ax, theme=style.theme, legend=False)
    legend_of_all(figure, style.theme)
    return figure


def _cases(table: xr.Dataset, theme: Theme) -> Iterator[_Case]:
    """Yield each case, labelled by the values in which the cases differ."""
    names = ("d_model", "d_head", "sigma_q", "sigma_k")
    columns = {name: table[name].values[:_MOST].tolist() for name in names}
    if columns["sigma_q"] == columns["sigma_k"]:
        columns = {"d_model": columns["d_model"], "d_head": columns["d_head"], "sigma": columns["sigma_q"]}
    telling = {name: values for name, values in columns.items() if len(set(values)) > 1} or columns
    words = {"d_model": "width", "d_head": "head dimension"}
    words |= {"sigma": r"$\sigma$", "sigma_q": r"$\sigma_Q$", "sigma_k": r"$\sigma_K$"}
    for case, look in enumerate(looks(theme, len(columns["d_model"]))):
        row = table.isel(case=case)
        label = ", ".join(f"{words[name]} {values[case]:g}" for name, values in telling.items())
        keywords = {name: row[name].item() for name in names} | {"normalization": str(table.attrs["normalization"])}
        over = row["d_model"].item() ** -0.5 if keywords["normalization"] == "sqrt_d" else 1.0
        spread = over * float(np.sqrt(row["sigma_q"].item() * row["sigma_k"].item()))
        square = GaussianChain(dims=(row["d_model"].item(),) * 2, sigmas=(spread,), normalization="none")
        drawn = {"color": look.colour, "linestyle": look.style, "linewidth": 1.5, "label": label}
        yield _Case(row, keywords, drawn, spread, square)


def figure_recipes(table: xr.Dataset) -> dict[str, FigureRecipe]:
    """Map the names of the figures of a table to their recipes."""
    if "case" not in table.dims:
        raise ParameterError("table", sorted(map(str, table.dims)), "a baseline table (dim case) or a scores tree")
    if "density_law" in table:
        if "share_outside" not in table:
            return _of_cases(table, ensemble_spectrum, _share_spectra, "spectra")
        recipes = _of_cases(table, element_density, _share_densities, "elements")
        options = [{"statistic": name} for name in _PROPERTIES if name in table["statistic"].values]
        sizes = table["d_head"].values if "d_head" in table else np.empty(0)
        if options and np.unique(sizes[np.isfinite(sizes)]).size > 1:
            layout = {"columns": len(options), "panel": 4.0, "title": "", "standard": False}
            recipes["element-properties"] = Panels(element_property, table, options, **layout)
        return recipes
    if "bin_edge" not in table:
        raise ParameterError("table", table.attrs.get("kind"), "a baseline table: an atlas has no pictures of its own")
    recipes: dict[str, FigureRecipe] = {}
    singular: dict[str, FigureRecipe] = {}
    for case in range(table.sizes["case"]):  # the first of each shape
        shape, options = "x".join(str(table[name].values[case]) for name in ("d_model", "d_head")), {"case": case}
        recipes.setdefault(f"null-spectrum-{shape}", Single(null_spectrum, table, options))
        recipes.setdefault(f"ordered-eigenvalues-{shape}", Single(ordered_eigenvalues, table, options))
        of_singular = Single(null_spectrum, table, {**options, "singular_values": True}, standard=False)
        singular.setdefault(f"null-singular-values-{shape}", of_singular)
    recipes["baseline"] = Custom(partial(baseline_panels, table))
    recipes["baseline-full-rank"] = Custom(partial(baseline_panels, table, with_full_rank=True), standard=False)
    return recipes | singular


def _of_cases(table: xr.Dataset, plot: Any, share_axes: Any, name: str) -> dict[str, FigureRecipe]:
    """Make figures with a panel for each case, which share their axes."""

    def draw(cases: Sequence[int], style: FigureStyle) -> ThemedFigure:
        figure = Panels(plot, table, [{"case": case} for case in cases], 3, share_y=True, title="").draw(style)
        share_axes(figure.axes, [table.isel(case=case) for case in cases])
        legend_of_all(figure, style.theme)  # a case without a law has fewer lines
        return figure

    cases = range(table.sizes["case"])
    pages = [cases[first : first + _PANELS] for first in range(0, len(cases), _PANELS)]
    return {
        name if len(pages) == 1 else f"{name}-{number}": Custom(partial(draw, page))
        for number, page in enumerate(pages, 1)
    }


def _share_densities(axes: Sequence[Axes], rows: Sequence[xr.Dataset]) -> None:
    low, high = zip(*(density_limits(row) for row in rows), strict=True)
    axes[0].set_ylim(min(low), max(high))


def _share_spectra(axes: Sequence[Axes], rows: Sequence[xr.Dataset]) -> None:
    left, right, top = zip(*(spectrum_limits(row) for row in rows), strict=True)
    for ax in axes:
        ax.set_xlim(min(left), max(right))
        if max(top) > _FLAT * min(top):
            ax.set_yscale("log")
            ax.set_ylim(min(top) / 1e3, 1.5 * max(top))
        else:
            ax.set_ylim(0.0, max(top))
