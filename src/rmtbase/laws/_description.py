"""Plain-data summary of the laws of W_QK of one shape, of any Gaussian chain, or of a residual path."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
from rmtbase.laws._exact._trace_moments import trace_cumulant, trace_cumulants
from rmtbase.laws._exact._trace_polynomials import DimensionPolynomial, trace_moment_polynomial
from rmtbase.laws._null._null import NULL_STATISTICS, null
from rmtbase.laws._parameters import ChainKeywords, ChainParameters, takes
from rmtbase.laws._residual._residual_moments import residual_trace_moments
from rmtbase.laws._residual._residual_path import ResidualPath
from rmtbase.laws._weibull._anchor import weibull_anchor

_WIDEST_SIGMA = 1e9  # and its inverse: eighth powers of σ, and their squares, stay finite doubles
_BULK = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
_EXTREME = (0.001, 0.01, 0.05, 0.5, 0.95, 0.99, 0.999)
_CENTRAL = (0.025, 0.5, 0.975)
_TAILS = (1e-2, 1e-3, 1e-6, 1e-9)
_LEVEL, _POWERS = 0.05, (0.5, 0.9)

_LIMIT = (
    "limit of large matrices at this d_head/d_model, computed to 1e-13; one draw's mean density is within O(1/d_head)"
)
_CHAIN_LIMIT = (
    "limit of large matrices at these ratios of dimensions, computed to 1e-13; one draw's mean density is within "
    "O(1/rank)"
)
_PATH_LIMIT = "limit of large d_model, exact for every depth and sigma; one draw's mean density is within O(1/d_model)"
_NAIVE = "the Marchenko-Pastur law often quoted for W_QK; it is not the law of W_QK"
_SPIKE = (
    "threshold: limit of large matrices; strengths: asymptotic, their power within 0.035 of simulation for d_head >= 20"
)
_ELEMENT = "exact for each element (variance-gamma); the elements of one matrix depend on each other"


@dataclass(frozen=True)
class _Shape:
    """Shape of W_QK and everything that scales it."""

    of: ChainParameters
    self_normalized: bool

    @property
    def d_model(self) -> int:
        return self.of.dims[0]

    @property
    def d_head(self) -> int:
        return self.of.dims[1]

    @property
    def is_head(self) -> bool:
        """True if the chain is W_QK of some head."""
        dims = self.of.dims
        return len(dims) == 3 and dims[0] == dims[2] >= dims[1]

    @property
    def normalization(self) -> str:
        return self.of.normalization

    @property
    def chain(self) -> ChainKeywords:
        """Keywords of the laws of chains."""
        return self.of.keywords

    @property
    def product(self) -> dict[str, Any]:
        """Keywords of the laws that exist only for W_QK."""
        sigma_q, sigma_k = self.of.sigmas
        shape = {"d_model": self.d_model, "d_head": self.d_head}
        return shape | {"sigma_q": sigma_q, "sigma_k": sigma_k, "normalization": self.normalization}


@takes(ChainKeywords)
def describe(
    *shape: int | Sequence[int], depth: int | None = None, self_normalized: bool = False, **chain: Unpack[ChainKeywords]
) -> dict[str, Any]:
    """Return every analytic number of W_QK = W_Qᵀ W_K, of any Gaussian chain, or of a residual path.

    Sections of W_QK: the spectrum and its edges, the extreme eigenvalues and the statistics of one draw, exact moments,
    one element, a planted rank-one spike, and one factor. A chain of other ``dims``, of which (n, m) is one matrix, has
    the first four. With ``depth``, and ``sigma`` and ``d_model`` if wanted, they are the spectrum of a residual path
    and, at that width, its Tracy–Widom scales and exact moments. Each has its method and accuracy.

    ``self_normalized`` divides each factor by its own estimate of σ first, as the scoring of heads does.

    Dictionaries, lists, strings and finite numbers that can be written as JSON; None where there is no number.
    """
    if depth is not None:
        return _plain(_describe_path(depth, self_normalized, shape, chain))
    described = _Shape(ChainParameters(*shape, **chain), self_normalized)
    for name in ("sigma", "sigma_q", "sigma_k", "sigmas"):
        sigma = chain.get(name)
        if sigma is not None and self_normalized:
            raise ParameterError(name, sigma, "none where each factor is divided by its own estimate of it")
        if sigma is not None and not 1.0 / _WIDEST_SIGMA <= np.min(sigma) <= np.max(sigma) <= _WIDEST_SIGMA:
            raise ParameterError(name, sigma, f"a number from {1.0 / _WIDEST_SIGMA:g} to {_WIDEST_SIGMA:g}")
    return _plain(_describe_chain(described))


def _describe_chain(shape: _Shape) -> dict[str, Any]:
    """Describe W_QK, which has sections of its own, or another chain."""
    of, dims, statistics = shape.of, shape.of.dims, _statistics(shape)
    divided = shape.normalization == "sqrt_d"
    if shape.is_head:
        matrix, name, logarithms = "W_QK = W_Q^T W_K" + " / sqrt(d_model)" * divided, "W_QK", "natural; entropies and "
        size = {"d_model": shape.d_model, "d_head": shape.d_head, "aspect_ratio": shape.d_head / shape.d_model}
        size |= dict(zip(("sigma_q", "sigma_k"), of.sigmas, strict=True))
        logarithms += "divergences in nats"
    else:
        factors = "X" if len(dims) == 2 else " ".join(f"X_{place}" for place in range(1, len(dims)))
        matrix, name, logarithms = f"W = {factors}" + f" / sqrt({dims[0]})" * divided, "W", "natural"
        size = {"dims": dims, "rank": of.rank, "sigmas": of.sigmas}
    counted = f"the {'d_head' if shape.is_head else of.rank} that are not structurally zero"
    found = {
        **size,
        "normalization": shape.normalization,
        "self_normalized": shape.self_normalized,
        "conventions": {
            "matrix": matrix,
            "eigenvalues": f"of {name}^T {name}, {counted}",
            "singular_values": f"of {name}, the square roots of the eigenvalues",
            "logarithms": logarithms,
        },
        "spectrum": _spectrum(shape),
        "extreme_eigenvalues": _extreme_eigenvalues(shape, statistics),
        "statistics": statistics,
        "exact_moments": _exact_moments(shape),
    }
    if shape.is_head:
        reason = statistics["largest_eigenvalue"]["reason"]
        found |= {"element": _element(shape), "spike": _spike(shape, reason), "factor": _factor(shape)}
    return found


def _describe_path(depth: int, self_normalized: bool, shape: Sequence[Any], given: ChainKeywords) -> dict[str, Any]:
    """Describe a residual path; ``shape`` and ``given`` are the other arguments of :func:`describe`."""
    others = {"shape": shape or None, "self_normalized": self_normalized or None, **given}
    for name in ("shape", "dims", "d_head", "sigma_q", "sigma_k", "sigmas", "self_normalized"):
        if others.get(name) is not None:
            taken = "a residual path I + sigma G / sqrt(d_model) takes only sigma and d_model"
            raise ParameterError(name, others[name], f"none beside depth: {taken}")
    normalization = given.get("normalization", "sqrt_d")
    if normalization != "sqrt_d":
        raise ParameterError("normalization", normalization, "none beside depth: each block is divided by √d")
    sigma, width = given.get("sigma"), given.get("d_model")
    law = ResidualPath(depth, 1.0 if sigma is None else sigma)
    found = {
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
            "accuracy": _PATH_LIMIT,
            **_support(law),
            "hard_edge": law.has_hard_edge,
            "edge_scale": (None, None) if width is None else law.edge_scale(width),
            "mean": law.mean(),
            "std": law.std(),
            "median": law.ppf(0.5),
            "log_mean": law.log_mean(),
            "moments": [law.moment(k) for k in range(1, 5)],
            "quantiles": _quantiles(law.ppf, _BULK),
        },
        "exact_moments": None,
    }
    if width is not None:
        exact = residual_trace_moments(law.depth, law.sigma, width)
        found["exact_moments"] = {"method": "exact", "accuracy": "to rounding"} | {
            "trace": {"mean": exact.mean_trace, "std": exact.std_trace},
            "trace_of_square": {"mean": exact.mean_trace_of_square, "std": exact.std_trace_of_square},
        }
    return found


def _spectrum(shape: _Shape) -> dict[str, Any]:
    law, orders = GaussianChain(**shape.chain), range(1, 5)
    quoted = {}
    if shape.is_head:
        naive = naive_marchenko_pastur(**shape.product)
        low, high = naive.support
        outside = float(law.cdf(low)) + float(law.sf(high))
        quoted["often_quoted"] = {"law": _NAIVE, **_support(naive), "fraction_outside": outside}
    return {
        "method": "asymptotic",
        "accuracy": _LIMIT if shape.is_head else _CHAIN_LIMIT,
        **_support(law),
        "hard_edge": law.has_hard_edge,
        "edge_scale": law.edge_scale,
        **quoted,
        "mean": law.mean(),
        "std": law.std(),
        "median": law.ppf(0.5),
        "moments": [law.moment(k) for k in orders],
        "cumulants": [law.cumulant(k) for k in orders],
        "free_cumulants": [law.free_cumulant(k) for k in orders],
        "quantiles": _quantiles(law.ppf, _BULK),
    }


def _support(law: GaussianChain | ResidualPath) -> dict[str, Any]:
    return {"support": law.support, "support_singular_values": [math.sqrt(edge) for edge in law.support]}


def _extreme_eigenvalues(shape: _Shape, statistics: dict[str, Any]) -> dict[str, Any]:
    found = {}
    for make in (largest_eigenvalue, smallest_eigenvalue):
        name = make.__name__
        known = statistics[name]
        found[name] = known | {"quantiles": None, "singular_value": None}
        if known["reason"] is None:
            edge = make(**shape.chain, self_normalized=shape.self_normalized)
            mean = edge.expect_power(0.5)
            found[name] |= {
                "quantiles": _quantiles(edge.ppf, _EXTREME),
                "singular_value": {"mean": mean, "std": math.sqrt(max(edge.mean() - mean**2, 0.0))},
            }
    return found


def _statistics(shape: _Shape) -> dict[str, Any]:
    """Return a summary of every registered null, or the reason why it does not cover the shape."""
    found = {}
    for name in NULL_STATISTICS:
        unknown = {"mean": None, "std": None, "quantiles": None, "method": None, "accuracy": None, "reason": None}
        try:
            law = null(name, **shape.chain, self_normalized=shape.self_normalized)
        except ParameterError as error:
            found[name] = unknown | {"reason": f"it needs {error.expected}"}
            continue
        found[name] = unknown | {
            "mean": law.mean(),
            "std": law.std(),
            "quantiles": _quantiles(law.ppf, _CENTRAL),
            "method": law.method,
            "accuracy": law.accuracy,
        }
    return found


def _exact_moments(shape: _Shape) -> dict[str, Any]:
    own = shape.self_normalized
    found: dict[str, Any] = {"method": "exact", "accuracy": "to rounding"}
    for power, name in ((1, "trace"), (2, "trace_of_square")):
        found[name] = _four_moments(trace_cumulants(power, **shape.chain, self_normalized=own))
        if shape.is_head:
            polynomial, factor, latex_factor = _mean_of_trace(shape, power)
            found[name] |= {
                "mean_formula": f"{polynomial}{factor}",
                "mean_latex": f"{polynomial.latex()}{latex_factor}",
            }
    found["log_determinant"] = _log_determinant(shape)
    unit: ChainKeywords = {"dims": shape.of.dims, "normalization": "none"}
    variances = math.prod(trace_cumulant((power, power), **unit, self_normalized=own) for power in (1, 2))
    covariance = trace_cumulant((2, 1), **unit, self_normalized=own)
    found["correlation_of_traces"] = float(covariance) / math.sqrt(variances) if variances else None
    return found


def _four_moments(moments: Moments) -> dict[str, float]:
    return {name: getattr(moments, name) for name in ("mean", "std", "skewness", "excess_kurtosis")}


def _log_determinant(shape: _Shape) -> dict[str, float] | None:
    if shape.is_head and shape.self_normalized and shape.d_head == 1:  # a constant
        value = (1.0 if shape.normalization == "sqrt_d" else 2.0) * math.log(shape.d_model)
        return _four_moments(Moments(value, 0.0, "exact"))
    try:
        law = LogDeterminant(**shape.chain, self_normalized=shape.self_normalized)
    except ParameterError:
        if shape.is_head:
            raise
        return None
    return {"mean": law.mean(), "std": law.std(), "skewness": law.skewness(), "excess_kurtosis": law.excess_kurtosis()}


def _mean_of_trace(shape: _Shape, power: int) -> tuple[DimensionPolynomial, str, str]:
    """Return E Σ λ^power as a polynomial in d and h, and its prefactor in Python's notation and in LaTeX."""
    polynomial = trace_moment_polynomial((power,), ("d", "h", "d"))
    if shape.normalization == "sqrt_d":  # every term has the factor d²
        divided = {(d - power, h): coefficient for (d, h), coefficient in polynomial.terms}
        polynomial = DimensionPolynomial.from_coefficients(polynomial.symbols, divided)
    if not shape.self_normalized:
        sigma_q, sigma_k = shape.of.sigmas
        if sigma_q == sigma_k:
            return polynomial, f"*sigma**{4 * power}", rf" \sigma^{{{4 * power}}}"
        exponent = 2 * power
        latex = rf" \sigma_{{Q}}^{{{exponent}}} \sigma_{{K}}^{{{exponent}}}"
        return polynomial, f"*sigma_q**{exponent}*sigma_k**{exponent}", latex
    if power == 1:
        return polynomial, "", ""
    # E (χ²_N / N)² = 1 + 2/N for either factor, N = d h.
    return polynomial, "/(1 + 2/(d*h))**2", r" \left(1 + \frac{2}{d h}\right)^{-2}"


def _element(shape: _Shape) -> dict[str, Any]:
    law = product_element(**shape.product)
    std = law.std()
    return {
        "method": "exact",
        "accuracy": _ELEMENT,
        "std": std,
        "excess_kurtosis": law.kurtosis(),
        "kl_to_normal": law.kl_to_normal(),
        "entropy": law.entropy(),
        "upper_quantiles": _quantiles(law.isf, _TAILS),
        "weibull_anchor": _anchor(parents.VarianceGamma(std, shape.d_head)),
        "normal_of_same_variance": {
            "entropy": normal_entropy(std),
            "upper_quantiles": _quantiles(lambda tails: -std * ndtri(tails), _TAILS),
            "weibull_anchor": _anchor(parents.Normal(std)),
        },
    }


def _anchor(parent: parents.Parent) -> dict[str, float]:
    anchor = weibull_anchor(distribution=parent)
    return {name: float(getattr(anchor, name)) for name in ("trim", "shape", "scale", "r_squared")}


def _spike(shape: _Shape, reason: str | None) -> dict[str, Any]:
    """Summarize spike thresholds and the power of the test on λ_max; ``reason`` says why λ_max has no null."""
    spikes = {
        "on_product": RankOneSpike(**shape.chain),
        "on_factor": RankOneSpike(**shape.chain, factor=0),
        "on_factor_alone": RankOneSpike(**_one_factor(shape)),
    }
    found: dict[str, Any] = {"method": "asymptotic", "accuracy": _SPIKE, "level": _LEVEL, "reason": reason}
    for name, spike in spikes.items():
        powers = {f"{p:g}": None if reason else spike.detectable_strength(p, _LEVEL) for p in _POWERS}
        found[name] = {"threshold": spike.threshold, "detectable_strength": powers}
    return found


def _one_factor(shape: _Shape) -> ChainKeywords:
    """Return the keywords of W_Q as a raw matrix."""
    return {"dims": (shape.d_head, shape.d_model), "sigma": shape.of.sigmas[0], "normalization": "none"}


def _factor(shape: _Shape) -> dict[str, Any]:
    law = GaussianChain(**_one_factor(shape))
    return {
        "method": "asymptotic",
        "accuracy": _LIMIT,
        "shape": [shape.d_head, shape.d_model],
        **_support(law),
        "hard_edge": law.has_hard_edge,
        "edge_scale": law.edge_scale,
        "mean": law.mean(),
        "std": law.std(),
    }


def _quantiles(ppf: Callable[[ArrayLike], ArrayLike], probabilities: tuple[float, ...]) -> dict[str, float]:
    return {f"{p:g}": float(x) for p, x in zip(probabilities, np.asarray(ppf(probabilities)), strict=True)}


def _plain(value: Any) -> Any:
    """Convert a value to dictionaries, lists, strings and finite numbers; None replaces what is not finite."""
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, float | np.floating | np.ndarray):
        number = float(value)
        return number if math.isfinite(number) else None
    return value
