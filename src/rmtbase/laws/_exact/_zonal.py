"""Zonal polynomials J_kappa (Jack at α = 2, integral form) and power sums p_mu, in exact rational arithmetic.

Bases are indexed by partitions, descending; C_kappa is J_kappa scaled so that they add up to p_1^k (Muirhead
1982, 7; Macdonald, VI.10). Binomials: C_kappa(I + X)/C_kappa(I) = Σ_sigma binom(κ, σ) C_sigma(X)/C_sigma(I).
"""

import math
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from functools import cache

Partition = tuple[int, ...]
Terms = dict[Partition, Fraction]


@cache
def partitions(k: int) -> tuple[Partition, ...]:
    """Return the partitions of k, largest first in lexicographic order (which refines dominance)."""

    def parts_up_to(total: int, largest: int) -> Iterator[Partition]:
        if total == 0:
            yield ()
        for part in range(min(total, largest), 0, -1):
            for smaller in parts_up_to(total - part, part):
                yield (part, *smaller)

    return tuple(parts_up_to(k, k))


@cache
def power_sum_in_zonals(mu: Partition) -> dict[Partition, Fraction]:
    """Coefficients of p_mu on J_kappa; of p_k: 2 k / j_kappa Π_{boxes but the first} (2j - i) (Macdonald, VI.10)."""
    if not mu:
        return {(): Fraction(1)}
    if len(mu) == 1:
        return {
            kappa: Fraction(2 * mu[0] * content, zonal_norm(kappa))
            for kappa in partitions(mu[0])
            if (content := math.prod(2 * j - i for i, part in enumerate(kappa) for j in range(part) if i or j))
        }
    return _times_power_sum(mu[-1], power_sum_in_zonals(mu[:-1]))


def _times_power_sum(k: int, terms: Terms) -> Terms:
    """Multiply by p_k: k = 1 by adding boxes, else by [[D, p_1], p_k] = 2 k p_{k+1}, D Laplace-Beltrami."""
    if k == 1:
        return _with_a_box(terms, weighted=False)
    first = _with_a_box(_times_power_sum(k - 1, terms), weighted=True)
    second = _times_power_sum(k - 1, _with_a_box(terms, weighted=True))
    difference = {kappa: first.get(kappa, 0) - second.get(kappa, 0) for kappa in first | second}
    return {kappa: Fraction(value, 2 * (k - 1)) for kappa, value in difference.items() if value}


def _with_a_box(terms: Terms, weighted: bool) -> Terms:
    """Multiply a symmetric polynomial by p_1, or, if ``weighted``, apply [D, p_1] to it."""
    result: Terms = {}
    for kappa, coefficient in terms.items():
        for above, factor in _one_more_box(kappa):
            weight = _energy(above) - _energy(kappa) if weighted else 1
            result[above] = result.get(above, 0) + coefficient * factor * weight
    return result


@cache
def _one_more_box(kappa: Partition) -> tuple[tuple[Partition, Fraction], ...]:
    """Return the coefficients of p_1 J_kappa, from p_1 C_kappa = Σ_i binom(κ^(i), κ) C_{κ^(i)} / (|κ| + 1)."""
    norm = zonal_norm(kappa)
    return tuple(
        (above, _one_box(above, row) * Fraction(2 * norm, zonal_norm(above))) for row, above in _boxes_added(kappa)
    )


def _energy(kappa: Partition) -> int:
    return sum(part * (part - 1 - row) for row, part in enumerate(kappa))


@cache
def zonal_norm(kappa: Partition) -> int:
    """Return <J_kappa, J_kappa> in the product with <p_mu, p_mu> = z_mu 2^(parts of mu), by two hook products."""
    columns = [sum(part > column for part in kappa) for column in range(kappa[0] if kappa else 0)]
    boxes = [(row, part, column) for row, part in enumerate(kappa) for column in range(part)]
    hooks = [2 * (part - column - 1) + (columns[column] - row - 1) for row, part, column in boxes]
    return math.prod((hook + 1) * (hook + 2) for hook in hooks)


@cache
def zonal_in_power_sums(kappa: Partition) -> dict[Partition, Fraction]:
    """Return the coefficients of J_kappa on the power sums: those of p_mu on J_kappa times the ratio of the norms."""
    coefficients = {}
    for mu in partitions(sum(kappa)):
        on_zonal = power_sum_in_zonals(mu).get(kappa, Fraction(0))
        if on_zonal:
            centraliser = math.prod(part**count * math.factorial(count) for part, count in Counter(mu).items())
            coefficients[mu] = on_zonal * zonal_norm(kappa) / (centraliser * 2 ** len(mu))
    return coefficients


def zonal_at_identity(kappa: Partition, n: int) -> int:
    return math.prod(n + 2 * column - row for row, part in enumerate(kappa) for column in range(part))


@cache
def zonal_at_identity_polynomial(kappa: Partition, power: int) -> tuple[int, ...]:
    """Return the coefficients in n, lowest first, of J_kappa(1, ..., 1)^power."""
    coefficients = [1]
    for row, part in enumerate(kappa):
        for root in (row - 2 * column for column in range(part) for _ in range(power)):
            coefficients = [low - root * high for low, high in zip([0, *coefficients], [*coefficients, 0], strict=True)]
    return tuple(coefficients)


@cache
def zonal_binomials(kappa: Partition) -> dict[Partition, Fraction]:
    """Binomials binom(κ, σ), by (|κ| - |σ|) binom(κ, σ) = Σ_i binom(κ, σ^(i)) binom(σ^(i), σ) (Kaneko 1993)."""
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
    for row, part in enumerate((*sigma, 0)):
        if row == 0 or sigma[row - 1] > part:
            yield row, (*sigma[:row], part + 1, *sigma[row + 1 :])


def _one_box(kappa: Partition, row: int) -> Fraction:
    """Return the binomial of κ over κ without one box of ``row`` (Lassalle 1990, at α = 2)."""
    rows = len(kappa)
    above, below = 2 * kappa[row] + rows - 1 - row, 2
    for another in range(rows):
        if another != row:
            twice_apart = 2 * (kappa[row] - kappa[another]) + another - row
            above, below = above * (twice_apart - 1), below * twice_apart
    return Fraction(above, below)
