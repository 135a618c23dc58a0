"""The analytic mean and spread of the statistics of a matrix's elements, beside the simulated ones."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import special

from rmtbase import laws
from rmtbase.ensembles import DenseGaussianChain
from rmtbase.errors import ParameterError
from rmtbase.montecarlo._summaries._analytic import AnalyticValue
from rmtbase.statistics import ELEMENT_STATISTICS

Array = NDArray[np.float64]

_EXACT = "exact"
_SECOND = "delta method on exact covariances of powers, of second order in the mean; neglected: a relative 1/(d h)"
_LARGEST = "numerical; the numbers taken as independent once their mean and deviation are taken off"
_LARGE_SAMPLE = "large-sample law of independent elements; neglected: N^(-3/2)"


def element_values(ensemble: object, edges: Array) -> dict[str, AnalyticValue]:
    """The analytic mean and sd of the element statistics that have them, at the histogram's edges; {} if none do."""
    if not isinstance(ensemble, DenseGaussianChain):
        return {}
    if len(ensemble.dims) == 2 and math.prod(ensemble.dims) > 1:
        return _normal_values(math.prod(ensemble.dims))
    shape = head_shape(ensemble)
    return {} if shape is None else _product_values(*shape, edges)


def head_shape(ensemble: object) -> tuple[int, int] | None:
    """(d_model, d_head) of W_QK; None for any other ensemble."""
    if isinstance(ensemble, DenseGaussianChain) and len(ensemble.dims) == 3:
        d_model, d_head, d_out = ensemble.dims
        return (d_model, d_head) if d_model == d_out >= d_head else None
    return None


def element_density(ensemble: object, edges: Array) -> Array:
    """Bin averages of the density of one element, NaN where no law is offered."""
    inner = ensemble.dims[1:-1] if isinstance(ensemble, DenseGaussianChain) else None
    if inner is None or len(inner) > 1:
        return np.full(edges.size - 1, np.nan)
    cdf = laws.ProductElement(inner[0]).cdf if inner else special.ndtr
    return np.diff(cdf(edges)) / np.diff(edges)


def _normal_values(n: int) -> dict[str, AnalyticValue]:
    """Of n independent standard normal numbers."""
    mean_std = math.sqrt(2.0 / (n - 1)) * math.exp(special.gammaln(n / 2) - special.gammaln((n - 1) / 2))
    values = {
        "mean": AnalyticValue(0.0, 1.0 / math.sqrt(n), _EXACT),
        "std": AnalyticValue(mean_std, math.sqrt(max(1.0 - mean_std**2, 0.0)), _EXACT),
    }
    for name in set(ELEMENT_STATISTICS) - {"mean"}:
        try:
            law = laws.gaussian_sample_statistic(name, n)
        except ParameterError:  # too few numbers
            continue
        values[name] = AnalyticValue(law.mean(), law.std(), _LARGEST if name == "largest_magnitude" else _EXACT)
    null = laws.weibull_null()
    for name, law in (("shape", null.shape), ("scale", null.scale), ("r_squared", null.r_squared)):
        values[f"weibull_{name}"] = AnalyticValue(law.mean(n), law.std(n), _LARGE_SAMPLE)
    return values


def _product_values(d_model: int, d_head: int, edges: Array) -> dict[str, AnalyticValue]:
    """Of the elements of W_QK, raw and at σ = 1."""
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
    the mean w̄ that is taken off. The skewness is Σ(w³ - 3w)/N to first order.
    """
    kappa, n = 3.0 + 6.0 / h, d * d

    def spread(function: Callable[[Array], Array]) -> float:
        return laws.element_average(lambda w: function(w / math.sqrt(h)), d, h, normalization="none").std

    square, fourth, both = spread(np.square), spread(lambda w: w**4), spread(lambda w: w**2 + w**4)
    variance, covariance = square**2, 0.5 * (both**2 - square**2 - fourth**2)
    excess = kappa * (1.0 + 3.0 * variance) - 2.0 * covariance + (6.0 - 2.0 * kappa) / n - 3.0
    return {
        "mean": AnalyticValue(0.0, math.sqrt(h) / d, _EXACT),
        "std": AnalyticValue(math.sqrt(h) * (1.0 - variance / 8.0), math.sqrt(h) * square / 2.0, _SECOND),
        "skewness": AnalyticValue(0.0, spread(lambda w: w**3 - 3.0 * w), _SECOND),
        "excess_kurtosis": AnalyticValue(excess, spread(lambda w: w**4 - 2.0 * kappa * w**2), _SECOND),
    }
