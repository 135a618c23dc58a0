"""Exact moments of the traces of a chain, as polynomials in its dimensions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import product

from rmtbase.errors import ParameterError
from rmtbase.laws._exact._trace_moments import require_powers
from rmtbase.laws._exact._zonal import Partition, power_sum_in_zonals, zonal_at_identity_polynomial
from rmtbase.parameters import require_positive_integer

Exponents = tuple[int, ...]


@dataclass(frozen=True)
class DimensionPolynomial:
    """Exact polynomial in named dimensions, such as d**2*h*(d**2 + 2*d*h + 2*d + h + 3).

    Call it with the dimensions, ``polynomial(d=768, h=64)``. ``str`` gives valid Python and :meth:`latex` gives LaTeX.
    Both factor out the common rational and monomial factor and order the terms by falling degree, then by the order of
    the symbols.

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

    The polynomial is exact. Its coefficients are positive integers, which count the pairings of the entries by the
    indices that stay free (Wick). For W_QK, ``trace_moment_polynomial((2,), ("d", "h", "d"))`` is d**2*h*(d**2 + 2*d*h
    + 2*d + h + 3).

    ``partition`` holds the exponents μ_i; ``symbols`` are the names of n_0, ..., n_L, of which equal ones mean equal
    dimensions. Other exponents than positive integers, fewer than two symbols, or symbols that are no Python
    identifiers raise a ParameterError.
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
