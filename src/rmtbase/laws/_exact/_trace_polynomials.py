"""Exact finite-size moments of the traces of a chain, as numbers and as polynomials, and its participation ratio."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from itertools import combinations, product
from typing import Any, NamedTuple, Unpack

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


_DIGITS = Context(prec=100, traps=[])
_CONSTANT = Decimal("1e-30")  # relative change below which a function is constant
_ORDERS = 7
_DEGREE = 14
_TRUSTED = {1: 0.5, 2: 0.5, 3: 0.5, 4: 0.2, 5: 0.02}
"""Largest relative change by the last weight at which a difference of each order is used."""


class Estimate(NamedTuple):
    mean: float
    std: float
    skewness: float
    excess_kurtosis: float


@takes(ChainKeywords)
def participation_ratio(*shape: Any, **chain: Unpack[ChainKeywords]) -> Moments:
    """Return mean, standard deviation and shape of P = (tr M)² / tr M² = (Σ λ)² / Σ λ², M = Wᵀ W.

    They depend only on the dimensions. With T = tr M and Q = tr M², the moments of Y = 1/P = Q/T² are exact in the law
    of the chain weighted by T^n, E_n Y^s = E[Q^s T^(n - 2s)] / E[T^n]. Thiele's rational function through the
    differences in s of order k of ln E_n Y^s continues them from n = 2k..14 to n = 0, and likewise (1/s) ln E Y^s from
    s = 1..m to -1..-4. The order m is 5, or the highest at which the differences settle (2, Y log-normal, below rank
    4).

    ``error`` and ``std_error`` are the changes by the last order. Errors of mean (in standard deviations), std,
    skewness and excess kurtosis in excess of the sampling errors of 200 000 to 400 000 draws:

        one factor, W_QK, rank ≥ 16             0.003, 0.3 %, 0.01, 0.03
        up to six factors, rank ≥ 16            0.003, 0.4 %, 0.02, 0.05
        rank 8 or 12, or eight equal factors    0.01, 2 %, 0.1, 0.15

    P is exactly 1 where the rank is 1. Errors as for :class:`rmtbase.laws.GaussianChain`.
    """
    return participation_ratio_of(ChainParameters(*shape, **chain).dims)


@takes(ChainKeywords)
def normalized_participation_ratio(*shape: Any, **chain: Unpack[ChainKeywords]) -> Moments:
    """Return :func:`participation_ratio` divided by the rank, which is d_head for W_QK."""
    parameters = ChainParameters(*shape, **chain)
    moments = participation_ratio_of(parameters.dims)
    return replace(
        moments, **{name: getattr(moments, name) / parameters.rank for name in ("mean", "std", "error", "std_error")}
    )


@lru_cache(maxsize=1024)
def participation_ratio_of(dims: tuple[int, ...]) -> Moments:
    if min(dims) == 1:
        return Moments(1.0, 0.0, "exact")
    estimates = estimates_by_order(dims)
    order = next(order for order in range(len(estimates), 1, -1) if estimates[order - 1].std > 0.0)
    lower, best = estimates[order - 2 : order]
    method = f"exact moments weighted by powers of the trace, extrapolated to order {order}"
    errors = abs(best.mean - lower.mean), abs(best.std - lower.std)
    return Moments(best.mean, best.std, method, *errors, best.skewness, best.excess_kurtosis)


@lru_cache(maxsize=1024)
def estimates_by_order(dims: tuple[int, ...]) -> list[Estimate]:
    """Return estimates from the moments of 1/P up to order 1, up to order 2, and so on as far as they settle."""
    with localcontext(_DIGITS):
        log_moments = _log_moments_of_the_inverse(dims)
        return [_of_the_inverse(log_moments[:order]) for order in range(1, len(log_moments) + 1)]


def _log_moments_of_the_inverse(dims: tuple[int, ...]) -> list[Decimal]:
    weighted = {
        (n, s): _log_of(unit_trace_moment((2,) * s + (1,) * (n - 2 * s), dims, False))
        for n in range(_DEGREE + 1)
        for s in range(min(n // 2, max(_TRUSTED)) + 1)
    }
    differences: list[Decimal] = []
    for order in range(1, max(_TRUSTED) + 1):
        weights = range(2 * order, _DEGREE + 1)
        signed = [(-1) ** (order - s) * math.comb(order, s) for s in range(order + 1)]
        values = [
            sum((c * (weighted[n, s] - weighted[n, 0]) for s, c in enumerate(signed)), Decimal(0)) for n in weights
        ]
        value, change = _continued(weights, values, 0)
        settled = abs(change) <= Decimal(_TRUSTED[order]) * abs(value)
        if order > 2:
            if not settled:
                break
            differences.append(value)
        else:
            differences.append(value if settled and value * values[0] > 0 else values[0])
    return [
        sum((math.comb(s, k) * difference for k, difference in enumerate(differences[:s], 1)), Decimal(0))
        for s in range(1, len(differences) + 1)
    ]


def _of_the_inverse(log_moments: Sequence[Decimal]) -> Estimate:
    """Estimate the moments of 1/Y from ln E Y^s, s = 1, 2, ...; std is 0 if the variance is not positive."""
    orders = range(1, len(log_moments) + 1)
    slopes = [log_moment / s for s, log_moment in zip(orders, log_moments, strict=True)]
    first, *logs = (-k * _continued(orders, slopes, -k)[0] for k in range(1, 5))
    second, third, fourth = ((log - k * first).exp() for k, log in enumerate(logs, 2))
    mean, variance = first.exp(), second - 1
    if not variance > 0:
        return Estimate(float(mean), 0.0, math.nan, math.nan)
    return Estimate(
        float(mean),
        float(mean * variance.sqrt()),
        float((third - 3 * second + 2) / (variance * variance.sqrt())),
        float((fourth - 4 * third + 6 * second - 3) / variance**2 - 3),
    )


def _log_of(value: Fraction) -> Decimal:
    return Decimal(value.numerator).ln() - Decimal(value.denominator).ln()


def _continued(nodes: Sequence[int], values: Sequence[Decimal], at: int) -> tuple[Decimal, Decimal]:
    """Return Thiele's rational function through the points, evaluated at ``at``, and its change by the last point."""
    coefficients, rest = [], list(values)
    for k, node in enumerate(nodes):
        coefficients.append(rest[0])
        rises = [value - rest[0] for value in rest[1:]]
        if not rises or min(map(abs, rises)) <= _CONSTANT * abs(rest[0]):
            break
        rest = [(later - node) / rise for later, rise in zip(nodes[k + 1 :], rises, strict=True)]

    def up_to(count: int) -> Decimal:
        value = coefficients[count - 1]
        for k in range(count - 2, -1, -1):
            value = coefficients[k] + (at - nodes[k]) / value
        return value

    best = up_to(len(coefficients))
    return best, best - up_to(len(coefficients) - 1) if len(coefficients) == len(nodes) > 1 else Decimal(0)


def log_inverse_moment(power: int, dims: tuple[int, ...], self_normalized: bool) -> float:
    """Ln (E 1/X) (E X) for X = tr M^power, by continuing (1/q) ln E X^q from q = 1..7 to -1; within 1e-4 to 1e-2."""
    with localcontext(_DIGITS):
        orders = range(1, _ORDERS + 1)
        logs = [_log_of(unit_trace_moment((power,) * q, dims, self_normalized)) for q in orders]
        slope, _ = _continued(orders, [log / q for q, log in zip(orders, logs, strict=True)], -1)
        return float(logs[0] - slope)
