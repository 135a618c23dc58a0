"""Null of elements with another law than the draws at hand, by its fourth cumulant, and the laws that models show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType

import numpy as np
import xarray as xr
from jaxtyping import Float, Shaped

from rmtbase.errors import ParameterError
from rmtbase.nulls._head_null import (
    AT_OWN_SCALE,
    EDGE_LEVEL,
    ENTRIES_IN_WORDS,
    HeadNull,
    Heads,
    ScoredHeads,
    chain_scale,
)
from rmtbase.parameters import require_dims, require_real_numbers
from rmtbase.progress import Progress

LARGEST_KURTOSIS = 3.0
"""Largest excess kurtosis with which eigenvalues are moved at all. First order leaves an error of a quarter of a
standard deviation at 3, and of less than a tenth at 1.2. p-values of heads have a stricter limit:
:func:`kurtosis_range`."""

_RANGE = -1.75, 1.0
_ADDED_VARIANCE = 0.1


def kurtosis_range(dims: Sequence[int]) -> tuple[float, float]:
    """Smallest and largest excess kurtosis κ of a head's elements at which its p-values hold their level.

    The largest is 1 or, if smaller, the κ with ((1 + κ/2)² - 1)/r = 0.1, where r is the rank. The squared norms of the
    r rows of a factor spread by 2 + κ, where those of normal elements spread by 2; this adds that share to the variance
    of the log-determinant. Moving the eigenvalues corrects their mean, not their variance. The smallest is -1.75:
    elements of nearly equal size, ±w, are outside.

    Measured in studies/calibration (``kurtosis.json``) with 4 000 heads of each law of entries, 16 laws at (64, 12) and
    12 at (256, 32): for the admitted laws the omnibus test rejects 0.6 to 1.3 % at 1 %.
    """
    return _RANGE[0], min(_RANGE[1], 2.0 * (math.sqrt(1.0 + _ADDED_VARIANCE * min(require_dims(dims))) - 1.0))


@dataclass(frozen=True)
class KurtosisNull:
    """Gaussian null for elements of excess kurtosis κ, to first order: :func:`rmtbase.laws.eigenvalue_displacement`."""

    base: HeadNull  # the null of normal elements
    entries: str = "kurtosis"  # the law of the elements; "kurtosis" for any law, with each head's own κ̂
    kurtosis: float = np.nan  # excess kurtosis of that law; NaN for any law
    per_head = False
    edge_level = EDGE_LEVEL
    source: str = field(init=False, repr=False)
    method: str = field(init=False, repr=False)
    draws: int = field(init=False, repr=False)
    p_value_floor: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("source", "method", "draws", "p_value_floor"):
            object.__setattr__(self, name, getattr(self.base, name))

    def described(self, factors: str) -> str:
        if self.entries == "kurtosis":
            return f"kurtosis: independent elements of the head's own excess kurtosis in {factors} {AT_OWN_SCALE}"
        entries = ENTRIES_IN_WORDS[self.entries]
        return f"gaussian: i.i.d. {entries} {factors} {AT_OWN_SCALE}; from Gaussian ones by their kurtosis"

    def score_heads(self, heads: Heads, progress: Progress) -> ScoredHeads:
        kurtosis = np.full(heads.singular_values.shape[:2], self.kurtosis)
        if self.entries == "kurtosis":
            assert heads.prepared is not None  # Kurtosis.prepare returns it
            kurtosis = mean_kurtosis(self.base.dims, list(np.moveaxis(np.array(heads.prepared), -1, 0)))
        low, high = kurtosis_range(self.base.dims)
        scale = np.where((kurtosis < low) | (kurtosis > high), np.nan, chain_scale(heads.sigmas))
        return ScoredHeads(self.base.score(heads.singular_values, scale, kurtosis), self.base.null_group)

    def record(self) -> dict[str, object]:
        return {**self.base.record(), "kurtosis": "of each head" if self.entries == "kurtosis" else self.kurtosis}


def mean_kurtosis(dims: Sequence[int], kurtoses: Sequence[Float[np.ndarray, "..."]]) -> Float[np.ndarray, "..."]:
    """Mean excess kurtosis of the factors, weights 1/(n_{l-1} n_l): as a common one it moves the spectrum as much."""
    weights = [1.0 / (m * n) for m, n in pairwise(require_dims(dims))]
    checked = [require_real_numbers(f"kurtoses[{place}]", kurtosis) for place, kurtosis in enumerate(kurtoses)]
    if len(checked) != len(weights) or any(np.isinf(kurtosis).any() for kurtosis in checked):
        expected = f"{len(weights)}, one for each factor, none infinite"
        raise ParameterError("kurtoses", f"{len(checked)} arrays", expected)
    return sum(w * kurtosis for w, kurtosis in zip(weights, checked, strict=True)) / sum(weights)  # type: ignore[return-value]


def own_kurtosis(weights: Shaped[np.ndarray, "... rank width"]) -> Float[np.ndarray, "..."]:
    """Excess kurtosis ⟨w⁴⟩/⟨w²⟩² - 3 of each matrix, about zero; NaN for a matrix of zeros."""
    with np.errstate(invalid="ignore"):
        unit = weights.astype(np.float64) / np.abs(weights).max(axis=(-1, -2), keepdims=True)
        squares = unit * unit
        return np.mean(squares * squares, axis=(-1, -2)) / np.mean(squares, axis=(-1, -2)) ** 2 - 3.0


# N(0, 1) cut at ±a has m₂ = 1 - 2aφ(a)/P and m₄ = 3 - 2(a³ + 3a)φ(a)/P, with P = P(-a < x < a); here a = 2.
_DENSITY = 2.0 * math.exp(-2.0) / math.sqrt(2.0 * math.pi) / math.erf(2.0 / math.sqrt(2.0))
_TRUNCATED = (3.0 - 14.0 * _DENSITY) / (1.0 - 2.0 * _DENSITY) ** 2 - 3.0

KURTOSIS = MappingProxyType({"normal": 0.0, "uniform": -1.2, "truncated_normal": _TRUNCATED})
"""Excess kurtosis of independent entries by how they were drawn (``rmtbase.parameters.INITIALIZATIONS``)."""

_WITHIN = 5.0  # standard errors
_READ = ("attention_query", "attention_key")
_WORDS = MappingProxyType(
    {
        "normal": "as by normal initialisation",
        "uniform": "as by uniform initialisation (torch.nn.Linear's own)",
        "truncated_normal": "as by normal initialisation truncated at two standard deviations",
    }
)


def initialization(matrices: xr.Dataset) -> str:
    """Find the only law of :data:`KURTOSIS` within 5 standard errors √(24/N) of all query and key matrices, or ""."""
    components = [name for name in _READ if name in matrices["component"]]
    factors = matrices.sel(component=components)
    kurtosis = factors["observed"].sel(statistic="excess_kurtosis")
    error = np.sqrt(24.0 / (factors["n_rows"] * factors["n_columns"]))
    scored = kurtosis.notnull()
    if not components or not bool(scored.any()):
        return ""
    fits = {name: (abs(kurtosis - expected) < _WITHIN * error) | ~scored for name, expected in KURTOSIS.items()}
    compatible = [name for name, fit in fits.items() if bool(fit.all())]
    return compatible[0] if len(compatible) == 1 else ""  # tiny matrices are compatible with several


def initialization_note(matrices: xr.Dataset, of_null: str = "normal") -> str | None:
    name = initialization(matrices)
    if not name:
        return None
    kurtosis = KURTOSIS[name]
    line = f"entries of W_Q and W_K are distributed {_WORDS[name]}: excess kurtosis {kurtosis:.2f}"
    if name == of_null:
        return line
    shift = abs(kurtosis - KURTOSIS[of_null]) / math.sqrt(2.0)
    return (
        f"{line}, but the null is that of {of_null.replace('_', ' ')} entries. At any size this shifts the log-"
        f"determinant of an untrained head by {shift:.2f} standard deviations, so that its p-values are not "
        f"calibrated; with initialization={name!r} they are"
    )
