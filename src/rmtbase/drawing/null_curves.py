"""Spectrum of the null: simulated density, free-product law, and the law that is often overlaid by mistake."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes

from rmtbase.drawing.axes import add_density, finished, rounded, themed_axes
from rmtbase.drawing.groups import null_of, require_case
from rmtbase.drawing.theme import Theme
from rmtbase.errors import ParameterError
from rmtbase.laws import GaussianChain, low_rank_product, naive_marchenko_pastur
from rmtbase.tables import CIRCUITS, Circuit, circuit_of, shapes_of

_POINTS = 500  # number of points of a law's density
_SEEN = 1e-5  # least density on a logarithmic axis, relative to the highest


class _Spectrum(NamedTuple):
    bin_edge: Float[np.ndarray, " edge"]
    density: Float[np.ndarray, " bin"]
    error: Float[np.ndarray, " bin"] | None
    limit: GaussianChain | Float[np.ndarray, " bin"]
    naive: GaussianChain | None
    title: str
    unit: str
    unit_of_s: str


def null_spectrum(
    table: xr.Dataset | xr.DataTree,
    case: int = 0,
    *,
    singular_values: bool = False,
    ax: Axes | None = None,
    theme: Theme | str = "light",
    legend: bool = True,
) -> Axes:
    """Draw the density of the null's nonzero eigenvalues λ, or of s = √λ: Monte Carlo ± standard error, and two laws.

    An analytic null has no draws; then only the laws are drawn. The free-product law is the limit of W_QK's spectrum,
    and the vertical lines are its edges λ₋ and λ₊. The Marchenko–Pastur law is that of a single factor. For W_QK it is
    too narrow and drawn to show by how much; for a single matrix it is the limit. For matrices that are themselves
    products, the law of all their factors, if known, is drawn bin by bin; the other laws are exact densities, drawn
    from edge to edge. If the spectrum begins at zero, the density axis is logarithmic.

    The axes: eigenvalue λ or singular value s (dimensionless) against density (1/λ or 1/s).
    """
    is_tree = isinstance(table, xr.DataTree)
    found = _of_tree(table, case) if is_tree else _of_case(require_case(table, case), table.attrs)
    ax, theme = themed_axes(ax, theme, table)
    edges, density, error = found.bin_edge, found.density, found.error
    of_law, wider = np.asarray, np.ones(density.shape)
    if singular_values:
        of_law, wider = np.sqrt, np.diff(edges) / np.diff(np.sqrt(edges))
        edges, density, error = np.sqrt(edges), density * wider, None if error is None else error * wider
    places = np.flatnonzero(density > 0)
    first, last = float(edges[places[0]]), float(edges[places[-1] + 1])
    law = found.limit if isinstance(found.limit, GaussianChain) else None
    lower, upper = (first, last) if law is None else map(float, of_law(law.support))
    # If the smallest eigenvalues reach zero, the density is so steep that it hides all the rest on a linear axis.
    floor = 0.0 if lower > 0 else _SEEN * float(np.nanmax(density))
    if error is not None:
        add_density(ax, edges, (edges[1:] + edges[:-1]) / 2, density, error, theme, lowest=floor)
    highest = 0.0
    if found.naive is not None:
        naive_x, naive_y = _curve(found.naive, singular_values)
        highest = float(naive_y.max())
        ax.plot(
            naive_x, naive_y, color=theme.naive, linewidth=1.6, linestyle=(0, (5, 2)),
            label="Marchenko–Pastur (one factor)",
        )  # fmt: skip
    if law is not None:
        x, y = _curve(law, singular_values)
        highest = max(highest, float(y.max()))
        name = "free-product law" if len(law.dims) > 2 else "Marchenko–Pastur law"
        ax.plot(x, y, color=theme.free_law, linewidth=1.8, label=name)
        label = f"its edges, {rounded(lower, 4, [upper])} and {rounded(upper, 4, [lower])}"
        ax.axvline(lower, color=theme.free_law, linewidth=1.2, linestyle=":", label=label)
        ax.axvline(upper, color=theme.free_law, linewidth=1.2, linestyle=":")
    elif not isinstance(found.limit, GaussianChain) and np.isfinite(found.limit).all():
        limit = found.limit * wider
        highest = max(highest, float(np.max(limit)))
        ax.stairs(limit, edges, color=theme.free_law, linewidth=1.8, label="free-product law", baseline=None)
    margin = 0.04 * (last - first)
    ax.set_xlim(max(0.0, min(first, lower) - margin), max(last, upper) + margin)
    top = float(np.nanmax(density))
    if floor:
        ax.set_yscale("log")
        ax.set_ylim(floor, 2.0 * top)
    else:
        ax.set_ylim(0.0, 1.05 * max(top, highest))
    ax.set(xlabel=found.unit_of_s if singular_values else found.unit)
    ax.set_ylabel("density of $s$" if singular_values else r"density of $\lambda$")
    return finished(ax, theme, found.title, legend)


def _curve(
    law: GaussianChain, singular_values: bool
) -> tuple[Float[np.ndarray, " point"], Float[np.ndarray, " point"]]:
    """Return a law's density from edge to edge, with more points near the edges, where it is a square root."""
    lower, upper = law.support
    x = lower + (upper - lower) * 0.5 * (1.0 - np.cos(np.linspace(0.0, np.pi, _POINTS)))
    if singular_values:
        x = np.sqrt(x)
    y = np.asarray(law.pdf_singular_values(x) if singular_values else law.pdf(x))
    known = np.isfinite(y)
    return x[known], y[known]


def case_title(d_model: int, d_head: int, sigma_q: float, sigma_k: float) -> str:
    """Return a title with the shape and scale of a null."""
    sigma = rf"\sigma_Q = {sigma_q:g}, \sigma_K = {sigma_k:g}"
    if sigma_q == sigma_k:
        sigma = rf"\sigma_Q = \sigma_K = {sigma_q:g}"
    return f"Null of $W_{{QK}}$ at $d = {d_model}$, $h = {d_head}$, ${sigma}$"


def chain_title(what: str, circuit: Circuit, dims: Sequence[int]) -> str:
    """Return a title with what is shown and the sizes of the circuit."""
    if len(dims) == 2:
        return f"{what} at $h = {dims[0]}$, $d = {dims[1]}$"
    left, rank, right = dims
    if left == right:
        return f"{what} at $d = {left}$, $h = {rank}$"
    first, second = (factor.letter for factor in circuit.factors)
    return f"{what} at $d_{first} = {left}$, $h = {rank}$, $d_{second} = {right}$"


def eigenvalue_label(normalization: str, matrix: str = CIRCUITS["qk"].latex) -> str:
    """Return the label of an eigenvalue's axis, with normalization and unit."""
    product = rf"{matrix}^{{\top}} {matrix}"
    over = " / d" if normalization == "sqrt_d" else ""
    return rf"eigenvalue $\lambda$ of ${product}{over}$ (dimensionless)"


def singular_value_label(normalization: str, matrix: str = CIRCUITS["qk"].latex) -> str:
    """Return the label of a singular value's axis, with normalization and unit."""
    over = r" / \sqrt{d}" if normalization == "sqrt_d" else ""
    return rf"singular value $s$ of ${matrix}{over}$ (dimensionless)"


def _of_case(row: xr.Dataset, attributes: dict) -> _Spectrum:
    d_model, d_head, sigma_q, sigma_k = (row[name].item() for name in ("d_model", "d_head", "sigma_q", "sigma_k"))
    normalization = str(attributes["normalization"])
    free, naive = (
        law(d_model=d_model, d_head=d_head, sigma_q=sigma_q, sigma_k=sigma_k, normalization=normalization)
        for law in (low_rank_product, naive_marchenko_pastur)
    )
    return _Spectrum(
        row["bin_edge"].values,
        row["density"].values,
        row["density_standard_error"].values,
        free,
        naive,
        case_title(d_model, d_head, sigma_q, sigma_k),
        eigenvalue_label(normalization),
        singular_value_label(normalization),
    )


def _of_tree(tree: xr.DataTree, place: int) -> _Spectrum:
    null = null_of(tree)
    if "density" not in null:
        raise ParameterError(
            "table", "scores of heads that each have their own null", "a single null, with its density"
        )
    shapes, circuit = shapes_of(tree), circuit_of(tree.attrs)
    if not 0 <= place < len(shapes):
        raise ParameterError("case", place, f"0 to {len(shapes) - 1}, a shape of the heads")
    dims, simulated = shapes[place], str(tree.attrs["null_method"]) == "simulated"
    null = null.isel(shape=place) if "shape" in null.dims else null
    products = "null_scale" in tree["heads"].coords  # the heads have more factors than their sizes show
    is_square = len(dims) == 3 and dims[0] == dims[2] and not products
    title = chain_title(f"Null of ${circuit.latex}$", circuit, dims)
    return _Spectrum(
        null["bin_edge"].values,
        null["density" if simulated else "density_free"].values,
        null["density_standard_error"].values if simulated else None,
        null["density_free"].values if products else GaussianChain(dims=dims, normalization="none"),
        naive_marchenko_pastur(d_model=dims[0], d_head=dims[1], normalization="none") if is_square else None,
        case_title(dims[0], dims[1], 1.0, 1.0) if circuit.name == "qk" and is_square else title,
        eigenvalue_label("none", circuit.latex),
        singular_value_label("none", circuit.latex),
    )
