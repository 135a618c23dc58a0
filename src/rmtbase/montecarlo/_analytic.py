"""Analytic values that tables list next to the simulated ones, with their method, by ensemble."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64
from scipy import special

from rmtbase import ensembles, laws
from rmtbase.errors import ParameterError
from rmtbase.statistics import MOMENT_STATISTICS, ExtremeMoments, LatentShape, inverse_moment_order

_EXACT = "exact"
_EXACT_TRACES = "exact moments: joint moments of traces at finite width"
_SECOND = "delta method on exact covariances of powers, of second order in the mean; neglected: a relative 1/(d h)"
_LARGEST = "numerical; elements taken as independent after removal of their mean and deviation"
_LARGE_SAMPLE = "large-sample law of independent elements; neglected: N^(-3/2)"

Edges = Float64[np.ndarray, " edge"]
Elements = Float64[np.ndarray, "..."]


class AnalyticValue(NamedTuple):
    """Mean and standard deviation at σ = 1 for the raw matrix; NaN if no formula is implemented or none is known."""

    mean: float
    std: float
    method: str
    mean_tolerance: float = math.nan  # largest error of the mean: 0 if exact, NaN if not stated
    std_tolerance: float = math.nan

    @classmethod
    def exact(cls, mean: float, std: float, method: str = _EXACT) -> AnalyticValue:
        return cls(mean, std, method, 0.0, 0.0)


UNKNOWN = AnalyticValue(np.nan, np.nan, "none")

_Chain = ensembles.ThinGaussianChain | ensembles.DenseGaussianChain | ensembles.BidiagonalGaussianMatrix


def head_shape(ensemble: object) -> tuple[int, int] | None:
    if isinstance(ensemble, ensembles.ThinGaussianChain | ensembles.DenseGaussianChain) and len(ensemble.dims) == 3:
        d_model, d_head, d_out = map(int, ensemble.dims)
        return (d_model, d_head) if d_model == d_out >= d_head else None
    return None


def spectral_values(ensemble: object) -> dict[str, AnalyticValue]:
    values = {}
    if isinstance(ensemble, _Chain):
        for statistic, null in laws.known_nulls(dims=_dims(ensemble), normalization="none").items():
            mean, std = (moment if math.isfinite(moment) else np.nan for moment in (null.mean(), null.std()))
            tolerances = null.mean_within * std, null.std_within * std
            values[statistic] = AnalyticValue(mean, std, f"{null.method}: {null.accuracy}", *tolerances)
    elif isinstance(ensemble, ensembles.ResidualProduct) and ensemble.part == "path":
        moments = laws.residual_trace_moments(int(ensemble.depth), float(ensemble.sigma), ensemble.d_model)
        square = moments.mean_trace_of_square, moments.std_trace_of_square
        values["trace"] = AnalyticValue.exact(moments.mean_trace, moments.std_trace, _EXACT_TRACES)
        values["trace_of_square"] = AnalyticValue.exact(*square, _EXACT_TRACES)
    return values


def spectral_law(ensemble: object) -> laws.Distribution | None:
    """Limiting law of the nonzero eigenvalues, raw and at σ = 1; None if none is implemented."""
    try:
        if isinstance(ensemble, _Chain | ensembles.IndependentChain):
            return laws.GaussianChain(dims=_dims(ensemble), normalization="none")
        match ensemble:
            case ensembles.IndependentMatrix(element_std=std) if np.isfinite(std):
                return laws.GaussianChain(dims=ensemble.element_shape, sigma=std, normalization="none")
            case ensembles.ResidualProduct(part="path"):
                return laws.ResidualPath(int(ensemble.depth), float(ensemble.sigma))
            case ensembles.ResidualProduct(part="update"):
                return laws.ResidualUpdate(int(ensemble.depth), float(ensemble.sigma))
    except ParameterError:  # outside the law's domain
        return None
    return None


def extreme_moments(ensemble: object) -> ExtremeMoments:
    """Orders of the moments that the extreme eigenvalues have: all, unless an ensemble is known to lack some."""
    if isinstance(ensemble, _Chain | ensembles.IndependentChain):
        return ExtremeMoments(smallest=inverse_moment_order(_dims(ensemble)))
    match ensemble:
        case ensembles.LatentAttention(d_model=d_model, kv_rank=kv_rank, d_nope=d_nope, d_rope=d_rope, q_rank=q_rank):
            shape = LatentShape(d_model, kv_rank, d_nope, d_rope, q_rank)
            return ExtremeMoments(smallest=inverse_moment_order(shape.dims))
        case ensembles.IndependentMatrix():
            # λ_1 has the tail of the largest squared element; for Student's t, moments of order below df/2 are finite.
            return ExtremeMoments(inverse_moment_order(ensemble.element_shape), _degrees_of_freedom(ensemble) / 2)
        case ensembles.RandomSubspaces(d_model=d_model, d_head=d_head) if int(d_model) == d_head:
            return ExtremeMoments()  # the corner is the whole orthogonal matrix
        case ensembles.ResidualProduct(part="order", order=0):
            return ExtremeMoments()  # the paths through no block
        case ensembles.RandomSubspaces() | ensembles.ResidualProduct():
            # Square matrices, singular where the determinant changes sign: s_h has a positive density at 0.
            return ExtremeMoments(smallest=inverse_moment_order((1, 1)))
    return ExtremeMoments()


def element_moment_order(ensemble: object, statistic: str) -> float:
    """Smallest order at which the moments of an element statistic are infinite: for mean and std, the elements' own."""
    # The other statistics are bounded for a matrix of given size, or grow as logarithms or low powers of its elements.
    return _degrees_of_freedom(ensemble) if statistic in ("mean", "std") else math.inf


def _degrees_of_freedom(ensemble: object) -> float:
    return float(ensemble.df) if isinstance(ensemble, ensembles.StudentTMatrix) else math.inf


def _dims(chain: _Chain | ensembles.IndependentChain) -> tuple[int, ...]:
    dims = (chain.long, chain.rank) if isinstance(chain, ensembles.BidiagonalGaussianMatrix) else chain.dims
    return tuple(map(int, dims))


def element_values(ensemble: object, edges: Edges) -> dict[str, AnalyticValue]:
    if not isinstance(ensemble, ensembles.DenseGaussianChain):
        return {}
    if len(ensemble.dims) == 2 and math.prod(ensemble.dims) > 1:
        return _normal_values(math.prod(ensemble.dims))
    if (shape := head_shape(ensemble)) is None:
        return {}
    values = _product_moments(*shape)
    histogram = (*shape, edges.size - 1, (edges[0], edges[-1]))
    for name, law in (("histogram_entropy", laws.histogram_entropy), ("histogram_kl", laws.histogram_kl)):
        with suppress(ParameterError):  # a range that holds no elements
            moments = law(*histogram, normalization="none")
            values[name] = AnalyticValue(moments.mean, moments.std, moments.method)
    for name, moments in laws.weibull_product_null(*shape, normalization="none")._asdict().items():
        values[f"weibull_{name}"] = AnalyticValue(moments.mean, moments.std, moments.method)
    return values


def element_density(ensemble: object, edges: Edges) -> Float64[np.ndarray, " bin"]:
    """Bin averages of the density of one element; NaN if no law is implemented."""
    inner = ensemble.dims[1:-1] if isinstance(ensemble, ensembles.DenseGaussianChain) else None
    if inner is None or len(inner) > 1:
        return np.full(edges.size - 1, np.nan)
    cdf = laws.ProductElement(inner[0]).cdf if inner else special.ndtr
    return np.diff(cdf(edges)) / np.diff(edges)


def _normal_values(n: int) -> dict[str, AnalyticValue]:
    mean_std = math.sqrt(2.0 / (n - 1)) * math.exp(special.gammaln(n / 2) - special.gammaln((n - 1) / 2))
    values = {
        "mean": AnalyticValue.exact(0.0, 1.0 / math.sqrt(n)),
        "std": AnalyticValue.exact(mean_std, math.sqrt(max(1.0 - mean_std**2, 0.0))),
    }
    for name in set(MOMENT_STATISTICS) - {"mean"}:
        with suppress(ParameterError):  # too few numbers
            law = laws.gaussian_sample_statistic(name, n)
            moments = law.mean(), law.std()
            exact = name != "largest_magnitude"
            values[name] = AnalyticValue.exact(*moments) if exact else AnalyticValue(*moments, _LARGEST)
    null = laws.weibull_null()
    for name in ("shape", "scale", "r_squared"):
        law = getattr(null, name)
        values[f"weibull_{name}"] = AnalyticValue(law.mean(n), law.std(n), _LARGE_SAMPLE)
    return values


def _product_moments(d: int, h: int) -> dict[str, AnalyticValue]:
    """Moments of the elements w/√h, with V and C the variance and covariance of the averages of w² and w⁴."""
    # E s ≈ 1 - V/8, E(kurtosis) ≈ κ + 3 κ V - 2 C + (6 - 2 κ)/N, κ = 3 + 6/h, N = d² (the last term: the subtracted
    # mean). The skewness is Σ(w³ - 3w)/N to first order.
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
