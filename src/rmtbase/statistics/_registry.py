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
        """
        value, scale = require_real_numbers("value", value), require_real_numbers("scale", scale)
        if self.scaling == "additive":
            return value + rank * np.log(scale)
        if self.scaling == 0:
            return value * np.ones_like(scale)
        return value * scale**self.scaling

    def rescale_spread(self, spread: ArrayLike, scale: ArrayLike) -> Numbers:
        """The statistic's standard deviation when the eigenvalues are ``scale`` times larger; no shift moves it."""
        spread, scale = require_real_numbers("spread", spread), require_real_numbers("scale", scale)
        if self.scaling == "additive":
            return spread + 0.0 * scale  # NaN for a head whose scale is not known
        return spread * scale**self.scaling


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

    Args:
        singular_values: shape ``(..., h)``, descending, structural zeros left out.
        names: which statistics; all by default.

    Returns:
        Array of shape ``(..., len(names))``, in the order of ``names``. A spectrum with λ_h = 0 has an infinite
        condition number and a log-determinant of -inf.

    Raises:
        ParameterError: an unknown name; singular values that are masked, no real numbers, or none at all.
    """
    s = require_real_numbers("singular_values", singular_values)
    if s.ndim == 0 or s.shape[-1] == 0:
        raise ParameterError("singular_values", s.shape, "shape (..., h) with at least one of them")
    on = {"eigenvalue": s**2, "singular value": s}
    chosen = [get_statistic(name) for name in names]
    with np.errstate(divide="ignore"):  # λ_h = 0 is a fact about the matrix, reported as an infinity
        return np.stack([statistic.function(on[statistic.convention]) for statistic in chosen], axis=-1)


def from_distance_scale(values: ArrayLike) -> Float[np.ndarray, "... statistic"]:
    """The values (..., statistic) that :func:`on_distance_scale` has brought to the scale of distances.

    Raises:
        ParameterError: values that are masked or no real numbers.
    """
    x = require_real_numbers("values", values)
    on_log = np.array([one.on_log_scale for one in SPECTRAL_STATISTICS.values()])
    return np.where(on_log, np.exp(np.where(on_log, x, 0.0)), x)


def on_distance_scale(values: ArrayLike) -> Float[np.ndarray, "... statistic"]:
    """Values (..., statistic), in the registry's order, on the scale on which distances from a null are taken.

    ln x of a statistic that is positive and has no upper bound, x of any other: on a linear scale a condition number,
    whose null is long-tailed, would always be the farthest.

    Raises:
        ParameterError: values that are masked or no real numbers.
    """
    x = require_real_numbers("values", values)
    on_log = np.array([one.on_log_scale for one in SPECTRAL_STATISTICS.values()])
    with np.errstate(divide="ignore"):  # a zero eigenvalue is infinitely far from any null
        return np.where(on_log, np.log(np.where(on_log, x, 1.0)), x)
