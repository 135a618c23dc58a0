"""Moments and cumulants of the traces as polynomials in the dimensions."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from rmtbase.errors import ParameterError
from rmtbase.laws import (
    DimensionPolynomial,
    trace_cumulant,
    trace_cumulant_polynomial,
    trace_moment,
    trace_moment_polynomial,
)

HEAD = ("d", "h", "d")


@pytest.mark.parametrize("function", [trace_moment_polynomial])
@pytest.mark.parametrize("symbols", ["dh", ("d",), ("d", "2h"), ("d", 3), 7])
def test_symbols_that_are_no_names_are_refused(function, symbols):
    with pytest.raises(ParameterError, match="symbols"):
        function((2,), symbols)


def test_powers_that_are_no_positive_integers_are_refused():
    with pytest.raises(ParameterError, match="partition"):
        trace_moment_polynomial((0,), HEAD)
    with pytest.raises(ParameterError, match="powers"):
        trace_cumulant_polynomial((), HEAD)


@pytest.mark.parametrize("dims", [{"d": 3}, {"d": 3, "h": 2, "n": 1}, {"d": 3, "h": 0}, {"d": 3, "h": 1.5}])
def test_a_polynomial_takes_its_own_dimensions_only(dims):
    with pytest.raises(ParameterError):
        trace_moment_polynomial((2,), HEAD)(**dims)


@pytest.mark.parametrize("powers", [(1,), (2, 1), (3, 3), (2, 2, 2, 2), (8,), (1,) * 8])
def test_polynomials_have_the_exact_values(powers):
    moment, cumulant = trace_moment_polynomial(powers, HEAD), trace_cumulant_polynomial(powers, HEAD)
    for d, h in [(768, 64), (5, 3), (1, 1)]:
        assert moment(d=d, h=h) == trace_moment(powers, (d, h, d), normalization="none")
        assert cumulant(d=d, h=h) == trace_cumulant(powers, (d, h, d), normalization="none")


def test_moments_count_pairings():
    # All (2k - 1)!! pairings of each factor are counted, each by one monomial with a positive integer before it.
    for powers in [(4,), (3, 2, 1), (1, 1, 1, 1)]:
        polynomial = trace_moment_polynomial(powers, ("a", "b", "c"))
        assert all(c > 0 and c.denominator == 1 for c in polynomial.coefficients.values())
        assert polynomial(a=1, b=1, c=1) == math.prod(range(1, 2 * sum(powers), 2)) ** 2


def test_print_is_valid_python_of_the_same_value():
    for polynomial in (trace_moment_polynomial((3, 2), HEAD), trace_cumulant_polynomial((2, 2), HEAD)):
        assert eval(str(polynomial), {"d": 11, "h": 4}) == polynomial(d=11, h=4)


def test_print_of_the_low_moments():
    second = trace_moment_polynomial((2,), HEAD)
    assert str(second) == "d**2*h*(d**2 + 2*d*h + 2*d + h + 3)"
    assert second.latex() == r"d^{2} h \left(d^{2} + 2 d h + 2 d + h + 3\right)"
    assert str(trace_moment_polynomial((1,), HEAD)) == "d**2*h"
    assert str(trace_cumulant_polynomial((1, 1), HEAD)) == "2*d**2*h*(2*d + h + 1)"
    assert str(trace_moment_polynomial((), HEAD)) == "1"
    chain = trace_moment_polynomial((2,), ("n_0", "d_model", "rank"))
    assert chain.latex().startswith(r"n_{0} d_{\mathrm{model}} \mathrm{rank} \left(")


def test_print_of_fractions_signs_and_nothing():
    polynomial = DimensionPolynomial.from_coefficients(
        ("x", "y"), {(1, 0): Fraction(-1, 2), (0, 1): Fraction(3, 4), (0, 0): 0}
    )
    assert str(polynomial) == "1/4*(-2*x + 3*y)"
    assert polynomial.latex() == r"\frac{1}{4} \left(-2 x + 3 y\right)"
    assert str(polynomial - polynomial) == "0" == (polynomial - polynomial).latex()
    assert str(DimensionPolynomial.from_coefficients(("x",), {(0,): -3})) == "3*(-1)"


def test_arithmetic_is_that_of_polynomials():
    a, b = trace_moment_polynomial((1,), HEAD), trace_moment_polynomial((2,), HEAD)
    at = {"d": 7, "h": 3}
    assert (a * b - a + b)(**at) == a(**at) * b(**at) - a(**at) + b(**at)
    assert hash(a * b) == hash(b * a) and a * b == b * a
    with pytest.raises(ParameterError, match="symbols"):
        a + trace_moment_polynomial((1,), ("h", "d", "h"))
