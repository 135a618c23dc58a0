"""A constant is a number in every expression, and shows itself in one line or a small table."""

import copy
import json
import math
import pickle
from dataclasses import replace
from fractions import Fraction
from numbers import Real

import numpy as np
import pytest
import xarray as xr
from mpmath import mp

from rmtbase import constants
from rmtbase.errors import ParameterError

C = constants.square_product_upper_singular_edge  # √6.75
VALUE = 6.75**0.5


def test_python_calculates_with_it_and_compares_and_hashes_it_as_its_value():
    assert isinstance(C, Real)
    assert (C + 1, 1 + C, C - 1, 1 - C) == (VALUE + 1, 1 + VALUE, VALUE - 1, 1 - VALUE)
    assert (C * 2, 2 * C, C / 2, 2 / C) == (VALUE * 2, 2 * VALUE, VALUE / 2, 2 / VALUE)
    assert (C**2, 2**C, C // 2, 5 // C, C % 2, 5 % C) == (VALUE**2, 2**VALUE, 1, 1, VALUE % 2, 5 % VALUE)
    assert (divmod(C, 2), -C, +C, abs(-1 * C)) == (divmod(VALUE, 2), -VALUE, VALUE, VALUE)
    assert (float(C), int(C), complex(C), bool(C)) == (VALUE, 2, VALUE + 0j, True)
    assert (round(C), round(C, 2), math.floor(C), math.ceil(C), math.trunc(C)) == (3, 2.6, 2, 3, 2)
    assert (math.sqrt(C), math.log(C), sum([C, C])) == (math.sqrt(VALUE), math.log(VALUE), 2 * VALUE)
    assert C + C == 2 * VALUE
    assert (f"{C:.3f}", f"{C}", str(C)) == ("2.598", str(VALUE), str(VALUE))
    assert VALUE == C and C != VALUE + 1e-9 and C != "2.6"
    assert 2 < C < 3 and C <= 3
    assert constants.square_factor_upper_edge == 4 == constants.square_factor_upper_edge.value
    assert {VALUE: "found"}[C] == "found"  # type: ignore[index]
    assert sorted([constants.square_product_upper_edge, C, 3]) == [C, 3, constants.square_product_upper_edge]
    assert Fraction(constants.square_product_upper_edge.value) == constants.square_product_upper_edge


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_arrays_take_it_as_a_float_and_keep_their_dtype(dtype):
    array = np.array([1, 2], dtype)
    for found, expected in (
        (C * array, VALUE * array),
        (array * C, array * VALUE),
        (array - C, array - VALUE),
        (C**array, VALUE**array),
        (array < C, array < VALUE),
    ):
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == expected.dtype
    assert np.sqrt(C) == math.sqrt(VALUE)
    assert np.asarray(C).dtype == np.float64
    np.testing.assert_array_equal(np.array([C, 1.0]), [VALUE, 1.0])
    np.testing.assert_array_equal(xr.DataArray(array) * C, array * VALUE)


@pytest.mark.parametrize("digits", [15, 50, 150])
def test_mpmath_has_all_digits_of_its_precision(digits):
    with mp.workdps(digits):
        exact = mp.sqrt(mp.mpf("6.75"))
        tolerance = mp.mpf(10) ** (1 - digits)
        for found, expected in ((mp.mpf(C), exact), (C * mp.mpf(2), 2 * exact), (mp.mpf(2) * C, 2 * exact)):
            assert abs(found - expected) < tolerance
        assert abs(mp.log(C) - mp.log(exact)) < tolerance
        assert mp.mpf(2) < C < mp.mpf(3)


def test_its_repr_is_one_line_with_its_conditions():
    assert repr(constants.square_product_upper_edge) == (
        "<square_product_upper_edge = 6.75000000000000, exact; "
        "divided by √d and in units of √d σ_Q σ_K, any σ_Q, σ_K, d_head = d_model = d>"
    )
    assert repr(constants.largest_eigenvalue_mean(768, 64, sigma=0.02)) == (
        "<largest_eigenvalue_mean = 0.0002426 ± 1e-7, asymptotic: neglects 1/d_head of the standard deviation; "
        "divided by √d_model, σ_Q = σ_K = 0.02, d_model = 768, d_head = 64>"
    )
    for entry in (*constants.constants(), *constants.functions()):
        assert "\n" not in repr(entry)
        assert entry.name in repr(entry)


def test_notebooks_show_an_escaped_table():
    hostile = replace(C, description="<script>", definition="a < b & c")
    page = hostile._repr_html_()
    assert "<script>" not in page
    for shown in ("&lt;script&gt;", "a &lt; b &amp; c", "2.59807621135332", "any σ_Q, σ_K"):
        assert shown in page


EDGE = constants.product_upper_edge(768, 64, sigma_q=0.1, sigma_k=3.0, normalization="none")


@pytest.mark.parametrize("sent", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
@pytest.mark.parametrize(
    "one", [C, EDGE, constants.largest_eigenvalue_mean(768, 64, sigma=0.02), replace(C, symbol="x")]
)
def test_copied_and_pickled_it_is_the_same_constant_with_all_its_digits(sent, one):
    same = sent(one)
    assert (same, hash(same), repr(same), same.symbol) == (one, hash(one), repr(one), one.symbol)
    assert (same.conditions, same.bibtex()) == (one.conditions, one.bibtex())
    most = min(150, one.most_digits)
    assert same.digits(most) == one.digits(most)
    function = constants.product_upper_edge
    assert sent(function) is function


def test_it_goes_into_json_tables_and_jax_as_its_double():
    jnp = pytest.importorskip("jax.numpy")
    assert json.loads(json.dumps(float(C))) == C
    assert constants.as_json(C) == constants.as_json([C]) == json.loads(json.dumps(constants.as_json([C])))
    assert constants.as_latex(EDGE) == constants.as_latex([EDGE])
    row = jnp.ones(2, jnp.float32)
    for found in (C * row, row * C, jnp.asarray(C) * row):
        assert found.dtype == jnp.float32
        np.testing.assert_array_equal(found, np.float32(VALUE) * np.ones(2, np.float32))


@pytest.mark.parametrize("say", [constants.as_sentence, constants.as_latex_sentence])
def test_a_sentence_needs_a_shape_and_a_count_of_digits(say):
    expected = r"constant = .*: expected (a Constant|a constant of one shape, such as product_upper_edge\()"
    with pytest.raises(ParameterError, match=expected):
        say(constants.product_upper_edge)
    for digits in (0, -1, "3", 2.0):
        with pytest.raises(ParameterError, match=r"digits = .*: expected (a positive|an) integer"):
            say(EDGE, digits)
