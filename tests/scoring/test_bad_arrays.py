"""Arrays that are no heads, each refused by name."""

import numpy as np
import pytest

import rmtbase
from rmtbase.errors import ParameterError
from rmtbase.nulls import Gaussian


def refused(name, fragments, call):
    with pytest.raises(ParameterError) as caught:
        call()
    assert caught.value.name == name
    for fragment in fragments:
        assert fragment in str(caught.value)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["w_q", "w_k"])
def test_value_that_is_not_finite_is_named_with_its_head(name, bad, arrays, score_arrays):
    w_q, w_k = arrays
    (w_q if name == "w_q" else w_k)[1, 2, 3] = bad
    refused(name, ["NaN or infinity in head 1", "finite"], lambda: score_arrays(w_q, w_k))


@pytest.mark.parametrize("shape", [(8, 32), (1, 1, 4, 8, 32), (0, 8, 32), (4, 0, 32), ()])
def test_shape_that_is_not_head_d_head_d_model(shape, arrays, score_arrays):
    refused("w_q", [str(shape), "(head, d_head, d_model)"], lambda: score_arrays(np.ones(shape), arrays[1]))
    refused("w_k", [str(shape), "(head, d_head, d_model)"], lambda: score_arrays(arrays[0], np.ones(shape)))


@pytest.mark.parametrize("shape", [(2, 8, 31), (2, 7, 32), (3, 8, 32), (8, 8, 32)])
def test_keys_that_do_not_fit_the_queries(shape, arrays, score_arrays):
    refused("w_k", [str(shape), "8, 32", "divisor of 4"], lambda: score_arrays(arrays[0], np.ones(shape)))


@pytest.mark.parametrize("null", [Gaussian(draws=100), "analytic", "signs", "axes"])
def test_one_dimensional_heads_have_nothing_but_a_scale(null, arrays):
    w_q, w_k = (w[:, :1] for w in arrays)
    refused("d_head", ["d_head = 1", "at least 2"], lambda: rmtbase.score_heads(w_q, w_k, null))


@pytest.mark.parametrize("null", ["permutation", "Signs", ""])
def test_null_that_is_not_offered(null, arrays, score_arrays):
    offered = "'gaussian', 'analytic', 'kurtosis', 'signs', 'axes', a baseline table"
    refused("null", [repr(null), offered], lambda: score_arrays(*arrays, null=null))


def test_the_callers_arrays_are_left_as_they_are(arrays, score_arrays):
    before = [w.copy() for w in arrays]
    score_arrays(*arrays)
    for now, then in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(now, then)
