"""Zonal polynomials (Jack polynomials at α = 2) and power sums, in exact rational arithmetic.

Three bases of the symmetric polynomials of degree k, each indexed by the partitions of k: monomial m, power-sum
p, and Jack P (leading coefficient 1). J = (hook product) P is the integral form, with
J_kappa(1, ..., 1) = Π over boxes of (n + 2j - i), i the row and j the column from zero, and n ones
(Macdonald, Symmetric Functions and Hall Polynomials, VI.10; Muirhead 1982, ch. 7). Partitions are tuples of parts in
descending order.

The generalised binomial coefficients are defined by C_kappa(I + X)/C_kappa(I) = Σ_sigma binom(κ, σ)
C_sigma(X)/C_sigma(I) (Constantine 1966; Muirhead 1982, section 7.5).
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import cache

Partition = tuple[int, ...]


@cache
def partitions(k: int) -> tuple[Partition, ...]:
    """Return the partitions of k, largest first in lexicographic order (which refines dominance)."""
    return tuple(_partitions(k, k))


def _partitions(k: int, largest: int) -> Iterator[Partition]:
    if k == 0:
        yield ()
    for part in range(min(k, largest), 0, -1):
        for rest in _partitions(k - part, part):
            yield (part, *rest)


def sorted_partition(parts: list[int]) -> Partition:
    """Return the partition with these parts, zeros dropped."""
    return tuple(sorted((part for part in parts if part > 0), reverse=True))


@cache
def power_sum_in_monomials(mu: Partition) -> dict[Partition, int]:
    """Return the coefficients of p_mu on the monomial symmetric polynomials."""
    if not mu:
        return {(): 1}
    part, rest = mu[0], power_sum_in_monomials(mu[1:])
    result: dict[Partition, int] = {}
    # The coefficient of m_nu is that of x^ν itself: x_i^part comes from any one of the variables.
    for nu in partitions(sum(mu)):
        smaller = [[*nu[:i], n - part, *nu[i + 1 :]] for i, n in enumerate(nu) if n >= part]
        count = sum(rest.get(sorted_partition(parts), 0) for parts in smaller)
        if count:
            result[nu] = count
    return result


def _energy(kappa: Partition) -> int:
    """Eigenvalue of the Laplace-Beltrami operator on P_kappa, up to a constant of the degree."""
    return sum(part * (part - 1 - row) for row, part in enumerate(kappa))


@cache
def zonal_in_monomials(kappa: Partition) -> dict[Partition, Fraction]:
    """Return the coefficients of P_kappa (leading coefficient 1) on the monomials.

    The Laplace-Beltrami operator is triangular on them, which gives James's recursion (1968):
    u_nu = sum ((ν_i + t) - (ν_j - t)) u_mu / (e_kappa - e_nu) over the μ obtained from ν by moving t boxes from
    row j up to row i. e_kappa > e_nu wherever ν lies below κ in dominance, so nothing vanishes.
    """
    coefficients = {kappa: Fraction(1)}
    for nu in partitions(sum(kappa)):
        if nu >= kappa:
            continue
        total = Fraction(0)
        for upper in range(len(nu)):
            for lower in range(upper + 1, len(nu)):
                for moved in range(1, nu[lower] + 1):
                    parts = list(nu)
                    parts[upper] += moved
                    parts[lower] -= moved
                    above = coefficients.get(sorted_partition(parts))
                    if above is not None:
                        total += above * (parts[upper] - parts[lower])
        if total:
            coefficients[nu] = total / (_energy(kappa) - _energy(nu))
    return coefficients


@cache
def power_sum_in_zonals(mu: Partition) -> dict[Partition, Fraction]:
    """Return the coefficients of p_mu on the J_kappa."""
    rest: dict[Partition, Fraction] = {nu: Fraction(c) for nu, c in power_sum_in_monomials(mu).items()}
    result: dict[Partition, Fraction] = {}
    for kappa in partitions(sum(mu)):
        leading = rest.get(kappa, Fraction(0))
        if not leading:
            continue
        for nu, coefficient in zonal_in_monomials(kappa).items():
            rest[nu] = rest.get(nu, Fraction(0)) - leading * coefficient
        result[kappa] = leading / hook_product(kappa)
    return result


def hook_product(kappa: Partition) -> int:
    """Return J_kappa / P_kappa = Π over boxes of (2 arm + leg + 1)."""
    columns = [sum(part > column for part in kappa) for column in range(kappa[0] if kappa else 0)]
    product = 1
    for row, part in enumerate(kappa):
        for column in range(part):
            product *= 2 * (part - column - 1) + (columns[column] - row - 1) + 1
    return product


def zonal_at_identity(kappa: Partition, n: int) -> int:
    """Return J_kappa(1, ..., 1) with n ones, which is also 2^k (n/2)_kappa."""
    product = 1
    for row, part in enumerate(kappa):
        for column in range(part):
            product *= n + 2 * column - row
    return product


@cache
def zonal_at_identity_polynomial(kappa: Partition, power: int) -> tuple[int, ...]:
    """Return the coefficients in n, lowest first, of J_kappa(1, ..., 1)^power."""
    coefficients = [1]
    for row, part in enumerate(kappa):
        for root in (row - 2 * column for column in range(part) for _ in range(power)):
            coefficients = [low - root * same for low, same in zip([0, *coefficients], [*coefficients, 0], strict=True)]
    return tuple(coefficients)


@cache
def zonal_binomials(kappa: Partition) -> dict[Partition, Fraction]:
    """Return binom(κ, σ) for every σ inside κ.

    From κ down, one box at a time: (|κ| - |σ|) binom(κ, σ) =
    Σ_i binom(κ, σ^(i)) binom(σ^(i), σ), σ^(i) being σ with a box more in row i (Kaneko 1993).
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
    """(row, partition) for each way to add one box to σ."""
    for row, part in enumerate((*sigma, 0)):
        if row == 0 or sigma[row - 1] > part:
            yield row, (*sigma[:row], part + 1, *sigma[row + 1 :])


def _one_box(kappa: Partition, row: int) -> Fraction:
    """Binomial of κ over κ less one box of ``row`` (Lassalle 1990, at α = 2)."""
    rows = len(kappa)
    result = kappa[row] + Fraction(rows - 1 - row, 2)
    for other in range(rows):
        if other != row:
            apart = kappa[row] - kappa[other] + Fraction(other - row, 2)
            result *= (apart - Fraction(1, 2)) / apart
    return Fraction(result)
