"""The small core has the spectrum of the whole product."""

import numpy as np
import pytest

from rmtbase.linalg import product_singular_values


@pytest.mark.parametrize(("d_model", "d_head"), [(24, 1), (24, 5), (24, 24), (40, 16)])
def test_singular_values_are_those_of_the_dense_product(d_model, d_head):
    w_q, w_k = np.random.default_rng(1).standard_normal((2, 3, d_head, d_model))
    thin = product_singular_values(w_q, w_k)
    dense = np.linalg.svd(np.swapaxes(w_q, -1, -2) @ w_k, compute_uv=False)
    assert thin.shape == (3, d_head)
    np.testing.assert_allclose(thin, dense[:, :d_head], rtol=1e-10)
    assert (dense[:, d_head:] < 1e-12 * dense[:, :1]).all()


def test_leading_axes_broadcast():
    rng = np.random.default_rng(3)
    w_q, w_k = rng.standard_normal((4, 3, 5, 12)), rng.standard_normal((3, 5, 12))
    together = product_singular_values(w_q, w_k)
    assert together.shape == (4, 3, 5)
    np.testing.assert_array_equal(together[2, 1], product_singular_values(w_q[2, 1], w_k[1]))


def test_single_precision_factors_are_widened_before_any_arithmetic():
    w_q, w_k = np.random.default_rng(4).standard_normal((2, 6, 20)).astype(np.float32)
    narrow = product_singular_values(w_q, w_k)
    assert narrow.dtype == np.float64
    np.testing.assert_array_equal(narrow, product_singular_values(w_q.astype(float), w_k.astype(float)))


def test_the_smallest_singular_value_keeps_its_digits_where_a_gram_matrix_would_lose_them():
    # W_Q and W_K share their row space; singular values 1, 1e-5, 1e-10 of the product are known exactly.
    rotation, _ = np.linalg.qr(np.random.default_rng(5).standard_normal((30, 3)))
    w_q, w_k = np.diag([1.0, 1e-5, 1e-10]) @ rotation.T, rotation.T
    np.testing.assert_allclose(product_singular_values(w_q, w_k), [1.0, 1e-5, 1e-10], rtol=1e-5)
