"""Figure of a baseline in three panels: elements, eigenvalues by rank, and spectral density, each with every case."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from scipy import stats

from rmtbase.drawing.axes import Around, grid_of_axes, looks, new_figure, panel
from rmtbase.drawing.figure import ThemedFigure
from rmtbase.drawing.layout import FigureStyle, legend_of_all
from rmtbase.drawing.null_curves import DIMENSIONLESS, eigenvalue_label
from rmtbase.drawing.scales import log_axis, prefer_log
from rmtbase.drawing.theme import Theme
from rmtbase.laws import GaussianChain, low_rank_product, product_element

_MOST = 10  # cases on one pair of axes
_REACH = 4.0  # half-width of the axis, in standard deviations of the widest law
_POINTS = 401
_PANEL = 4.2  # inches
_NARROWEST = 3.2
_NEAR_ZERO = 1e-4  # left end of the axis for a spectrum that begins at zero, as a share of its upper edge
_BAND = (0.025, 0.975)
_FAR_APART = 6.0  # ratio of upper edges above which spectra share a logarithmic axis


class _Case(NamedTuple):
    """Row of a baseline table, with the style in which it is drawn."""

    row: xr.Dataset
    keywords: dict[str, Any]
    drawn: dict[str, Any]

    @property
    def spread(self) -> float:
        """Standard deviation of an element of the matrix of full rank."""
        over = self.keywords["d_model"] ** -0.5 if self.keywords["normalization"] == "sqrt_d" else 1.0
        return over * float(np.sqrt(self.keywords["sigma_q"] * self.keywords["sigma_k"]))

    def square(self) -> GaussianChain:
        """Make the law of the eigenvalues of WᵀW for the matrix W of full rank."""
        d_model = self.keywords["d_model"]
        return GaussianChain(dims=(d_model, d_model), sigmas=(self.spread,), normalization="none")


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
    """Draw the mean and the central 95 % of each ordered eigenvalue up to d_head, beyond which all are zero.

    For the matrix of full rank the quantiles (k − ½)/d of the Marchenko–Pastur law are drawn.
    """
    cases = list(_cases(table, theme))
    probability = table["probability"].values
    places = [int(np.argmin(np.abs(probability - level))) for level in _BAND]
    largest, means = 0, []
    for case in cases:
        if full_rank:
            d_model = int(case.row["d_model"])
            rank = np.unique(np.geomspace(1, d_model, _POINTS).round())
            means.append(case.square().ppf(1.0 - (rank - 0.5) / d_model))
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
    laws = [case.square() if full_rank else low_rank_product(**case.keywords) for case in cases]
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
    """Draw the three panels side by side, or below each other if the figure is narrow.

    With a matrix of full rank its panels come first, and those of the products of low rank below them.
    """
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
    words = {
        "d_model": "width",
        "d_head": "head dimension",
        "sigma": r"$\sigma$",
        "sigma_q": r"$\sigma_Q$",
        "sigma_k": r"$\sigma_K$",
    }
    for case, look in enumerate(looks(theme, len(columns["d_model"]))):
        row = table.isel(case=case)
        label = ", ".join(f"{words[name]} {values[case]:g}" for name, values in telling.items())
        keywords = {name: row[name].item() for name in names} | {"normalization": str(table.attrs["normalization"])}
        yield _Case(row, keywords, {"color": look.colour, "linestyle": look.style, "linewidth": 1.5, "label": label})
