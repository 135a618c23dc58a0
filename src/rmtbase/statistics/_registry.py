"""Registry of spectral statistics: name, symbol, formula, convention, scaling, range, code, and the moments they have.

A name that ends in ``_singular`` stands for the formula with the singular values s_k = √λ_k instead of the eigenvalues
λ_1 ≥ … ≥ λ_h: mixing the two changes conclusions. Only the h structurally nonzero ones count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import starmap
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.special import entr

from rmtbase.errors import ParameterError
from rmtbase.parameters import require_real_numbers
from rmtbase.shown import in_one_line

Convention = Literal["eigenvalue", "singular value"]
Spectra = Float[np.ndarray, "... rank"]
Numbers = Float[np.ndarray, "..."]
_Registered = TypeVar("_Registered")

_LEAST = 2.0**-250  # smallest singular value, and inverse of the largest: sums of their fourth powers fit in float64


@in_one_line
@dataclass(frozen=True)
class Statistic:
    """Statistic of a spectrum."""

    name: str  #: its name in code, files and reports
    long_name: str  #: its name in words, for axes and tables
    symbol: str  #: in LaTeX
    formula: str  #: in LaTeX, for the values that ``convention`` names
    convention: Convention  #: ``"eigenvalue"`` (a function of λ = s²) or ``"singular value"`` (a function of s)
    scaling: int | Literal["additive"]  #: power of σ_Q² σ_K² with which it scales; ``"additive"`` for h ln(σ_Q² σ_K²)
    #: lower, upper: its range, in words
    lower: str
    upper: str
    function: Callable[[Spectra], Numbers]  #: maps values (..., h), descending, to (...)
    inverse_power: float = 0.0  #: power of 1/λ_h with which it grows as λ_h → 0

    @cached_property
    def on_log_scale(self) -> bool:
        """True if distances from the null are taken in its logarithm: it is positive and has no upper bound."""
        return self.scaling != "additive" and self.upper == "inf"

    def rescale(self, value: ArrayLike, scale: ArrayLike, rank: int) -> Numbers:
        """Convert the statistic of a spectrum to that of a spectrum with eigenvalues ``scale`` times larger.

        NaN (a value or scale that is not known) gives NaN.

        Args:
            value: statistic of the given spectrum.
            scale: factor on the eigenvalues, such as σ_Q² σ_K².
            rank: number h of eigenvalues.

        Raises:
            ParameterError: values or scales are masked or not real, or a scale is not positive and finite.
        """
        value, scale = require_real_numbers("value", value), _require_scale(scale)
        return value + rank * np.log(scale) if self.scaling == "additive" else value * scale**self.scaling

    def rescale_spread(self, spread: ArrayLike, scale: ArrayLike) -> Numbers:
        """Convert the standard deviation in the same way; a shift, as of the log-determinant, leaves it unchanged."""
        spread, scale = require_real_numbers("spread", spread), _require_scale(scale)
        if self.scaling == "additive":
            return spread + 0.0 * scale  # NaN for a head whose scale is not known
        return spread * scale**self.scaling


def _require_scale(scale: ArrayLike) -> Numbers:
    checked = require_real_numbers("scale", scale)
    bad = (checked <= 0.0) | np.isinf(checked)
    if bad.any():
        raise ParameterError("scale", float(checked[bad].flat[0]), "finite positive numbers, NaN where not known")
    return checked


def _sum_of_squares(x: Spectra) -> Numbers:
    return np.einsum("...k,...k->...", x, x)


def _participation_ratio(x: Spectra) -> Numbers:
    return x.sum(axis=-1) ** 2 / _sum_of_squares(x)


def _entropy(x: Spectra) -> Numbers:
    return entr(x / x.sum(axis=-1)[..., None]).sum(axis=-1)


_LAMBDA: Convention = "eigenvalue"
_S: Convention = "singular value"

_ROWS: tuple[tuple[Any, ...], ...] = (
    ("participation_ratio", "participation ratio", r"\mathrm{PR}", r"(\sum_k {x}_k)^2 / \sum_k {x}_k^2",
     _LAMBDA, 0, "1", "h", _participation_ratio),
    ("normalized_participation_ratio", "normalized participation ratio", r"\mathrm{NPR}",
     r"(\sum_k {x}_k)^2 / (h \sum_k {x}_k^2)", _LAMBDA, 0, "1/h", "1", lambda x: _participation_ratio(x) / x.shape[-1]),
    ("spectral_entropy", "spectral entropy", "S", r"-\sum_k p_k \ln p_k,\ p_k = {x}_k / \sum_j {x}_j",
     _LAMBDA, 0, "0", "ln h", _entropy),
    ("condition_number", "condition number", r"\kappa", "{x}_1 / {x}_h", _LAMBDA, 0, "1", "inf",
     lambda x: x[..., 0] / x[..., -1], 1.0),
    ("stable_rank", "stable rank", r"r_s", r"\sum_k {x}_k / {x}_1", _LAMBDA, 0, "1", "h",
     lambda x: x.sum(axis=-1) / x[..., 0]),
)  # fmt: skip
_OF_EITHER = tuple(starmap(Statistic, _ROWS))
"""Statistics of eigenvalues and of singular values; {x} stands for either in their formulas."""

_ALL = (
    Statistic("largest_eigenvalue", "largest eigenvalue", r"\lambda_1", r"\lambda_1", _LAMBDA, 1, "0", "inf",
              lambda x: x[..., 0]),
    Statistic("smallest_eigenvalue", "smallest eigenvalue", r"\lambda_h", r"\lambda_h", _LAMBDA, 1, "0", "inf",
              lambda x: x[..., -1]),
    Statistic("trace", "trace", r"\Sigma\lambda", r"\sum_k \lambda_k", _LAMBDA, 1, "0", "inf",
              lambda x: x.sum(axis=-1)),
    Statistic("trace_of_square", "trace of the square", r"\Sigma\lambda^2", r"\sum_k \lambda_k^2", _LAMBDA, 2, "0",
              "inf", _sum_of_squares),
    *(replace(statistic, formula=statistic.formula.format(x=r"\lambda")) for statistic in _OF_EITHER),
    Statistic("log_determinant", "log-determinant", r"\ln\det", r"\sum_k \ln \lambda_k", _LAMBDA, "additive", "-inf",
              "inf", lambda x: np.log(x).sum(axis=-1)),
    Statistic("effective_rank", "effective rank", r"r_{\mathrm{eff}}",
              r"\exp(-\sum_k p_k \ln p_k),\ p_k = s_k / \sum_j s_j", _S, 0, "1", "h", lambda x: np.exp(_entropy(x))),
    *(
        replace(
            statistic, name=f"{statistic.name}_singular", long_name=f"{statistic.long_name} of singular values",
            symbol=statistic.symbol + "^{(s)}", formula=statistic.formula.format(x="s"), convention=_S,
            inverse_power=statistic.inverse_power / 2,
        )
        for statistic in _OF_EITHER
    ),
)  # fmt: skip

SPECTRAL_STATISTICS: dict[str, Statistic] = {statistic.name: statistic for statistic in _ALL}
"""Spectral statistics by name, in the order in which tables list them."""


_ON_LOG_SCALE = np.array([statistic.on_log_scale for statistic in _ALL])
_ADDITIVE = np.array([statistic.scaling == "additive" for statistic in _ALL])
_POWER = np.array([0 if statistic.scaling == "additive" else statistic.scaling for statistic in _ALL])


def get_statistic(name: str) -> Statistic:
    return registered(SPECTRAL_STATISTICS, name)


def registered(registry: Mapping[str, _Registered], name: str, argument: str = "statistic") -> _Registered:
    if not isinstance(name, str) or name not in registry:
        raise ParameterError(argument, name, f"one of {', '.join(registry)}")
    return registry[name]


def spectral_statistics(
    singular_values: ArrayLike, names: Iterable[str] = tuple(SPECTRAL_STATISTICS)
) -> Float[np.ndarray, "... statistic"]:
    """Spectral statistics of many spectra at once.

    Statistics of the shape of a spectrum do not depend on its scale, at any scale that float64 can hold. A statistic in
    units of λ that is out of range is rounded to infinity or zero, as in IEEE 754.

    Args:
        singular_values: shape ``(..., h)``, finite, not negative, descending, without structural zeros.
        names: names of the statistics; all by default.

    Returns:
        Array of shape ``(..., len(names))``, in the order of ``names``. A spectrum with λ_h = 0 has an infinite
        condition number and a log-determinant of -inf.

    Raises:
        ParameterError: a name is unknown; singular values are masked, not real, NaN, infinite, negative or not in
            descending order, or there are none; or a statistic of shape is requested for a spectrum of zeros.
    """
    s = require_real_numbers("singular_values", singular_values)
    if s.ndim == 0 or s.shape[-1] == 0:
        raise ParameterError("singular_values", s.shape, "shape (..., h) with at least one of them")
    chosen = [registered(SPECTRAL_STATISTICS, name, "names") for name in names]
    _require_spectra(s, any(statistic.scaling == 0 for statistic in chosen))
    # Spectra are divided by a power of two near s_1 if a fourth power would be out of range of float64. The division is
    # exact; if fourth powers are in range, it would change no bit of any statistic.
    first, last = s[..., :1], s[..., -1:]
    ordinary = ((first > _LEAST) & (first < 1.0 / _LEAST) & ((last > _LEAST) | (last == 0.0))).all()
    unit = s if ordinary else np.ldexp(s, -np.frexp(first)[1])
    with np.errstate(divide="ignore", over="ignore", under="ignore"):  # infinities and zeros are returned as such
        of_all = {"eigenvalue": s**2, "singular value": s}
        of_shape = of_all if ordinary else {"eigenvalue": unit**2, "singular value": unit}
        values = []
        for statistic in chosen:
            spectra = (of_shape if statistic.scaling == 0 else of_all)[statistic.convention]
            is_log = statistic.scaling == "additive" and not ordinary
            values.append(2.0 * statistic.function(s) if is_log else statistic.function(spectra))
        return np.stack(values, axis=-1) if values else np.empty((*s.shape[:-1], 0))


def _require_spectra(s: Spectra, of_shape: bool) -> None:
    expected = "finite singular values that are not negative, in descending order"
    first, last = s[..., 0], s[..., -1]
    # Values that descend from a finite number to a nonnegative one contain no NaN, infinite or negative value.
    if (np.isfinite(first) & (last >= 0.0)).all() and (s[..., 1:] <= s[..., :-1]).all():
        if of_shape and not (first > 0.0).all():
            count = f"{int((first == 0.0).sum())} of {first.size} spectra" if first.ndim else "a spectrum"
            raise ParameterError("singular_values", f"{count} of zeros", "no spectrum of zeros, which has no shape")
        return
    nan, infinite, negative = (int(np.count_nonzero(mask)) for mask in (np.isnan(s), np.isinf(s), s < 0.0))
    if nan or infinite or negative:
        fault = f"{nan} NaN, {infinite} infinite and {negative} negative values among {s.size}"
    else:
        fault = "values that do not descend"
        expected += ": sort them (numpy.sort(s)[..., ::-1])"
    raise ParameterError("singular_values", fault, expected)


def rescale_statistics(values: ArrayLike, scale: ArrayLike, rank: int) -> Float[np.ndarray, "... statistic"]:
    """Rescale values (..., statistic) in the registry's order; with ``rank`` 0 deviations, which no shift changes."""
    x, scale = _require_values(values), _require_scale(scale)
    power = np.stack([scale**power for power in range(_POWER.max() + 1)], axis=-1)
    # In one memory order, on which the last bits of later sums depend.
    return np.ascontiguousarray(np.where(_ADDITIVE, x + rank * np.log(scale)[..., None], x * power[..., _POWER]))


def from_distance_scale(values: ArrayLike) -> Float[np.ndarray, "... statistic"]:
    x = _require_values(values)
    with np.errstate(over="ignore"):  # overflow gives an infinity
        return np.where(_ON_LOG_SCALE, np.exp(np.where(_ON_LOG_SCALE, x, 0.0)), x)


def on_distance_scale(values: ArrayLike) -> Float[np.ndarray, "... statistic"]:
    """ln x of statistics that are positive without an upper bound, whose nulls have long tails; x of others."""
    x = _require_values(values)
    if (x < 0.0)[..., _ON_LOG_SCALE].any():
        raise ParameterError("values", "negative values", "no negative value of a positive statistic")
    with np.errstate(divide="ignore"):  # a zero eigenvalue is infinitely far from any null
        return np.where(_ON_LOG_SCALE, np.log(np.where(_ON_LOG_SCALE, x, 1.0)), x)


def _require_values(values: ArrayLike) -> Float[np.ndarray, "... statistic"]:
    x = require_real_numbers("values", values)
    if x.ndim == 0 or x.shape[-1] != len(SPECTRAL_STATISTICS):
        raise ParameterError("values", f"shape {x.shape}", f"shape (..., {len(SPECTRAL_STATISTICS)})")
    return x


FloatArray = Float[np.ndarray, "..."]


class ExtremeMoments(NamedTuple):
    smallest: float = math.inf  #: E λ_h^(-p) is finite for p below it, and infinite for other p
    largest: float = math.inf  #: E λ_1^p is finite for p below it, and infinite for other p


def inverse_moment_order(dims: Sequence[int]) -> float:
    """Order (g + 1)/2 from which on E λ_h^(-p) is infinite, g the second smallest dimension less the smallest."""
    # P(λ_h < x) ∝ x^((n - h + 1)/2) for Wishart factors of n degrees of freedom, and the smallest exponent decides: A.
    # Edelman, SIAM J. Matrix Anal. Appl. 9, 543 (1988); J. R. Ipsen and M. Kieburg, Phys. Rev. E 89, 032106 (2014), for
    # the factors.
    smallest, second, *_ = sorted(dims)
    return (second - smallest + 1) / 2


def moment_order(statistic: Statistic, extremes: ExtremeMoments, rank: int) -> float:
    """Smallest order p at which the moments E|x|^p of a statistic are infinite; below it they are finite.

    x grows as λ_h^(-a) and λ_1^b, with a its ``inverse_power`` and b its ``scaling`` or, if larger, a. The order is the
    smaller of those that λ_h and λ_1 allow. So the condition number of W_QK has a mean if d_model - d_head ≥ 2 and a
    variance if it is ≥ 4; for the condition number of singular values, ≥ 1 and ≥ 2. In a spectrum of one eigenvalue
    all ratios are constant. λ_h is large only if h elements are large, no two of them in a row or column.
    """
    scaling = 0 if statistic.scaling == "additive" else statistic.scaling
    if rank == 1 and scaling == 0:
        return math.inf
    below, above = statistic.inverse_power, max(scaling, statistic.inverse_power)
    if statistic.name == "smallest_eigenvalue":
        above /= rank
    return min(extremes.smallest / below if below else math.inf, extremes.largest / above if above else math.inf)


def moment_orders(extremes: ExtremeMoments, rank: int) -> Float[np.ndarray, " statistic"]:
    return np.array([moment_order(statistic, extremes, rank) for statistic in SPECTRAL_STATISTICS.values()])


def eigenvalue_moment_orders(extremes: ExtremeMoments, rank: int) -> Float[np.ndarray, " index"]:
    """Order k times that of λ_1 for λ_k, which is large only if k elements are, no two of them in a row or column."""
    return extremes.largest * np.arange(1, rank + 1)


def drawn_moments(mean: ArrayLike, std: ArrayLike, order: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Keep a finite mean, and a deviation whose fourth moment is finite: other estimates vary from seed to seed."""
    mean, std = require_real_numbers("mean", mean), require_real_numbers("std", std)
    return np.where(np.greater(order, 1), mean, np.nan), np.where(np.greater(order, 4), std, np.nan)


def missing_moment(name: str, order: float) -> str | None:
    if order > 2:
        return None
    lacks = "mean" if order <= 1 else "standard deviation"
    return f"{name} has no {lacks} here: E x^p is infinite for p >= {order:g}"
