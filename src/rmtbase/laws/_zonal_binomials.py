"""Generalised binomial coefficients of the zonal polynomials (Jack polynomials at alpha = 2).

Defined by C_kappa(I + X)/C_kappa(I) = sum_sigma binom(kappa, sigma) C_sigma(X)/C_sigma(I) (Constantine 1966;
Muirhead 1982, section 7.5).
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import cache

from rmtbase.laws._partitions import Partition, partitions


@cache
def zonal_binomials(kappa: Partition) -> dict[Partition, Fraction]:
    """Return binom(kappa, sigma) for every sigma inside kappa.

    From kappa down, one box at a time: (|kappa| - |sigma|) binom(kappa, sigma) =
    sum_i binom(kappa, sigma^(i)) binom(sigma^(i), sigma), sigma^(i) being sigma with a box more in row i (Kaneko 1993).
    """
    size = sum(kappa)
    result = {kappa: Fraction(1)}
    for smaller in range(size - 1, -1, -1):
        for sigma in partitions(smaller):
            total = sum(
                (result[above] * _one_box(above, row) for row, above in _boxes_added(sigma) if above in result),
                Fraction(0),
            )
            if total:
                result[sigma] = total / (size - smaller)
    return result


def _boxes_added(sigma: Partition) -> Iterator[tuple[int, Partition]]:
    """(row, partition) for each way to add one box to sigma."""
    for row, part in enumerate((*sigma, 0)):
        if row == 0 or sigma[row - 1] > part:
            yield row, (*sigma[:row], part + 1, *sigma[row + 1 :])


def _one_box(kappa: Partition, row: int) -> Fraction:
    """Binomial of kappa over kappa less one box of ``row`` (Lassalle 1990, at alpha = 2)."""
    rows = len(kappa)
    result = kappa[row] + Fraction(rows - 1 - row, 2)
    for other in range(rows):
        if other != row:
            apart = kappa[row] - kappa[other] + Fraction(other - row, 2)
            result *= (apart - Fraction(1, 2)) / apart
    return Fraction(result)
