"""Plain-data summary of the laws of W_QK of one shape, of any Gaussian chain, or of a residual path."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from rmtbase.errors import ParameterError
from rmtbase.laws._chain._gaussian_chain import GaussianChain, naive_marchenko_pastur
from rmtbase.laws._distribution import Moments
from rmtbase.laws._edge._extreme_eigenvalues import largest_eigenvalue, smallest_eigenvalue
from rmtbase.laws._edge._spike import RankOneSpike
from rmtbase.laws._element import parents
from rmtbase.laws._element._normal_sample import normal_entropy
from rmtbase.laws._element._product_element import product_element
from rmtbase.laws._exact._log_determinant import LogDeterminant
from rmtbase.laws._exact._trace_polynomials import (
    DimensionPolynomial,
    trace_cumulant,
    trace_cumulants,
    trace_moment_polynomial,
)
from rmtbase.laws._null._null import NULL_STATISTICS, null
from rmtbase.laws._parameters import ChainKeywords, ChainParameters, takes
from rmtbase.laws._residual._residual_moments import residual_trace_moments
from rmtbase.laws._residual._residual_path import ResidualPath
from rmtbase.laws._weibull._plot import weibull_anchor

_WIDEST_SIGMA = 1e9  # and its inverse: eighth powers of σ, and their squares, stay finite doubles
_BULK = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
_EXTREME = (0.001, 0.01, 0.05, 0.5, 0.95, 0.99, 0.999)
_CENTRAL = (0.025, 0.5, 0.975)
_TAILS = (1e-2, 1e-3, 1e-6, 1e-9)
_LEVEL, _POWERS = 0.05, (0.5, 0.9)

_EXACT = {"method": "exact", "accuracy": "to rounding"}
_BULK_OF_HEAD = (
    "limit of large matrices at this d_head/d_model, computed to 1e-13; one draw's mean density is within O(1/d_head)"
)
_BULK_OF_CHAIN = (
    "limit of large matrices at these ratios of dimensions, computed to 1e-13; one draw's mean density is within "
    "O(1/rank)"
)
_BULK_OF_PATH = (
    "limit of large d_model, exact for every depth and sigma; one draw's mean density is within O(1/d_model)"
)
_NAIVE = "the Marchenko-Pastur law often quoted for W_QK; it is not the law of W_QK"
_SPIKE = (
    "threshold: limit of large matrices; strengths: asymptotic, their power within 0.035 of simulation for d_head >= 20"
)
_ELEMENT = "exact for each element (variance-gamma); the elements of one matrix depend on each other"


@takes(ChainKeywords)
def describe(
    *shape: int | Sequence[int], depth: int | None = None, self_normalized: bool = False, **chain: Unpack[ChainKeywords]
) -> dict[str, Any]:
    """Return every analytic number of W_QK = W_Qᵀ W_K, of any Gaussian chain, or of a residual path.

    Sections of W_QK: the spectrum and its edges, the extreme eigenvalues and the statistics of one draw, exact moments,
    one element, a planted spike, and one factor; of a chain of other ``dims`` the first four. With ``depth``, and
    ``sigma`` and ``d_model`` if given, it is a residual path. ``self_normalized`` divides each factor by its own
    estimate of σ first.

    Dictionaries, lists, strings and finite numbers that can be written as JSON; None where there is no number.
    """
    if depth is not None:
        return _plain(_describe_path(depth, self_normalized, shape, chain))
    parameters = ChainParameters(*shape, **chain)
    for name in ("sigma", "sigma_q", "sigma_k", "sigmas"):
        sigma = chain.get(name)
        if sigma is not None and self_normalized:
            raise ParameterError(name, sigma, "none where each factor is divided by its own estimate of it")
        if sigma is not None and not 1.0 / _WIDEST_SIGMA <= np.min(sigma) <= np.max(sigma) <= _WIDEST_SIGMA:
            raise ParameterError(name, sigma, f"a number from {1.0 / _WIDEST_SIGMA:g} to {_WIDEST_SIGMA:g}")
    dims = parameters.dims
    is_head = len(dims) == 3 and dims[0] == dims[2] >= dims[1]
    return _plain((_describe_head if is_head else _describe_chain)(parameters, self_normalized))


def _describe_head(chain: ChainParameters, self_normalized: bool) -> dict[str, Any]:
    d_model, d_head, _ = chain.dims
    sigma_q, sigma_k = chain.sigmas
    scale = {"sigma_q": sigma_q, "sigma_k": sigma_k}
    product: dict[str, Any] = {"d_model": d_model, "d_head": d_head, **scale, "normalization": chain.normalization}
    law, naive = GaussianChain(**chain.keywords), naive_marchenko_pastur(**product)
    low, high = naive.support
    outside = float(law.cdf(low)) + float(law.sf(high))
    quoted = {"often_quoted": {"law": _NAIVE, **_support(naive), "fraction_outside": outside}}
    matrix = "W_QK = W_Q^T W_K" + " / sqrt(d_model)" * (chain.normalization == "sqrt_d")
    conventions = _conventions(matrix, "W_QK", "d_head", "natural; entropies and divergences in nats")
    sections = _sections(chain, self_normalized, conventions, {"accuracy": _BULK_OF_HEAD, **_bulk(law), **quoted})
    moments = sections["exact_moments"]
    for power, name in ((1, "trace"), (2, "trace_of_square")):
        moments[name] |= _mean_of_trace(chain, self_normalized, power)
    if self_normalized and chain.rank == 1:
        constant = (1.0 if chain.normalization == "sqrt_d" else 2.0) * math.log(d_model)
        moments["log_determinant"] = _four_moments(Moments(constant, 0.0, "exact"))
    factor: ChainKeywords = {"dims": (d_head, d_model), "sigma": sigma_q, "normalization": "none"}
    alone = GaussianChain(**factor)
    of_factor = {"accuracy": _BULK_OF_HEAD, "shape": alone.dims, **_bulk(alone), **_location(alone)}
    return {
        "d_model": d_model,
        "d_head": d_head,
        "aspect_ratio": d_head / d_model,
        **scale,
        **sections,
        "element": _element(product),
        "spike": _spike(chain, factor, sections["statistics"]["largest_eigenvalue"]["reason"]),
        "factor": {"method": "asymptotic", **of_factor},
    }


def _describe_chain(chain: ChainParameters, self_normalized: bool) -> dict[str, Any]:
    law, count = GaussianChain(**chain.keywords), len(chain.sigmas)
    factors = "X" if count == 1 else " ".join(f"X_{place + 1}" for place in range(count))
    matrix = f"W = {factors}" + f" / sqrt({chain.dims[0]})" * (chain.normalization == "sqrt_d")
    conventions = _conventions(matrix, "W", chain.rank, "natural")
    sections = _sections(chain, self_normalized, conventions, {"accuracy": _BULK_OF_CHAIN, **_bulk(law)})
    return {"dims": chain.dims, "rank": chain.rank, "sigmas": chain.sigmas, **sections}


def _sections(
    chain: ChainParameters, self_normalized: bool, conventions: dict[str, str], bulk: dict[str, Any]
) -> dict[str, Any]:
    law, statistics, orders = GaussianChain(**chain.keywords), _statistics(chain, self_normalized), range(1, 5)
    return {
        "normalization": chain.normalization,
        "self_normalized": self_normalized,
        "conventions": conventions,
        "spectrum": {
            "method": "asymptotic",
            **bulk,
            **_location(law),
            "median": law.ppf(0.5),
            "moments": [law.moment(k) for k in orders],
            "cumulants": [law.cumulant(k) for k in orders],
            "free_cumulants": [law.free_cumulant(k) for k in orders],
            "quantiles": _quantiles(law.ppf, _BULK),
        },
        "extreme_eigenvalues": _extreme_eigenvalues(chain, self_normalized, statistics),
        "statistics": statistics,
        "exact_moments": _exact_moments(chain, self_normalized),
    }


def _describe_path(depth: int, self_normalized: bool, shape: Sequence[Any], keywords: ChainKeywords) -> dict[str, Any]:
    arguments = {"shape": shape or None, "self_normalized": self_normalized or None, **keywords}
    for name in ("shape", "dims", "d_head", "sigma_q", "sigma_k", "sigmas", "self_normalized"):
        if arguments.get(name) is not None:
            taken = "a residual path I + sigma G / sqrt(d_model) takes only sigma and d_model"
            raise ParameterError(name, arguments[name], f"none beside depth: {taken}")
    normalization = keywords.get("normalization", "sqrt_d")
    if normalization != "sqrt_d":
        raise ParameterError("normalization", normalization, "none beside depth: each block is divided by √d")
    sigma, width = keywords.get("sigma"), keywords.get("d_model")
    law, moments = ResidualPath(depth, 1.0 if sigma is None else sigma), None
    if width is not None:
        exact = residual_trace_moments(law.depth, law.sigma, width)
        moments = _EXACT | {
            "trace": {"mean": exact.mean_trace, "std": exact.std_trace},
            "trace_of_square": {"mean": exact.mean_trace_of_square, "std": exact.std_trace_of_square},
        }
    return {
        "depth": law.depth,
        "sigma": law.sigma,
        "d_model": width,
        "conventions": {
            "matrix": "P, the product of depth blocks I + sigma G / sqrt(d_model), with G of standard normal entries",
            "eigenvalues": "of P P^T",
            "singular_values": "of P, the square roots of the eigenvalues",
            "logarithms": "natural",
        },
        "spectrum": {
            "method": "asymptotic",
            "accuracy": _BULK_OF_PATH,
            **_support(law),
            "hard_edge": law.has_hard_edge,
            "edge_scale": (None, None) if width is None else law.edge_scale(width),
            **_location(law),
            "median": law.ppf(0.5),
            "log_mean": law.log_mean(),
            "moments": [law.moment(k) for k in range(1, 5)],
            "quantiles": _quantiles(law.ppf, _BULK),
        },
        "exact_moments": moments,
    }


def _conventions(matrix: str, name: str, count: str | int, logarithms: str) -> dict[str, str]:
    return {
        "matrix": matrix,
        "eigenvalues": f"of {name}^T {name}, the {count} that are not structurally zero",
        "singular_values": f"of {name}, the square roots of the eigenvalues",
        "logarithms": logarithms,
    }


def _bulk(law: GaussianChain) -> dict[str, Any]:
    return _support(law) | {"hard_edge": law.has_hard_edge, "edge_scale": law.edge_scale}


def _support(law: GaussianChain | ResidualPath) -> dict[str, Any]:
    return {"support": law.support, "support_singular_values": [math.sqrt(edge) for edge in law.support]}


def _location(law: Any) -> dict[str, float]:
    return {"mean": law.mean(), "std": law.std()}


def _extreme_eigenvalues(
    chain: ChainParameters, self_normalized: bool, statistics: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    extremes = {}
    for make in (largest_eigenvalue, smallest_eigenvalue):
        summary = statistics[make.__name__] | {"quantiles": None, "singular_value": None}
        if summary["reason"] is None:
            edge = make(**chain.keywords, self_normalized=self_normalized)
            mean = edge.expect_power(0.5)
            summary |= {
                "quantiles": _quantiles(edge.ppf, _EXTREME),
                "singular_value": {"mean": mean, "std": math.sqrt(max(edge.mean() - mean**2, 0.0))},
            }
        extremes[make.__name__] = summary
    return extremes


def _statistics(chain: ChainParameters, self_normalized: bool) -> dict[str, dict[str, Any]]:
    summaries = {}
    for name in NULL_STATISTICS:
        summary: dict[str, Any] = dict.fromkeys(("mean", "std", "quantiles", "method", "accuracy", "reason"))
        try:
            law = null(name, **chain.keywords, self_normalized=self_normalized)
        except ParameterError as error:
            summaries[name] = summary | {"reason": f"it needs {error.expected}"}
        else:
            stated = {"method": str(law.method), "accuracy": law.accuracy}
            summaries[name] = summary | _location(law) | {"quantiles": _quantiles(law.ppf, _CENTRAL)} | stated
    return summaries


def _exact_moments(chain: ChainParameters, self_normalized: bool) -> dict[str, Any]:
    traces = [trace_cumulants(power, **chain.keywords, self_normalized=self_normalized) for power in (1, 2)]
    unit: ChainKeywords = {"dims": chain.dims, "normalization": "none"}
    variance, variance_of_square, covariance = (
        trace_cumulant(powers, **unit, self_normalized=self_normalized) for powers in ((1, 1), (2, 2), (2, 1))
    )
    variances = variance * variance_of_square
    try:
        law = LogDeterminant(**chain.keywords, self_normalized=self_normalized)
        log_determinant = _location(law) | {"skewness": law.skewness(), "excess_kurtosis": law.excess_kurtosis()}
    except ParameterError:  # it is constant
        log_determinant = None
    return _EXACT | {
        "trace": _four_moments(traces[0]),
        "trace_of_square": _four_moments(traces[1]),
        "log_determinant": log_determinant,
        "correlation_of_traces": float(covariance) / math.sqrt(variances) if variances else None,
    }


def _four_moments(moments: Moments) -> dict[str, float]:
    return {name: getattr(moments, name) for name in ("mean", "std", "skewness", "excess_kurtosis")}


def _mean_of_trace(chain: ChainParameters, self_normalized: bool, power: int) -> dict[str, str]:
    """Return E Σ λ^power as a polynomial in d and h with its prefactor, in Python's notation and in LaTeX."""
    polynomial = trace_moment_polynomial((power,), ("d", "h", "d"))
    if chain.normalization == "sqrt_d":  # every term has the factor d²
        divided = {(d - power, h): coefficient for (d, h), coefficient in polynomial.terms}
        polynomial = DimensionPolynomial.from_coefficients(polynomial.symbols, divided)
    sigma_q, sigma_k = chain.sigmas
    if self_normalized and power == 1:
        prefactor, latex = "", ""
    elif self_normalized:  # E (χ²_N / N)² = 1 + 2/N for either factor, N = d h
        prefactor, latex = "/(1 + 2/(d*h))**2", r" \left(1 + \frac{2}{d h}\right)^{-2}"
    elif sigma_q == sigma_k:
        prefactor, latex = f"*sigma**{4 * power}", rf" \sigma^{{{4 * power}}}"
    else:
        prefactor = f"*sigma_q**{2 * power}*sigma_k**{2 * power}"
        latex = rf" \sigma_{{Q}}^{{{2 * power}}} \sigma_{{K}}^{{{2 * power}}}"
    return {"mean_formula": f"{polynomial}{prefactor}", "mean_latex": f"{polynomial.latex()}{latex}"}


def _element(product: dict[str, Any]) -> dict[str, Any]:
    law = product_element(**product)
    std = law.std()
    return {
        "method": "exact",
        "accuracy": _ELEMENT,
        "std": std,
        "excess_kurtosis": law.kurtosis(),
        "kl_to_normal": law.kl_to_normal(),
        "entropy": law.entropy(),
        "upper_quantiles": _quantiles(law.isf, _TAILS),
        "weibull_anchor": _anchor(parents.VarianceGamma(std, law.d_head)),
        "normal_of_same_variance": {
            "entropy": normal_entropy(std),
            "upper_quantiles": _quantiles(lambda tails: -std * ndtri(tails), _TAILS),
            "weibull_anchor": _anchor(parents.Normal(std)),
        },
    }


def _anchor(parent: parents.Parent) -> dict[str, float]:
    anchor = weibull_anchor(distribution=parent)
    return {name: float(getattr(anchor, name)) for name in ("trim", "shape", "scale", "r_squared")}


def _spike(chain: ChainParameters, factor: ChainKeywords, reason: str | None) -> dict[str, Any]:
    spikes = {
        "on_product": RankOneSpike(**chain.keywords),
        "on_factor": RankOneSpike(**chain.keywords, factor=0),
        "on_factor_alone": RankOneSpike(**factor),
    }
    summary: dict[str, Any] = {"method": "asymptotic", "accuracy": _SPIKE, "level": _LEVEL, "reason": reason}
    for name, spike in spikes.items():
        powers = {f"{p:g}": None if reason else spike.detectable_strength(p, _LEVEL) for p in _POWERS}
        summary[name] = {"threshold": spike.threshold, "detectable_strength": powers}
    return summary


def _quantiles(ppf: Callable[[ArrayLike], ArrayLike], probabilities: tuple[float, ...]) -> dict[str, float]:
    return {f"{p:g}": float(x) for p, x in zip(probabilities, np.asarray(ppf(probabilities)), strict=True)}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, float | np.floating | np.ndarray):
        number = float(value)
        return number if math.isfinite(number) else None
    return value
