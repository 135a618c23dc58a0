"""Analytic values that tables list next to the simulated ones, with their method, by ensemble."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import singledispatch
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64
from scipy import special

from rmtbase import laws
from rmtbase.ensembles import (
    BidiagonalGaussianMatrix,
    DenseGaussianChain,
    IndependentChain,
    IndependentMatrix,
    LatentAttention,
    RandomSubspaces,
    ResidualProduct,
    StudentTMatrix,
    ThinGaussianChain,
)
from rmtbase.errors import ParameterError
from rmtbase.statistics import MOMENT_STATISTICS, ExtremeMoments, LatentShape, inverse_moment_order

NONE = "none"

_EXACT = "exact"
_EXACT_TRACES = "exact moments: joint moments of traces at finite width"
_SECOND = "delta method on exact covariances of powers, of second order in the mean; neglected: a relative 1/(d h)"
_LARGEST = "numerical; elements taken as independent after removal of their mean and deviation"
_LARGE_SAMPLE = "large-sample law of independent elements; neglected: N^(-3/2)"

Edges = Float64[np.ndarray, " edge"]
Elements = Float64[np.ndarray, "..."]


class AnalyticValue(NamedTuple):
    """Mean and standard deviation at σ = 1 for the raw matrix; NaN if no formula is implemented or none is known.

    ``mean_tolerance`` and ``std_tolerance`` are their largest errors: 0 if exact, NaN if not stated.
    """

    mean: float
    std: float
    method: str
    mean_tolerance: float = math.nan
    std_tolerance: float = math.nan

    @classmethod
    def exact(cls, mean: float, std: float, method: str = _EXACT) -> AnalyticValue:
        """Return values that are known to rounding."""
        return cls(mean, std, method, 0.0, 0.0)


UNKNOWN = AnalyticValue(np.nan, np.nan, NONE)

_Chain = ThinGaussianChain | DenseGaussianChain | BidiagonalGaussianMatrix


def head_shape(ensemble: object) -> tuple[int, int] | None:
    """Return (d_model, d_head) of W_QK; None for any other ensemble."""
    if isinstance(ensemble, ThinGaussianChain | DenseGaussianChain) and len(ensemble.dims) == 3:
        d_model, d_head, d_out = map(int, ensemble.dims)
        return (d_model, d_head) if d_model == d_out >= d_head else None
    return None


@singledispatch
def spectral_values(ensemble: object) -> dict[str, AnalyticValue]:
    """Return the analytic mean and sd of the spectral statistics that have them, raw and at σ = 1; {} if none do."""
    return {}


@spectral_values.register
def _(ensemble: _Chain) -> dict[str, AnalyticValue]:
    values = {}
    for statistic, null in laws.known_nulls(dims=_dims(ensemble), normalization="none").items():
        mean, std = (moment if math.isfinite(moment) else np.nan for moment in (null.mean(), null.std()))
        tolerances = null.mean_within * std, null.std_within * std
        values[statistic] = AnalyticValue(mean, std, f"{null.method}: {null.accuracy}", *tolerances)
    return values


@spectral_values.register
def _(ensemble: ResidualProduct) -> dict[str, AnalyticValue]:
    if ensemble.part != "path":
        return {}
    moments = laws.residual_trace_moments(int(ensemble.depth), float(ensemble.sigma), ensemble.d_model)
    return {
        "trace": AnalyticValue.exact(moments.mean_trace, moments.std_trace, _EXACT_TRACES),
        "trace_of_square": AnalyticValue.exact(
            moments.mean_trace_of_square, moments.std_trace_of_square, _EXACT_TRACES
        ),
    }


def spectral_law(ensemble: object) -> laws.Distribution | None:
    """Limiting law of the nonzero eigenvalues, raw and at σ = 1; None if none is implemented.

    For a matrix of independent elements it is the Marchenko-Pastur law at their variance, whatever else their law.
    """
    try:
        return _spectral_law(ensemble)
    except ParameterError:  # outside the law's domain
        return None


@singledispatch
def _spectral_law(ensemble: object) -> laws.Distribution | None:
    return None


@_spectral_law.register
def _(ensemble: _Chain) -> laws.Distribution:
    dims = _dims(ensemble)
    return laws.GaussianChain(dims=dims, normalization="none")


@_spectral_law.register
def _(ensemble: IndependentChain) -> laws.Distribution:
    return laws.GaussianChain(dims=ensemble.dims, normalization="none")


@_spectral_law.register
def _(ensemble: IndependentMatrix) -> laws.Distribution | None:
    std = ensemble.element_std
    if not np.isfinite(std):
        return None
    return laws.GaussianChain(dims=ensemble.element_shape, sigma=std, normalization="none")


@_spectral_law.register
def _(ensemble: ResidualProduct) -> laws.Distribution | None:
    if ensemble.part == "order":
        return None
    law = laws.ResidualPath if ensemble.part == "path" else laws.ResidualUpdate
    return law(int(ensemble.depth), float(ensemble.sigma))


@singledispatch
def extreme_moments(ensemble: object) -> ExtremeMoments:
    """Orders of the moments that the extreme eigenvalues have: all, unless an ensemble is known to lack some."""
    return ExtremeMoments()


@extreme_moments.register
def _(ensemble: _Chain | IndependentChain) -> ExtremeMoments:
    return ExtremeMoments(smallest=inverse_moment_order(_dims(ensemble)))


@extreme_moments.register
def _(ensemble: LatentAttention) -> ExtremeMoments:
    of = ensemble
    shape = LatentShape(of.d_model, of.kv_rank, of.d_nope, of.d_rope, of.q_rank)
    return ExtremeMoments(smallest=inverse_moment_order(shape.dims))


@extreme_moments.register
def _(ensemble: IndependentMatrix) -> ExtremeMoments:
    """λ_1 has the tail of the largest squared element; for Student's t, moments of order below df/2 are finite."""
    return ExtremeMoments(inverse_moment_order(ensemble.element_shape), _degrees_of_freedom(ensemble) / 2)


@extreme_moments.register
def _(ensemble: RandomSubspaces | ResidualProduct) -> ExtremeMoments:
    """Square matrices, singular where the determinant changes sign: s_h has a positive density at 0.

    Two cases are orthogonal instead: a corner that is the whole orthogonal matrix, and the paths through no block.
    """
    if isinstance(ensemble, RandomSubspaces):
        orthogonal = int(ensemble.d_model) == ensemble.d_head
    else:
        orthogonal = ensemble.part == "order" and not ensemble.order
    return ExtremeMoments() if orthogonal else ExtremeMoments(smallest=inverse_moment_order((1, 1)))


def element_moment_order(ensemble: object, statistic: str) -> float:
    """Smallest order at which the moments of an element statistic are infinite: for mean and std, the elements' own.

    The other statistics are bounded for a matrix of given size, or grow as logarithms or low powers of its middle
    elements.
    """
    return _degrees_of_freedom(ensemble) if statistic in ("mean", "std") else math.inf


def _degrees_of_freedom(ensemble: object) -> float:
    return float(ensemble.df) if isinstance(ensemble, StudentTMatrix) else math.inf


def _dims(chain: _Chain | IndependentChain) -> tuple[int, ...]:
    dims = (chain.long, chain.rank) if isinstance(chain, BidiagonalGaussianMatrix) else chain.dims
    return tuple(map(int, dims))


def element_values(ensemble: object, edges: Edges) -> dict[str, AnalyticValue]:
    """Return the analytic mean and sd of the element statistics that have them; {} if none do.

    The statistics of the histogram are those at the given edges.
    """
    if not isinstance(ensemble, DenseGaussianChain):
        return {}
    if len(ensemble.dims) == 2 and math.prod(ensemble.dims) > 1:
        return _normal_values(math.prod(ensemble.dims))
    shape = head_shape(ensemble)
    return {} if shape is None else _product_values(*shape, edges)


def element_density(ensemble: object, edges: Edges) -> Float64[np.ndarray, " bin"]:
    """Bin averages of the density of one element; NaN if no law is implemented."""
    inner = ensemble.dims[1:-1] if isinstance(ensemble, DenseGaussianChain) else None
    if inner is None or len(inner) > 1:
        return np.full(edges.size - 1, np.nan)
    cdf = laws.ProductElement(inner[0]).cdf if inner else special.ndtr
    return np.diff(cdf(edges)) / np.diff(edges)


def _normal_values(n: int) -> dict[str, AnalyticValue]:
    """Analytic values for n independent standard normal numbers."""
    mean_std = math.sqrt(2.0 / (n - 1)) * math.exp(special.gammaln(n / 2) - special.gammaln((n - 1) / 2))
    values = {
        "mean": AnalyticValue.exact(0.0, 1.0 / math.sqrt(n)),
        "std": AnalyticValue.exact(mean_std, math.sqrt(max(1.0 - mean_std**2, 0.0))),
    }
    for name in set(MOMENT_STATISTICS) - {"mean"}:
        try:
            law = laws.gaussian_sample_statistic(name, n)
        except ParameterError:  # too few numbers
            continue
        exact = name != "largest_magnitude"
        moments = law.mean(), law.std()
        values[name] = AnalyticValue.exact(*moments) if exact else AnalyticValue(*moments, _LARGEST)
    null = laws.weibull_null()
    for name, law in (("shape", null.shape), ("scale", null.scale), ("r_squared", null.r_squared)):
        values[f"weibull_{name}"] = AnalyticValue(law.mean(n), law.std(n), _LARGE_SAMPLE)
    return values


def _product_values(d_model: int, d_head: int, edges: Edges) -> dict[str, AnalyticValue]:
    """Analytic values for the elements of W_QK, raw and at σ = 1."""
    histogram = (d_model, d_head, edges.size - 1, (edges[0], edges[-1]))
    values = _product_moments(d_model, d_head)
    for name, law in (("histogram_entropy", laws.histogram_entropy), ("histogram_kl", laws.histogram_kl)):
        try:
            moments = law(*histogram, normalization="none")
        except ParameterError:  # a range that holds no elements
            continue
        values[name] = AnalyticValue(moments.mean, moments.std, moments.method)
    null = laws.weibull_product_null(d_model, d_head, normalization="none")
    for name, moments in null._asdict().items():
        values[f"weibull_{name}"] = AnalyticValue(moments.mean, moments.std, moments.method)
    return values


def _product_moments(d: int, h: int) -> dict[str, AnalyticValue]:
    """Moments of the elements w/√h, with V and C the variance and covariance of the averages of w² and w⁴ over them.

    E s ≈ 1 - V/8 and E(kurtosis) ≈ κ + 3 κ V - 2 C + (6 - 2 κ)/N, with κ = 3 + 6/h and N = d²; the last term comes from
    subtracting the mean w̄. The skewness is Σ(w³ - 3w)/N to first order.
    """
    kappa, n = 3.0 + 6.0 / h, d * d

    def spread(function: Callable[[Elements], Elements]) -> float:
        return laws.element_average(lambda w: function(w / math.sqrt(h)), d, h, normalization="none").std

    square, fourth, both = spread(np.square), spread(lambda w: w**4), spread(lambda w: w**2 + w**4)
    variance, covariance = square**2, 0.5 * (both**2 - square**2 - fourth**2)
    excess = kappa * (1.0 + 3.0 * variance) - 2.0 * covariance + (6.0 - 2.0 * kappa) / n - 3.0
    return {
        "mean": AnalyticValue.exact(0.0, math.sqrt(h) / d),
        "std": AnalyticValue(math.sqrt(h) * (1.0 - variance / 8.0), math.sqrt(h) * square / 2.0, _SECOND),
        "skewness": AnalyticValue(0.0, spread(lambda w: w**3 - 3.0 * w), _SECOND),
        "excess_kurtosis": AnalyticValue(excess, spread(lambda w: w**4 - 2.0 * kappa * w**2), _SECOND),
    }
