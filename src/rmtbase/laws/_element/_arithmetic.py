"""Two arithmetics for one formula: NumPy arrays in double precision, and mpmath at its working precision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from scipy import special

GUARD = 15  # decimal digits carried beyond those asked for

Number = Any
"""A float array in double precision, an mpf in mpmath: the formulas below do not ask."""


@dataclass(frozen=True)
class Arithmetic:
    """The functions that the laws of |w| are written with.

    Attributes:
        number: an exact rational in this arithmetic.
        beta_cdf: (a, b, x) ↦ I_x(a, b), the regularised incomplete beta function.
        where: the second argument where the first holds, else the third.
        the others: as in NumPy and SciPy.
    """

    number: Callable[[Fraction], Number]
    pi: Number
    sqrt: Callable[[Number], Number]
    exp: Callable[[Number], Number]
    expm1: Callable[[Number], Number]
    tanh: Callable[[Number], Number]
    erf: Callable[[Number], Number]
    erfc: Callable[[Number], Number]
    beta: Callable[[Number, Number], Number]
    beta_cdf: Callable[[Number, Number, Number], Number]
    where: Callable[[Any, Number, Number], Number]


FLOAT = Arithmetic(
    number=float,
    pi=np.pi,
    sqrt=np.sqrt,
    exp=np.exp,
    expm1=np.expm1,
    tanh=np.tanh,
    erf=special.erf,
    erfc=special.erfc,
    beta=special.beta,
    beta_cdf=special.betainc,
    where=np.where,
)


@cache
def multiprecision() -> Arithmetic:
    """Mpmath's functions, which follow its working precision; mpmath is imported on first use."""
    from mpmath import mp

    return Arithmetic(
        number=lambda value: mp.mpf(value.numerator) / value.denominator,
        beta_cdf=lambda a, b, x: mp.betainc(a, b, 0, x, regularized=True),
        where=lambda condition, a, b: a if condition else b,
        **{name: getattr(mp, name) for name in ("pi", "sqrt", "exp", "expm1", "tanh", "erf", "erfc", "beta")},
    )


def as_written(value: float | Fraction) -> Fraction:
    """The rational that a parameter is written as: 0.1 is 1/10, not the double nearest to it."""
    return value if isinstance(value, Fraction) else Fraction(repr(float(value)))


def decimal(value: Number, digits: int) -> str:
    """An mpf as a decimal string of ``digits`` significant digits, trailing zeros kept."""
    from mpmath import mp

    return str(mp.nstr(value, digits, strip_zeros=False))
