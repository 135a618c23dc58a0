"""Exact finite-size moments and cumulants of the traces of a Gaussian chain, as numbers and as polynomials."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import combinations, product
from typing import Any, Unpack

from rmtbase.errors import ParameterError
from rmtbase.laws._distribution import Moments
from rmtbase.laws._exact._zonal import Partition, partitions, power_sum_in_zonals, zonal_at_identity_polynomial
from rmtbase.laws._parameters import (
    ChainKeywords,
    ChainParameters,
    as_float,
    own_variance_moment,
    takes,
    variance_factor,
)
from rmtbase.parameters import require_positive_integer


@takes(ChainKeywords)
def trace_moment(
    partition: Sequence[int], *shape: Any, self_normalized: bool = False, **chain: Unpack[ChainKeywords]
) -> Fraction:
    """Return E[Π_i tr M^(μ_i)], M = Wᵀ W, as an exact fraction (the sigmas are taken as the binary fractions they are).

    For a real Wishart matrix S with n degrees of freedom, E J_kappa(A S) = 2^k (n/2)_kappa J_kappa(A), J_kappa the
    zonal polynomial (Muirhead 1982, theorem 7.2.7). Averaging over one factor of the chain after the other leaves, at σ
    = 1,

        E p_mu(M) = Σ_kappa a_{μ κ} Π_{l=0..L} J_kappa(1^{n_l}),    p_mu = Σ_kappa a_{μ κ} J_kappa,

    times (Π σ_l²)^k, and n_0^(-k) for ``sqrt_d``, k = sum(partition); once per degree it takes 1 ms at k = 4, 0.3 s at
    12.

    ``partition`` holds the exponents μ_i, positive integers in any order; () gives 1. ``self_normalized`` first divides
    each X_l by its own σ̂_l, σ̂_l² = |X_l|_F² / (n_{l-1} n_l); the sigmas then cancel. Errors as for
    :class:`rmtbase.laws.GaussianChain`, and for other exponents.
    """
    powers = require_powers("partition", partition)
    parameters = ChainParameters(*shape, **chain)
    return _factor(parameters, self_normalized) ** sum(powers) * unit_trace_moment(
        powers, parameters.dims, self_normalized
    )


@takes(ChainKeywords)
def trace_cumulant(
    powers: Sequence[int], *shape: Any, self_normalized: bool = False, **chain: Unpack[ChainKeywords]
) -> Fraction:
    """Return the exact joint cumulant of tr M^(a_1), ..., tr M^(a_m), with M as in :func:`trace_moment`.

    One power gives the mean, (a, a) the variance, (a, b) the covariance of tr M^a and tr M^b, and (a, a, a) the third
    central moment. ``powers`` holds one or more positive integers. The rest and errors as for :func:`trace_moment`.
    """
    checked = require_powers("powers", powers)
    if not checked:
        raise ParameterError("powers", powers, "at least one positive integer")
    parameters = ChainParameters(*shape, **chain)
    return _factor(parameters, self_normalized) ** sum(checked) * unit_trace_cumulant(
        checked, parameters.dims, self_normalized
    )


@takes(ChainKeywords)
def trace_cumulants(power: int, *shape: Any, self_normalized: bool = False, **chain: Unpack[ChainKeywords]) -> Moments:
    """Return mean, standard deviation, skewness and excess kurtosis of tr M^power = Σ λ^power, exact and rounded once.

    The kurtosis needs moments of degree 4 ``power``. ``self_normalized`` is that of :func:`trace_moment`.
    """
    exponent = require_positive_integer("power", power)
    parameters = ChainParameters(*shape, **chain)
    factor = _factor(parameters, self_normalized) ** exponent
    mean, variance, third, fourth = (
        unit_trace_cumulant((exponent,) * order, parameters.dims, self_normalized) for order in (1, 2, 3, 4)
    )
    return Moments(
        as_float(factor * mean),
        as_float(factor) * math.sqrt(variance),
        "exact",
        skewness=math.copysign(math.sqrt(third**2 / variance**3), third) if variance else math.nan,
        excess_kurtosis=float(fourth / variance**2) if variance else math.nan,
    )


def _factor(parameters: ChainParameters, self_normalized: bool) -> Fraction:
    return variance_factor(parameters.dims, () if self_normalized else parameters.sigmas, parameters.normalization)


def require_powers(name: str, powers: Sequence[int]) -> Partition:
    return tuple(sorted((require_positive_integer(name, power) for power in powers), reverse=True))


@lru_cache(maxsize=4096)
def unit_trace_moment(mu: Partition, dims: tuple[int, ...], self_normalized: bool) -> Fraction:
    """Return :func:`trace_moment` of the raw product at σ = 1 for checked arguments, with μ in descending order."""
    degree = sum(mu)
    zonals, (numerators, denominator) = _zonals_at_identities(degree, dims), _over_one_denominator(mu)
    raw = Fraction(sum(a * zonals[kappa] for kappa, a in numerators), denominator)
    return raw / own_variance_moment(degree, dims) if self_normalized else raw


@lru_cache(maxsize=4096)
def _over_one_denominator(mu: Partition) -> tuple[tuple[tuple[Partition, int], ...], int]:
    """Return the coefficients of p_mu on the zonal polynomials as integers, and their common denominator."""
    terms = power_sum_in_zonals(mu)
    denominator = math.lcm(*(a.denominator for a in terms.values()))
    return tuple((kappa, a.numerator * (denominator // a.denominator)) for kappa, a in terms.items()), denominator


@lru_cache(maxsize=256)
def _zonals_at_identities(degree: int, dims: tuple[int, ...]) -> dict[Partition, int]:
    """Return Π_l J_kappa(1^{n_l}) for each partition of the degree; each box contributes a factor n + 2j - i."""
    if not degree:
        return {(): 1}
    smaller, products = _zonals_at_identities(degree - 1, dims), {}
    for kappa in partitions(degree):
        *rows, last = kappa
        box = 2 * (last - 1) - len(rows)
        products[kappa] = smaller[(*rows, last - 1) if last > 1 else tuple(rows)] * math.prod(n + box for n in dims)
    return products


@lru_cache(maxsize=4096)
def unit_trace_cumulant(powers: Partition, dims: tuple[int, ...], self_normalized: bool) -> Fraction:
    """Return the cumulant at σ = 1: E Π_{i in S} x_i = Σ_B κ(B) E Π_{i not in B} x_i, B with the first element."""
    first, others = powers[0], powers[1:]
    total = unit_trace_moment(powers, dims, self_normalized)
    for size in range(len(others)):
        for chosen in combinations(range(len(others)), size):
            block = (first, *(others[i] for i in chosen))
            outside = tuple(power for i, power in enumerate(others) if i not in chosen)
            factor = unit_trace_moment(outside, dims, self_normalized)
            total -= unit_trace_cumulant(block, dims, self_normalized) * factor
    return total


Exponents = tuple[int, ...]


@dataclass(frozen=True)
class DimensionPolynomial:
    """Exact polynomial in named dimensions, such as d**2*h*(d**2 + 2*d*h + 2*d + h + 3).

    Call it with the dimensions, ``polynomial(d=768, h=64)``. ``str`` gives valid Python and :meth:`latex` gives LaTeX,
    with the common factor first and the terms by falling degree, then by the order of the symbols.

    Attributes:
        symbols: the names, in order.
        terms: (exponents, coefficient) pairs in printing order, without zero coefficients.
    """

    symbols: tuple[str, ...]
    terms: tuple[tuple[Exponents, Fraction], ...]

    @classmethod
    def from_coefficients(
        cls, symbols: Iterable[str], coefficients: Mapping[Exponents, Fraction | int]
    ) -> DimensionPolynomial:
        """Build the polynomial with these coefficients."""
        nonzero = [(powers, Fraction(value)) for powers, value in coefficients.items() if value]
        return cls(tuple(symbols), tuple(sorted(nonzero, key=lambda term: (sum(term[0]), term[0]), reverse=True)))

    def __call__(self, **dims: int) -> Fraction:
        """Return the value at these dimensions, exactly; they must be those of the polynomial, positive integers."""
        if set(dims) != set(self.symbols):
            raise ParameterError("dims", sorted(dims), f"a value for each of {', '.join(self.symbols)}")
        values = [require_positive_integer(name, dims[name]) for name in self.symbols]
        return sum((c * math.prod(map(pow, values, powers)) for powers, c in self.terms), Fraction(0))

    def __str__(self) -> str:
        return self._printed(self.symbols, "*", "{}**{}", "{}/{}", "({})")

    def latex(self) -> str:
        r"""Return LaTeX, such as ``d^{2} h \left(d^{2} + 2 d h + 2 d + h + 3\right)``, without dollar signs."""
        names = []  # ``n_{0}`` for ``n_0``, ``d_{\mathrm{model}}`` for ``d_model``
        for name in self.symbols:
            base, _, index = name.partition("_")
            letters = base if len(base) == 1 else rf"\mathrm{{{base}}}"
            below = index if len(index) == 1 or index.isdigit() else rf"\mathrm{{{index}}}"
            names.append(f"{letters}_{{{below}}}" if index else letters)
        return self._printed(names, " ", "{}^{{{}}}", r"\frac{{{}}}{{{}}}", r"\left({}\right)")

    def _printed(self, names: Iterable[str], times: str, power: str, fraction: str, bracket: str) -> str:
        if not self.terms:
            return "0"

        def product(powers: Exponents, coefficient: Fraction) -> str:
            numbers = [] if coefficient == 1 else [str(coefficient.numerator)]
            if coefficient.denominator > 1:
                numbers = [fraction.format(*coefficient.as_integer_ratio())]
            symbols = [
                name if exponent == 1 else power.format(name, exponent)
                for name, exponent in zip(names, powers, strict=True)
                if exponent
            ]
            return times.join(numbers + symbols)

        common = tuple(map(min, zip(*(powers for powers, _ in self.terms), strict=True)))
        content = Fraction(
            math.gcd(*(c.numerator for _, c in self.terms)), math.lcm(*(c.denominator for _, c in self.terms))
        )
        rest = [(tuple(p - q for p, q in zip(powers, common, strict=True)), c / content) for powers, c in self.terms]
        inner = "".join(f" {'-' if c < 0 else '+'} {product(powers, abs(c)) or '1'}" for powers, c in rest)
        inner = inner.removeprefix(" + ") if rest[0][1] > 0 else f"-{inner.removeprefix(' - ')}"
        outer = product(common, content)
        if not outer or inner == "1":
            return outer or inner
        return times.join((outer, bracket.format(inner)))


def trace_moment_polynomial(partition: Sequence[int], symbols: Sequence[str]) -> DimensionPolynomial:
    """Return E[Π_i tr M^(μ_i)] of the raw product at σ = 1 (:func:`trace_moment`) as a polynomial in the dimensions.

    Exact, with positive integer coefficients, which count the pairings of the entries by the indices that stay free
    (Wick). For W_QK, ``trace_moment_polynomial((2,), ("d", "h", "d"))`` is d**2*h*(d**2 + 2*d*h + 2*d + h + 3).

    ``partition`` holds the exponents μ_i, positive integers; ``symbols`` are two or more names of n_0, ..., n_L, Python
    identifiers, of which equal ones mean equal dimensions. Others raise a ParameterError.
    """
    mu, symbols = require_powers("partition", partition), tuple(symbols)
    if len(symbols) < 2 or not all(name.isidentifier() for name in symbols):
        raise ParameterError("symbols", symbols, "two or more names, Python identifiers such as 'd' or 'n_0'")
    return _moment(mu, symbols)


@lru_cache(maxsize=256)
def _moment(mu: Partition, symbols: tuple[str, ...]) -> DimensionPolynomial:
    names = tuple(dict.fromkeys(symbols))
    total: dict[Exponents, Fraction] = {}
    for kappa, a in power_sum_in_zonals(mu).items():
        factors = [zonal_at_identity_polynomial(kappa, symbols.count(name)) for name in names]
        for terms in product(*(enumerate(factor) for factor in factors)):
            powers = tuple(power for power, _ in terms)
            total[powers] = total.get(powers, Fraction(0)) + a * math.prod(coefficient for _, coefficient in terms)
    return DimensionPolynomial.from_coefficients(names, total)
