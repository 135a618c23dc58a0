"""The null's spectrum: simulated where it was, free-product law, and the law that is often overlaid by mistake."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes

from rmtbase.errors import ParameterError
from rmtbase.laws import low_rank_product, naive_marchenko_pastur
from rmtbase.plots._axes import add_density, finished, null_of, own_axes, require_case
from rmtbase.plots._theme import LIGHT, Theme
from rmtbase.tables import null_method


class _Spectrum(NamedTuple):
    bin_edge: Float[np.ndarray, " edge"]
    density: Float[np.ndarray, " bin"]
    error: Float[np.ndarray, " bin"] | None
    free: Float[np.ndarray, " bin"]
    naive: Float[np.ndarray, " bin"]
    edges: tuple[float, float]
    title: str
    unit: str


def null_spectrum(
    table: xr.Dataset | xr.DataTree,
    case: int = 0,
    ax: Axes | None = None,
    theme: Theme = LIGHT,
    legend: bool = True,
) -> Axes:
    """Draw the density of the null's nonzero eigenvalues: Monte Carlo with its standard error, and two laws.

    Of an analytic null, which has no draws, the laws alone. The free-product law is the limit of W_QK's spectrum, and
    the vertical lines are its edges λ₋ and λ₊. The naive Marchenko–Pastur law is that of a single factor: too narrow,
    and drawn to show by how much.

    Args:
        table: a baseline table, or a scores tree (whose null is at σ = 1, raw product).
        case: which row of a baseline table.
        ax: where to draw; new axes if None.
        theme: colours.
        legend: whether to draw one.

    Returns:
        The axes: eigenvalue λ (dimensionless) against density (1/λ).

    Raises:
        ParameterError: no such case, a table without a null, or scores of heads that have a null each.
    """
    found = _of_tree(table) if isinstance(table, xr.DataTree) else _of_case(require_case(table, case), table.attrs)
    ax = own_axes(ax, theme)
    centre = (found.bin_edge[1:] + found.bin_edge[:-1]) / 2
    density = found.density
    if found.error is not None:
        add_density(ax, found.bin_edge, centre, density, found.error, theme, lowest=0.0)
    ax.plot(
        centre, found.naive, color=theme.naive, linewidth=1.6, linestyle=(0, (5, 2)),
        label="Marchenko–Pastur of one factor: too narrow",
    )  # fmt: skip
    ax.plot(centre, found.free, color=theme.free_law, linewidth=1.8, label="free-product law")
    lower, upper = found.edges
    edges = rf"its edges $\lambda_-$ = {lower:.4g}, $\lambda_+$ = {upper:.4g}"
    ax.axvline(lower, color=theme.free_law, linewidth=1.2, linestyle=":", label=edges)
    ax.axvline(upper, color=theme.free_law, linewidth=1.2, linestyle=":")
    places = np.flatnonzero(density > 0)
    first, last = float(found.bin_edge[places[0]]), float(found.bin_edge[places[-1] + 1])
    margin = 0.06 * (last - first)
    ax.set_xlim(max(0.0, min(first, lower) - margin), max(last, upper) + margin)
    top = max(one[np.isfinite(one)].max() for one in (density, found.free))
    ax.set_ylim(0.0, 1.3 * top)
    ax.set(xlabel=found.unit, ylabel=r"density ($1/\lambda$)")
    return finished(ax, theme, found.title, legend, "upper right")


def case_title(d_model: int, d_head: int, sigma_q: float, sigma_k: float) -> str:
    """The shape and the scale of a null, as a title."""
    sigma = rf"\sigma_Q = {sigma_q:g}, \sigma_K = {sigma_k:g}"
    if sigma_q == sigma_k:
        sigma = rf"\sigma_Q = \sigma_K = {sigma_q:g}"
    return f"Null of $W_{{QK}}$ at $d = {d_model}$, $h = {d_head}$, ${sigma}$"


def eigenvalue_label(normalization: str) -> str:
    """The axis of an eigenvalue, with its normalization and unit."""
    product = r"W_{QK}^{\top} W_{QK}"
    over = " / d" if normalization == "sqrt_d" else ""
    return rf"eigenvalue $\lambda$ of ${product}{over}$ (dimensionless)"


def _of_case(row: xr.Dataset, attributes: dict) -> _Spectrum:
    return _Spectrum(
        row["bin_edge"].values,
        row["density"].values,
        row["density_standard_error"].values,
        row["density_free"].values,
        row["density_marchenko_pastur"].values,
        (float(row["edge_lower"]), float(row["edge_upper"])),
        case_title(int(row["d_model"]), int(row["d_head"]), float(row["sigma_q"]), float(row["sigma_k"])),
        eigenvalue_label(attributes["normalization"]),
    )


def _of_tree(tree: xr.DataTree) -> _Spectrum:
    null = null_of(tree)
    if "density" not in null:
        raise ParameterError("table", "scores of heads that have a null each", "one null, of which there is a density")
    shape = int(tree.attrs["d_model"]), int(tree.attrs["d_head"])
    bin_edge = null["bin_edge"].values
    naive = np.diff(naive_marchenko_pastur(*shape, normalization="none").cdf(bin_edge)) / np.diff(bin_edge)
    lower, upper = low_rank_product(*shape, normalization="none").support
    simulated = null_method(tree.attrs) == "simulated"
    return _Spectrum(
        bin_edge,
        null["density" if simulated else "density_free"].values,
        null["density_standard_error"].values if simulated else None,
        null["density_free"].values,
        naive,
        (float(lower), float(upper)),
        case_title(*shape, 1.0, 1.0),
        eigenvalue_label("none"),
    )
