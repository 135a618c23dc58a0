"""Moments of the traces as polynomials in the dimensions."""

import math
from fractions import Fraction

import pytest

from rmtbase.laws import DimensionPolynomial, trace_moment, trace_moment_polynomial

HEAD = ("d", "h", "d")


@pytest.mark.parametrize("powers", [(1,), (2, 1), (3, 3), (2, 2, 2, 2), (8,), (1,) * 8])
def test_polynomials_have_the_exact_values(powers):
    moment = trace_moment_polynomial(powers, HEAD)
    for d, h in [(768, 64), (5, 3), (1, 1)]:
        assert moment(d=d, h=h) == trace_moment(powers, (d, h, d), normalization="none")


def test_moments_count_pairings():
    # All (2k - 1)!! pairings of each factor are counted, each by one monomial with a positive integer before it.
    for powers in [(4,), (3, 2, 1), (1, 1, 1, 1)]:
        polynomial = trace_moment_polynomial(powers, ("a", "b", "c"))
        assert all(c > 0 and c.denominator == 1 for _, c in polynomial.terms)
        assert polynomial(a=1, b=1, c=1) == math.prod(range(1, 2 * sum(powers), 2)) ** 2


def test_print_is_valid_python_of_the_same_value():
    polynomial = trace_moment_polynomial((3, 2), HEAD)
    assert eval(str(polynomial), {"d": 11, "h": 4}) == polynomial(d=11, h=4)


def test_print_of_the_low_moments():
    second = trace_moment_polynomial((2,), HEAD)
    assert str(second) == "d**2*h*(d**2 + 2*d*h + 2*d + h + 3)"
    assert second.latex() == r"d^{2} h \left(d^{2} + 2 d h + 2 d + h + 3\right)"
    assert str(trace_moment_polynomial((1,), HEAD)) == "d**2*h"
    assert str(trace_moment_polynomial((), HEAD)) == "1"
    chain = trace_moment_polynomial((2,), ("n_0", "d_model", "rank"))
    assert chain.latex().startswith(r"n_{0} d_{\mathrm{model}} \mathrm{rank} \left(")


def test_print_of_fractions_signs_and_nothing():
    polynomial = DimensionPolynomial.from_coefficients(
        ("x", "y"), {(1, 0): Fraction(-1, 2), (0, 1): Fraction(3, 4), (0, 0): 0}
    )
    assert str(polynomial) == "1/4*(-2*x + 3*y)"
    assert polynomial.latex() == r"\frac{1}{4} \left(-2 x + 3 y\right)"
    nothing = DimensionPolynomial.from_coefficients(("x",), {})
    assert str(nothing) == "0" == nothing.latex()
    assert str(DimensionPolynomial.from_coefficients(("x",), {(0,): -3})) == "3*(-1)"
