"""The registry of spectral statistics: name, symbol, formula, convention, scaling and range, with the code.

λ_1 ≥ … ≥ λ_h are the eigenvalues of W_QKᵀ W_QK and s_k = √λ_k the singular values of W_QK; only the h = d_head
structurally nonzero ones count. Both conventions in use are offered under different names: a name that ends in
``_singular`` is the same formula on s instead of λ. Mixing the two flips conclusions: for a random head of
(768, 64) the normalized participation ratio is 0.855 on λ and 0.958 on s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike
from scipy.special import entr

from rmtbase.errors import ParameterError
from rmtbase.parameters import require_real_numbers
from rmtbase.shown import in_one_line

Convention = Literal["eigenvalue", "singular value"]
Spectra = Float[np.ndarray, "... rank"]
Numbers = Float[np.ndarray, "..."]
_Registered = TypeVar("_Registered")

_LEAST = 2.0**-250  # of singular values: their fourth powers, summed, and those of their inverses are doubles


@in_one_line
@dataclass(frozen=True)
class Statistic:
    """One number of a spectrum.

    Attributes:
        name: its one name, in code, files and reports.
        long_name: in words, for axes and tables.
        symbol: in LaTeX.
        formula: in LaTeX, on the values that ``convention`` names.
        convention: ``"eigenvalue"`` (a function of λ = s²) or ``"singular value"`` (a function of s).
        scaling: power of σ_Q² σ_K² that it scales with; ``"additive"`` for h ln(σ_Q² σ_K²).
        lower, upper: its range, in words.
        function: maps values (..., h), descending, to (...).
        inverse_power: power of 1/λ_h with which it grows as λ_h → 0.
    """

    name: str
    long_name: str
    symbol: str
    formula: str
    convention: Convention
    scaling: int | Literal["additive"]
    lower: str
    upper: str
    function: Callable[[Spectra], Numbers]
    inverse_power: float = 0.0

    @property
    def on_log_scale(self) -> bool:
        """Whether distances from the null are taken in its logarithm: positive and without an upper bound."""
        return self.scaling != "additive" and self.upper == "inf"

    def rescale(self, value: ArrayLike, scale: ArrayLike, rank: int) -> Numbers:
        """The statistic of a spectrum whose eigenvalues are ``scale`` times larger.

        Args:
            value: the statistic of the spectrum at hand.
            scale: factor on the eigenvalues, σ_Q² σ_K² say.
            rank: number h of eigenvalues.

        Raises:
            ParameterError: values or scales that are masked or no real numbers; a scale that is not positive and
                finite. NaN, of what is not known, gives NaN.
        """
        value, scale = require_real_numbers("value", value), _require_scale(scale)
        if self.scaling == "additive":
            return value + rank * np.log(scale)
        if self.scaling == 0:
            return value * np.ones_like(scale)
        return value * scale**self.scaling

    def rescale_spread(self, spread: ArrayLike, scale: ArrayLike) -> Numbers:
        """The statistic's standard deviation when the eigenvalues are ``scale`` times larger; no shift moves it.

        Raises:
            ParameterError: as :meth:`rescale`.
        """
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


def _first(x: Spectra) -> Numbers:
    return x[..., 0]


def _last(x: Spectra) -> Numbers:
    return x[..., -1]


def _sum(x: Spectra) -> Numbers:
    return x.sum(axis=-1)


def _sum_of_squares(x: Spectra) -> Numbers:
    return np.einsum("...k,...k->...", x, x)


def _participation_ratio(x: Spectra) -> Numbers:
    return _sum(x) ** 2 / _sum_of_squares(x)


def _normalized_participation_ratio(x: Spectra) -> Numbers:
    return _participation_ratio(x) / x.shape[-1]


def _entropy(x: Spectra) -> Numbers:
    return entr(x / _sum(x)[..., None]).sum(axis=-1)


def _effective_rank(x: Spectra) -> Numbers:
    return np.exp(_entropy(x))


def _condition_number(x: Spectra) -> Numbers:
    return _first(x) / _last(x)


def _stable_rank(x: Spectra) -> Numbers:
    return _sum(x) / _first(x)


def _log_determinant(x: Spectra) -> Numbers:
    return np.log(x).sum(axis=-1)


_LAMBDA: Convention = "eigenvalue"
_S: Convention = "singular value"

_OF_EITHER = (
    Statistic(
        "participation_ratio", "participation ratio", r"\mathrm{PR}", r"(\sum_k x_k)^2 / \sum_k x_k^2",
        _LAMBDA, 0, "1", "h", _participation_ratio,
    ),
    Statistic(
        "normalized_participation_ratio", "normalized participation ratio", r"\mathrm{NPR}",
        r"(\sum_k x_k)^2 / (h \sum_k x_k^2)", _LAMBDA, 0, "1/h", "1", _normalized_participation_ratio,
    ),
    Statistic(
        "spectral_entropy", "spectral entropy", "S", r"-\sum_k p_k \ln p_k,\ p_k = x_k / \sum_j x_j",
        _LAMBDA, 0, "0", "ln h", _entropy,
    ),
    Statistic(
        "condition_number", "condition number", r"\kappa", r"x_1 / x_h", _LAMBDA, 0, "1", "inf", _condition_number,
        inverse_power=1.0,
    ),
    Statistic("stable_rank", "stable rank", r"r_s", r"\sum_k x_k / x_1", _LAMBDA, 0, "1", "h", _stable_rank),
)  # fmt: skip
"""Those that are taken of both, with x for the values in their formulas."""

_ALL = (
    Statistic("largest_eigenvalue", "largest eigenvalue", r"\lambda_1", r"\lambda_1", _LAMBDA, 1, "0", "inf", _first),
    Statistic("smallest_eigenvalue", "smallest eigenvalue", r"\lambda_h", r"\lambda_h", _LAMBDA, 1, "0", "inf", _last),
    Statistic("trace", "trace", r"\Sigma\lambda", r"\sum_k \lambda_k", _LAMBDA, 1, "0", "inf", _sum),
    Statistic(
        "trace_of_square", "trace of the square", r"\Sigma\lambda^2", r"\sum_k \lambda_k^2", _LAMBDA, 2, "0", "inf",
        _sum_of_squares,
    ),
    *(replace(one, formula=one.formula.replace("x", r"\lambda")) for one in _OF_EITHER),
    Statistic(
        "log_determinant", "log-determinant", r"\ln\det", r"\sum_k \ln \lambda_k", _LAMBDA, "additive", "-inf",
        "inf", _log_determinant,
    ),
    Statistic(
        "effective_rank", "effective rank", r"r_{\mathrm{eff}}",
        r"\exp(-\sum_k p_k \ln p_k),\ p_k = s_k / \sum_j s_j", _S, 0, "1", "h", _effective_rank,
    ),
    *(
        replace(
            one, name=f"{one.name}_singular", long_name=f"{one.long_name} of singular values",
            symbol=one.symbol + "^{(s)}", formula=one.formula.replace("x", "s"), convention=_S,
            inverse_power=one.inverse_power / 2,
        )
        for one in _OF_EITHER
    ),
)  # fmt: skip

SPECTRAL_STATISTICS: dict[str, Statistic] = {statistic.name: statistic for statistic in _ALL}
"""Every spectral statistic by name, in the order in which tables list them."""


def get_statistic(name: str) -> Statistic:
    """The registered statistic of that name.

    Raises:
        ParameterError: there is none; the message lists those there are.
    """
    return registered(SPECTRAL_STATISTICS, name)


def registered(registry: Mapping[str, _Registered], name: str) -> _Registered:
    """What a registry of statistics holds under a name; raises as :func:`get_statistic`."""
    if not isinstance(name, str) or name not in registry:
        raise ParameterError("statistic", name, f"one of {', '.join(registry)}")
    return registry[name]


def spectral_statistics(
    singular_values: ArrayLike, names: Iterable[str] = tuple(SPECTRAL_STATISTICS)
) -> Float[np.ndarray, "... statistic"]:
    """Spectral statistics of many spectra at once.

    Statistics of the shape of a spectrum do not depend on its scale, as long as its values are doubles. One in units
    of λ that is beyond the doubles is rounded as IEEE 754 has it: to infinity, or to zero.

    Args:
        singular_values: shape ``(..., h)``, finite, not negative, descending, structural zeros left out.
        names: which statistics; all by default.

    Returns:
        Array of shape ``(..., len(names))``, in the order of ``names``. A spectrum with λ_h = 0 has an infinite
        condition number and a log-determinant of -inf.

    Raises:
        ParameterError: an unknown name; singular values that are masked, no real numbers, NaN, infinite, negative or
            not in descending order, or none at all; where a statistic of shape is asked for, a spectrum of zeros.
    """
    s = require_real_numbers("singular_values", singular_values)
    if s.ndim == 0 or s.shape[-1] == 0:
        raise ParameterError("singular_values", s.shape, "shape (..., h) with at least one of them")
    chosen = [get_statistic(name) for name in names]
    _require_spectra(s, any(one.scaling == 0 for one in chosen))
    unit = _at_unit_scale(s)
    ordinary = unit is s
    with np.errstate(divide="ignore", over="ignore", under="ignore"):  # infinities and zeros that are reported as such
        of_all = {"eigenvalue": s**2, "singular value": s}
        of_shape = of_all if ordinary else {"eigenvalue": unit**2, "singular value": unit}
        found = []
        for one in chosen:
            if one.scaling == "additive" and not ordinary:
                found.append(2.0 * one.function(s))
            else:
                found.append(one.function((of_shape if one.scaling == 0 else of_all)[one.convention]))
        return np.stack(found, axis=-1) if found else np.empty((*s.shape[:-1], 0))


def _require_spectra(s: Spectra, of_shape: bool) -> None:
    expected = "finite singular values that are not negative, in descending order"
    first, last = s[..., 0], s[..., -1]
    # Of what descends from a finite number to one that is not negative nothing is NaN, infinite or negative.
    if (np.isfinite(first) & (last >= 0.0)).all() and (s[..., 1:] <= s[..., :-1]).all():
        if of_shape and not (first > 0.0).all():
            count = f"{int((first == 0.0).sum())} of {first.size} spectra" if first.ndim else "a spectrum"
            raise ParameterError("singular_values", f"{count} of zeros", "no spectrum of zeros, which has no shape")
        return
    nan, infinite, negative = (int(np.count_nonzero(one)) for one in (np.isnan(s), np.isinf(s), s < 0.0))
    if nan or infinite or negative:
        found = f"{nan} NaN, {infinite} infinite and {negative} negative values among {s.size}"
    else:
        found = "values that do not descend"
        expected += ": sort them (numpy.sort(s)[..., ::-1])"
    raise ParameterError("singular_values", found, expected)


def _at_unit_scale(s: Spectra) -> Spectra:
    """The spectra themselves, or where a fourth power would leave float64 divided by a power of two that is near s_1.

    Such a division is exact; where the fourth powers are doubles it would change no bit of any statistic.
    """
    first, last = s[..., :1], s[..., -1:]
    if ((first > _LEAST) & (first < 1.0 / _LEAST) & ((last > _LEAST) | (last == 0.0))).all():
        return s
    return np.ldexp(s, -np.frexp(first)[1])


def from_distance_scale(values: ArrayLike) -> Float[np.ndarray, "... statistic"]:
    """The values (..., statistic) that :func:`on_distance_scale` has brought to the scale of distances.

    Raises:
        ParameterError: values that are masked or no real numbers, or not one of each statistic.
    """
    x, on_log = _require_values(values)
    with np.errstate(over="ignore"):  # infinitely far
        return np.where(on_log, np.exp(np.where(on_log, x, 0.0)), x)


def on_distance_scale(values: ArrayLike) -> Float[np.ndarray, "... statistic"]:
    """Values (..., statistic), in the registry's order, on the scale on which distances from a null are taken.

    ln x of a statistic that is positive and has no upper bound, x of any other: on a linear scale a condition number,
    whose null is long-tailed, would always be the farthest. NaN, of what is not known, stays NaN.

    Raises:
        ParameterError: values that are masked or no real numbers, not one of each statistic, or negative where the
            statistic is positive.
    """
    x, on_log = _require_values(values)
    if (x < 0.0)[..., on_log].any():
        raise ParameterError("values", "negative ones", "none that is negative of a statistic that is positive")
    with np.errstate(divide="ignore"):  # a zero eigenvalue is infinitely far from any null
        return np.where(on_log, np.log(np.where(on_log, x, 1.0)), x)


def _require_values(values: ArrayLike) -> tuple[Float[np.ndarray, "... statistic"], Bool[np.ndarray, " statistic"]]:
    """The values, one of each statistic, and which statistics are on a logarithmic scale."""
    x = require_real_numbers("values", values)
    if x.ndim == 0 or x.shape[-1] != len(SPECTRAL_STATISTICS):
        raise ParameterError("values", f"shape {x.shape}", f"shape (..., {len(SPECTRAL_STATISTICS)})")
    return x, np.array([one.on_log_scale for one in SPECTRAL_STATISTICS.values()])
