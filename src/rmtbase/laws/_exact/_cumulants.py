"""Classical, free and joint cumulants from moments."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import combinations
from operator import mul
from typing import Any, TypeVar

Powers = tuple[int, ...]
Ring = TypeVar("Ring")


def classical_cumulants(moments: Sequence[Any], times: Callable[[Any, Any], Any] = mul) -> list[Any]:
    """Return κ_1, ..., κ_n from m_1, ..., m_n in any ring: κ_n = m_n - Σ_j C(n-1, j-1) κ_j m_{n-j}."""
    cumulants: list[Any] = []
    for n, moment in enumerate(moments, 1):
        lower = (math.comb(n - 1, j - 1) * times(kappa, moments[n - j - 1]) for j, kappa in enumerate(cumulants, 1))
        cumulants.append(moment - sum(lower))
    return cumulants


def free_cumulants(moments: Sequence[Fraction]) -> list[Fraction]:
    """Return the free cumulants: m_n = Σ_s κ_s [z^(n-s)] M(z)^s, M(z) = 1 + Σ_k m_k z^k (Speicher 1994)."""
    order = len(moments)
    series = [Fraction(1), *moments]
    powers = [[Fraction(1)] + [Fraction(0)] * order]
    for _ in range(order):
        last = powers[-1]
        powers.append([sum((last[i] * series[j - i] for i in range(j + 1)), Fraction(0)) for j in range(order + 1)])
    cumulants: list[Fraction] = []
    for n, moment in enumerate(moments, 1):
        cumulants.append(moment - sum(kappa * powers[s][n - s] for s, kappa in enumerate(cumulants, 1)))
    return cumulants


def joint_cumulant(variables: Powers, moment: Callable[[Powers], Ring], cumulant: Callable[[Powers], Ring]) -> Ring:
    """Return the joint cumulant of one or more variables, named by integers that may repeat; in any ring (Speed 1983).

    E Π_{i in S} x_i = Σ_B κ(B) E Π_{i not in B} x_i, over the blocks B of S that hold its first element. ``moment``
    maps variables to E of their product; ``cumulant`` is this function for fewer variables, cached by the caller.
    """
    first, rest = variables[0], variables[1:]
    total = moment(variables)
    for size in range(len(rest)):
        for chosen in combinations(range(len(rest)), size):
            block = (first, *(rest[i] for i in chosen))
            outside = tuple(x for i, x in enumerate(rest) if i not in chosen)
            total = total - cumulant(block) * moment(outside)  # type: ignore[operator]
    return total
