"""Two arithmetics for the same formulas: NumPy arrays in double precision, and mpmath at its working precision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from scipy import special

GUARD = 15  # decimal digits carried beyond the requested ones

Number = Any
"""A float array in double precision, or an mpf in mpmath; the formulas work with either."""


@dataclass(frozen=True)
class Arithmetic:
    """Functions for the formulas of the laws of |w|. Those not listed below are as in NumPy and SciPy."""

    number: Callable[[Fraction], Number]  # converts an exact rational number to this arithmetic
    pi: Number
    sqrt: Callable[[Number], Number]
    exp: Callable[[Number], Number]
    expm1: Callable[[Number], Number]
    tanh: Callable[[Number], Number]
    erf: Callable[[Number], Number]
    erfc: Callable[[Number], Number]
    beta: Callable[[Number, Number], Number]
    # (a, b, x) ↦ I_x(a, b), the regularised incomplete beta function
    beta_cdf: Callable[[Number, Number, Number], Number]
    # returns the second argument where the first is true, else the third
    where: Callable[[Any, Number, Number], Number]


FLOAT = Arithmetic(
    float, np.pi, np.sqrt, np.exp, np.expm1, np.tanh,
    special.erf, special.erfc, special.beta, special.betainc, np.where,
)  # fmt: skip


@cache
def multiprecision() -> Arithmetic:
    from mpmath import mp

    return Arithmetic(
        number=lambda value: mp.mpf(value.numerator) / value.denominator,
        beta_cdf=lambda a, b, x: mp.betainc(a, b, 0, x, regularized=True),
        where=lambda condition, a, b: a if condition else b,
        **{name: getattr(mp, name) for name in ("pi", "sqrt", "exp", "expm1", "tanh", "erf", "erfc", "beta")},
    )


def as_written(value: float | Fraction) -> Fraction:
    """Return a parameter as the rational number of its decimal form: 0.1 is 1/10, not the nearest double."""
    return value if isinstance(value, Fraction) else Fraction(repr(float(value)))


def decimal(value: Number, digits: int) -> str:
    from mpmath import mp

    return str(mp.nstr(value, digits, strip_zeros=False))
