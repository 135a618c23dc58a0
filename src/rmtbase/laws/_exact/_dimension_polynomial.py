"""Polynomials in the dimensions of a matrix chain, with exact coefficients."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from rmtbase.errors import ParameterError
from rmtbase.parameters import require_positive_integer

Exponents = tuple[int, ...]


@dataclass(frozen=True)
class DimensionPolynomial:
    """An exact polynomial in named dimensions, such as d**2*h*(d**2 + 2*d*h + 2*d + h + 3).

    Call it with the dimensions, ``polynomial(d=768, h=64)``; ``str`` is valid Python, :meth:`latex` is for print. Both
    pull out the common rational and monomial factor and order terms by falling degree, then by the symbols' order.
    Sums, differences and products are those of polynomials in the same symbols.

    Attributes:
        symbols: the names, in order.
        terms: (exponents, coefficient) pairs, exponents in the order of ``symbols``; no zero coefficients; in the order
            of print.
    """

    symbols: tuple[str, ...]
    terms: tuple[tuple[Exponents, Fraction], ...]

    @classmethod
    def of(cls, symbols: Iterable[str], coefficients: Mapping[Exponents, Fraction | int]) -> DimensionPolynomial:
        """Build the polynomial with these coefficients."""
        nonzero = [(powers, Fraction(value)) for powers, value in coefficients.items() if value]
        return cls(tuple(symbols), tuple(sorted(nonzero, key=lambda term: (sum(term[0]), term[0]), reverse=True)))

    @property
    def coefficients(self) -> dict[Exponents, Fraction]:
        """The coefficients by exponents."""
        return dict(self.terms)

    def __call__(self, **dims: int) -> Fraction:
        """Return the value at these dimensions, exactly.

        Raises:
            ParameterError: for a dimension that is missing, unknown, or not a positive integer.
        """
        if set(dims) != set(self.symbols):
            raise ParameterError("dims", sorted(dims), f"a value for each of {', '.join(self.symbols)}")
        values = [require_positive_integer(name, dims[name]) for name in self.symbols]
        return sum((c * math.prod(map(pow, values, powers)) for powers, c in self.terms), Fraction(0))

    def __add__(self, other: DimensionPolynomial) -> DimensionPolynomial:
        total = self._matching(other).coefficients
        for powers, coefficient in other.terms:
            total[powers] = total.get(powers, Fraction(0)) + coefficient
        return self.of(self.symbols, total)

    def __neg__(self) -> DimensionPolynomial:
        return DimensionPolynomial(self.symbols, tuple((powers, -coefficient) for powers, coefficient in self.terms))

    def __sub__(self, other: DimensionPolynomial) -> DimensionPolynomial:
        return self + -other

    def __mul__(self, other: DimensionPolynomial) -> DimensionPolynomial:
        total: dict[Exponents, Fraction] = {}
        for left, a in self._matching(other).terms:
            for right, b in other.terms:
                powers = tuple(map(sum, zip(left, right, strict=True)))
                total[powers] = total.get(powers, Fraction(0)) + a * b
        return self.of(self.symbols, total)

    def __str__(self) -> str:
        return self._printed(self.symbols, "*", "{}**{}", "{}/{}", "({})")

    def latex(self) -> str:
        r"""Return LaTeX, such as ``d^{2} h \left(d^{2} + 2 d h + 2 d + h + 3\right)``, without dollar signs."""
        names = [_latex_symbol(name) for name in self.symbols]
        return self._printed(names, " ", "{}^{{{}}}", r"\frac{{{}}}{{{}}}", r"\left({}\right)")

    def _matching(self, other: DimensionPolynomial) -> DimensionPolynomial:
        if self.symbols != other.symbols:
            raise ParameterError("symbols", other.symbols, f"those of the other polynomial, {self.symbols}")
        return self

    def _printed(self, names: Iterable[str], times: str, power: str, fraction: str, bracket: str) -> str:
        if not self.terms:
            return "0"

        def product(powers: Exponents, coefficient: Fraction) -> str:
            """Of a positive coefficient and a monomial; empty where it is 1."""
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


def _latex_symbol(name: str) -> str:
    r"""``n_0`` as ``n_{0}``, ``d_model`` as ``d_{\mathrm{model}}``."""
    base, _, index = name.partition("_")
    letters = base if len(base) == 1 else rf"\mathrm{{{base}}}"
    if not index:
        return letters
    return f"{letters}_{{{index}}}" if len(index) == 1 or index.isdigit() else rf"{letters}_{{\mathrm{{{index}}}}}"
