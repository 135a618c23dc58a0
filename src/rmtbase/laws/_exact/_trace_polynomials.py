"""The moments and cumulants of the traces of a Gaussian chain as polynomials in its dimensions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import cache, lru_cache
from itertools import product

from rmtbase.errors import ParameterError
from rmtbase.laws._exact._cumulants import Powers, joint_cumulant
from rmtbase.laws._exact._dimension_polynomial import DimensionPolynomial, Exponents
from rmtbase.laws._exact._trace_moments import require_powers
from rmtbase.laws._exact._zonal import Partition, power_sum_in_zonals, zonal_at_identity_polynomial


def trace_moment_polynomial(partition: Sequence[int], symbols: Sequence[str]) -> DimensionPolynomial:
    """Return E[Π_i tr M^(μ_i)] of :func:`trace_moment` as a polynomial in the dimensions. Exact.

    Its coefficients are positive integers: they count the pairings of the entries by the indices that stay free (Wick).
    For W_QK, ``trace_moment_polynomial((2,), ("d", "h", "d"))`` is d**2*h*(d**2 + 2*d*h + 2*d + h + 3).

    Args:
        partition: the exponents μ_i, positive integers in any order.
        symbols: the names of n_0, ..., n_L; equal names are equal dimensions.

    Raises:
        ParameterError: for exponents that are not positive integers, fewer than two symbols, or symbols that are not
            Python identifiers.
    """
    return _moment(require_powers("partition", partition), _require_symbols(symbols))


def trace_cumulant_polynomial(powers: Sequence[int], symbols: Sequence[str]) -> DimensionPolynomial:
    """Return the joint cumulant of :func:`trace_cumulant` as a polynomial in the dimensions. Exact.

    ``trace_cumulant_polynomial((1, 1), ("d", "h", "d"))`` is the variance of Σ λ, 2*d**2*h*(2*d + h + 1).

    Raises:
        ParameterError: as :func:`trace_moment_polynomial`, and for no power at all.
    """
    checked, names = require_powers("powers", powers), _require_symbols(symbols)
    if not checked:
        raise ParameterError("powers", powers, "at least one positive integer")

    @cache
    def cumulant(some: Powers) -> DimensionPolynomial:
        return joint_cumulant(some, lambda others: _moment(others, names), cumulant)

    return cumulant(checked)


@lru_cache(maxsize=256)
def _moment(mu: Partition, symbols: tuple[str, ...]) -> DimensionPolynomial:
    names = tuple(dict.fromkeys(symbols))
    total: dict[Exponents, Fraction] = {}
    for kappa, a in power_sum_in_zonals(mu).items():
        factors = [zonal_at_identity_polynomial(kappa, symbols.count(name)) for name in names]
        for terms in product(*(enumerate(factor) for factor in factors)):
            powers = tuple(power for power, _ in terms)
            total[powers] = total.get(powers, Fraction(0)) + a * math.prod(coefficient for _, coefficient in terms)
    return DimensionPolynomial.of(names, total)


def _require_symbols(symbols: object) -> tuple[str, ...]:
    if isinstance(symbols, str) or not isinstance(symbols, Iterable):
        raise ParameterError("symbols", symbols, "a sequence of names, one per dimension")
    names = tuple(symbols)
    if len(names) < 2 or not all(isinstance(name, str) and name.isidentifier() for name in names):
        raise ParameterError("symbols", names, "two or more names, Python identifiers such as 'd' or 'n_0'")
    return names
