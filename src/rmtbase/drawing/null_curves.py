"""Spectrum of the null: simulated density, free-product law, and the law that is often overlaid by mistake."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes

from rmtbase.drawing.axes import Around, panel
from rmtbase.drawing.groups import null_of
from rmtbase.drawing.texts import literal, rounded
from rmtbase.drawing.theme import Theme
from rmtbase.laws import GaussianChain, low_rank_product, naive_marchenko_pastur
from rmtbase.tables import CIRCUITS, Circuit, circuit_of, shapes_of

DIMENSIONLESS = "dimensionless"
_POINTS = 500  # number of points of a law's density
_SEEN = 1e-5  # least density on a logarithmic axis, relative to the highest
_LONGEST_LINE, _MOST_LINES = 44, 6  # characters in a line of a title, and lines
_NOTHING = 1e-300  # a density below any that is shown


class Histogram(NamedTuple):
    """Simulated density in bins, with its standard error."""

    edges: Float[np.ndarray, " edge"]
    density: Float[np.ndarray, " bin"]
    error: Float[np.ndarray, " bin"]


def add_density(
    ax: Axes,
    theme: Theme,
    histogram: Histogram,
    centre: Float[np.ndarray, " bin"],
    outline: float = 0.0,
    lowest: float = _NOTHING,
) -> None:
    """Draw a simulated density as bars down to ``lowest``, with its standard error at the centres of visible ones."""
    edges, density, error = histogram
    ax.stairs(
        np.fmax(density, lowest), edges, baseline=lowest, fill=True, facecolor=theme.null, edgecolor=theme.null,
        linewidth=outline, alpha=0.35, label="Monte Carlo ± standard error",
    )  # fmt: skip
    seen = density > lowest
    reach = [np.minimum(error, density - lowest)[seen], error[seen]]
    ax.errorbar(centre[seen], density[seen], reach, fmt="none", ecolor=theme.null, elinewidth=1.1, capsize=0)


def case_name(row: xr.Dataset) -> str:
    """Return the name of a case's ensemble as a title, in lines of a panel's width."""
    lines = textwrap.wrap(str(row["name"].item()).replace("_", " "), _LONGEST_LINE)
    return "\n".join(map(literal, lines[:_MOST_LINES]))


@dataclass(frozen=True)
class _Null:
    """Null of one shape: its bins, densities and laws, and the texts around them."""

    edges: Float[np.ndarray, " edge"]
    density: Float[np.ndarray, " bin"]
    error: Float[np.ndarray, " bin"] | None
    limit: GaussianChain | Float[np.ndarray, " bin"]
    naive: GaussianChain | None
    title: str
    normalization: str
    matrix: str


@panel
def null_spectrum(
    ax: Axes, theme: Theme, table: xr.Dataset | xr.DataTree, case: int = 0, singular_values: bool = False
) -> Around:
    """Draw the density of the null's nonzero eigenvalues λ, or of s = √λ: Monte Carlo ± standard error, and two laws.

    An analytic null has no draws. The free-product law is the limit of W_QK's spectrum, with its edges λ₋ and λ₊. The
    Marchenko–Pastur law is that of a single factor: for W_QK it is too narrow. For matrices that are themselves
    products, the law of all their factors is drawn bin by bin; the other laws from edge to edge.
    """
    if isinstance(table, xr.DataTree):
        null = _of_tree(table, case)
    else:
        row, normalization = table.isel(case=case), str(table.attrs["normalization"])
        sizes = {name: row[name].item() for name in ("d_model", "d_head", "sigma_q", "sigma_k")}
        free, naive = (law(**sizes, normalization=normalization) for law in (low_rank_product, naive_marchenko_pastur))
        edges, density, error = (row[name].values for name in ("bin_edge", "density", "density_standard_error"))
        title = case_title(**sizes)
        null = _Null(edges, density, error, free, naive, title, normalization, CIRCUITS["qk"].latex)
    edges, density, error = null.edges, null.density, null.error
    of_law, wider = np.asarray, np.ones(density.shape)
    if singular_values:
        of_law, wider = np.sqrt, np.diff(edges) / np.diff(np.sqrt(edges))
        edges, density, error = np.sqrt(edges), density * wider, None if error is None else error * wider
    places = np.flatnonzero(density > 0)
    first, last = float(edges[places[0]]), float(edges[places[-1] + 1])
    law = null.limit if isinstance(null.limit, GaussianChain) else None
    lower, upper = (first, last) if law is None else map(float, of_law(law.support))
    # If the smallest eigenvalues reach zero, the density is so steep that it hides all the rest on a linear axis.
    floor = 0.0 if lower > 0 else _SEEN * float(np.nanmax(density))
    if error is not None:
        add_density(ax, theme, Histogram(edges, density, error), (edges[1:] + edges[:-1]) / 2, lowest=floor)
    highest = 0.0
    if null.naive is not None:
        x, y = _curve(null.naive, singular_values)
        highest = float(y.max())
        ax.plot(x, y, color=theme.naive, linewidth=1.6, linestyle=(0, (5, 2)), label="Marchenko–Pastur (one factor)")
    if law is not None:
        x, y = _curve(law, singular_values)
        highest = max(highest, float(y.max()))
        name = "free-product law" if len(law.dims) > 2 else "Marchenko–Pastur law"
        ax.plot(x, y, color=theme.free_law, linewidth=1.8, label=name)
        label = f"its edges, {rounded(lower, 4, [upper])} and {rounded(upper, 4, [lower])}"
        ax.axvline(lower, color=theme.free_law, linewidth=1.2, linestyle=":", label=label)
        ax.axvline(upper, color=theme.free_law, linewidth=1.2, linestyle=":")
    elif not isinstance(null.limit, GaussianChain) and np.isfinite(null.limit).all():
        limit = null.limit * wider
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
    if not singular_values:
        label = eigenvalue_label(null.normalization, null.matrix)
        return Around(null.title, label, r"density of $\lambda$", unit=DIMENSIONLESS)
    over = r" / \sqrt{d}" if null.normalization == "sqrt_d" else ""
    return Around(null.title, rf"singular value $s$ of ${null.matrix}{over}$", "density of $s$", unit=DIMENSIONLESS)


def _curve(law: GaussianChain, singular_values: bool) -> tuple[np.ndarray, np.ndarray]:
    """Density of a law from edge to edge, with more points near the edges, where it is a square root."""
    lower, upper = law.support
    x = lower + (upper - lower) * 0.5 * (1.0 - np.cos(np.linspace(0.0, np.pi, _POINTS)))
    if singular_values:
        x = np.sqrt(x)
    y = np.asarray(law.pdf_singular_values(x) if singular_values else law.pdf(x))
    finite = np.isfinite(y)
    return x[finite], y[finite]


def case_title(d_model: int, d_head: int, sigma_q: float, sigma_k: float) -> str:
    """Return a title with the shape and scale of a null."""
    sigma = rf"\sigma_Q = {sigma_q:g}, \sigma_K = {sigma_k:g}"
    if sigma_q == sigma_k:
        sigma = rf"\sigma_Q = \sigma_K = {sigma_q:g}"
    return f"Null of $W_{{QK}}$ at $d = {d_model}$, $h = {d_head}$, ${sigma}$"


def chain_title(subject: str, circuit: Circuit, dims: Sequence[int]) -> str:
    """Return a title with its subject and the sizes of the circuit."""
    if len(dims) == 2:
        return f"{subject} at $h = {dims[0]}$, $d = {dims[1]}$"
    left, rank, right = dims
    if left == right:
        return f"{subject} at $d = {left}$, $h = {rank}$"
    first, second = (factor.letter for factor in circuit.factors)
    return f"{subject} at $d_{first} = {left}$, $h = {rank}$, $d_{second} = {right}$"


def eigenvalue_label(normalization: str, matrix: str = CIRCUITS["qk"].latex) -> str:
    """Return the label of an eigenvalue's axis, with normalization."""
    over = " / d" if normalization == "sqrt_d" else ""
    return rf"eigenvalue $\lambda$ of ${matrix}^{{\top}} {matrix}{over}$"


def _of_tree(tree: xr.DataTree, place: int) -> _Null:
    null = null_of(tree)
    shapes, circuit = shapes_of(tree), circuit_of(tree.attrs)
    dims, simulated = shapes[place], str(tree.attrs["null_method"]) == "simulated"
    null = null.isel(shape=place) if "shape" in null.dims else null
    products = "null_scale" in tree["heads"].coords  # the heads have more factors than their sizes show
    is_square = len(dims) == 3 and dims[0] == dims[2] and not products
    title = chain_title(f"Null of ${circuit.latex}$", circuit, dims)
    return _Null(
        null["bin_edge"].values,
        null["density" if simulated else "density_free"].values,
        null["density_standard_error"].values if simulated else None,
        null["density_free"].values if products else GaussianChain(dims=dims, normalization="none"),
        naive_marchenko_pastur(d_model=dims[0], d_head=dims[1], normalization="none") if is_square else None,
        case_title(dims[0], dims[1], 1.0, 1.0) if circuit.name == "qk" and is_square else title,
        "none",
        circuit.latex,
    )
