"""Classical and free cumulants from moments, in rational arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction


def classical_cumulants(moments: Sequence[Fraction]) -> list[Fraction]:
    """Return kappa_1, ..., kappa_n from m_1, ..., m_n: kappa_n = m_n - sum_j C(n-1, j-1) kappa_j m_{n-j}."""
    cumulants: list[Fraction] = []
    for n, moment in enumerate(moments, 1):
        known = (math.comb(n - 1, j - 1) * kappa * moments[n - j - 1] for j, kappa in enumerate(cumulants, 1))
        cumulants.append(moment - sum(known))
    return cumulants


def free_cumulants(moments: Sequence[Fraction]) -> list[Fraction]:
    """Return the free cumulants from m_1, ..., m_n: m_n = sum_s kappa_s [z^(n-s)] M(z)^s, M(z) = 1 + sum_k m_k z^k.

    The sum over non-crossing partitions, by the size s of the block that holds the first element (Speicher 1994).
    """
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
