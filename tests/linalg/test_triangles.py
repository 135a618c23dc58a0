"""Triangles from Gram matrices keep the digits of every singular value of a product, or are left to Householder."""

from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import mpmath
import numpy as np
import pytest

from rmtbase.errors import ParameterError
from rmtbase.linalg import product_singular_values, single_threaded_blas, triangle, triangles

DIGITS = 150
ROWS, COLUMNS = 6, 24


def orthonormal(rng, rows, columns):
    return np.linalg.qr(rng.standard_normal((columns, rows)))[0].T


def with_spectrum(values, columns=COLUMNS, seed=1):
    rng = np.random.default_rng(seed)
    left = np.linalg.qr(rng.standard_normal((len(values), len(values))))[0]
    return left * values @ orthonormal(rng, len(values), columns)


def graded(rows=ROWS, columns=COLUMNS):
    rng = np.random.default_rng(2)
    return np.geomspace(1.0, 1e-12, rows)[:, None] * rng.standard_normal((rows, columns))


def nearly_parallel(spread):
    return 1.0 + spread * np.random.default_rng(3).random((ROWS, COLUMNS))


def gaussian(dtype=np.float64):
    return np.random.default_rng(4).standard_normal((ROWS, COLUMNS)).astype(dtype)


WELL = {
    "gaussian": gaussian(), "float32": gaussian(np.float32), "bfloat16": gaussian(ml_dtypes.bfloat16),
    "float16": gaussian(np.float16), "graded rows": graded(),
    "spectrum over ten": with_spectrum(np.geomspace(1.0, 0.1, ROWS)),
    "spectrum over thirty": with_spectrum(np.geomspace(1.0, 1 / 30, ROWS)),
    "one large": with_spectrum(np.array([30.0, 1, 1, 1, 1, 1])),
    "one small": with_spectrum(np.array([1, 1, 1, 1, 1, 0.05])), "one sign": nearly_parallel(3.0),
    "huge": 1e60 * gaussian(), "tiny": 1e-60 * gaussian(),
    "one huge, one tiny": gaussian() * np.array([1e60, 1, 1, 1, 1, 1e-60])[:, None],
}  # fmt: skip
ILL = {
    "spectrum over a thousand": with_spectrum(np.geomspace(1.0, 1e-3, ROWS)),
    "spectrum over 1e12": with_spectrum(np.geomspace(1.0, 1e-12, ROWS)),
    "nearly parallel rows": nearly_parallel(1e-3),
    "a row of zeros": gaussian() * np.array([1, 1, 1, 0, 1, 1])[:, None],
    "two equal rows": gaussian()[[0, 1, 2, 3, 4, 0]], "of rank two": with_spectrum(np.array([1.0, 0.5, 0, 0, 0, 0])),
    "zeros": np.zeros((ROWS, COLUMNS)), "squares beyond float64": 1e160 * gaussian(),
    "squares below float64": 1e-160 * gaussian(), "taller than wide": gaussian().T,
}  # fmt: skip


def exact_triangle(w):
    with mpmath.workdps(DIGITS):
        exact = mpmath.matrix(np.asarray(w, dtype=float).tolist())
        gram, r = exact * exact.T, mpmath.zeros(len(w))
        for i in range(len(w)):
            for j in range(i, len(w)):
                rest = gram[i, j] - mpmath.fsum(r[k, i] * r[k, j] for k in range(i))
                r[i, j] = mpmath.sqrt(rest) if i == j else rest / r[i, i]
        return r


@pytest.mark.parametrize("name", WELL)
def test_a_triangle_from_a_gram_matrix_moves_no_singular_value_of_any_product(name):
    # R̂ = Q (I + F) R with orthogonal Q moves each singular value of R̂ B, whatever B, by a relative ‖F‖ at most; and
    # (I + F)ᵀ (I + F) - I = R⁻ᵀ (R̂ᵀR̂ - RᵀR) R⁻¹.
    found = triangles(WELL[name])
    assert found.r.dtype == np.float64 and not found.orthogonal
    with mpmath.workdps(DIGITS):
        ratio = mpmath.matrix(found.r.tolist()) * exact_triangle(WELL[name]) ** -1
        error = ratio.T * ratio - mpmath.eye(ROWS)
        norm = float(mpmath.mnorm(error, "f")) / 2.0
    assert norm < 2.5e-13
    assert norm < 1e-14 or name in ("spectrum over thirty", "one large", "one small", "one sign")


@pytest.mark.parametrize("name", ILL)
def test_where_digits_would_be_lost_the_factorisation_is_orthogonal(name):
    w = ILL[name]
    found = triangles(w)
    assert found.orthogonal
    np.testing.assert_array_equal(found.r, np.linalg.qr(w.T, mode="r"))


def test_the_limit_on_the_condition_decides():
    # Of rows with unit norm and one direction short by δ, H⁻¹ is δ⁻² along it: 500 at δ = 0.045, whatever the scale.
    def heads(short):
        rows = np.eye(2, COLUMNS)
        rows[1] = [np.sqrt(1 - short**2), short, *[0] * (COLUMNS - 2)]  # eigenvalues 1 ± √(1 - δ²) of H
        return np.array([rows, 1e9 * rows, rows * np.array([[1e5], [1e-5]])])

    assert triangles(heads(0.07)).orthogonal.tolist() == [False] * 3
    assert triangles(heads(0.05)).orthogonal.tolist() == [True] * 3


def exact_product_singular_values(w_q, w_k):
    with mpmath.workdps(DIGITS):
        return np.array([float(s) for s in mpmath.svd_r(exact_triangle(w_q) * exact_triangle(w_k).T, compute_uv=False)])


@pytest.mark.parametrize("name", [*WELL, "spectrum over a thousand", "spectrum over 1e12", "nearly parallel rows"])
def test_singular_values_of_a_product_are_the_exact_ones(name):
    # Beside the error of the triangles stands that of the SVD of the core, some ε s_1, as it did before.
    w_q, w_k = (WELL | ILL)[name], np.random.default_rng(5).standard_normal((ROWS, COLUMNS))
    exact = exact_product_singular_values(w_q, w_k)
    found = product_singular_values(w_q, w_k)
    well_above = exact > 1e-3 * exact[0]
    np.testing.assert_allclose(found[well_above], exact[well_above], rtol=1e-12)
    np.testing.assert_allclose(found, exact, rtol=0, atol=8e-16 * ROWS * exact[0])


def test_a_triangle_is_the_same_to_the_bit_in_whatever_company_layout_and_thread():
    rng = np.random.default_rng(6)
    stack = rng.standard_normal((2, 5, 32, 200)).astype(np.float32)
    stack[1, 2, 31] = stack[1, 2, 0]  # one of them by Householder
    with single_threaded_blas():
        together = triangles(stack)
        assert together.orthogonal.sum() == 1 and together.orthogonal[1, 2]
        assert together.r.shape == (2, 5, 32, 32)
        for place in np.ndindex(2, 5):
            np.testing.assert_array_equal(triangle(stack[place]), together.r[place])
        np.testing.assert_array_equal(triangle(np.asfortranarray(stack, dtype=np.float64)), together.r)
        backwards = np.ascontiguousarray(stack[..., ::-1])[..., ::-1]
        np.testing.assert_array_equal(triangle(backwards), together.r)
        with ThreadPoolExecutor(4) as pool:
            for r in pool.map(triangle, [stack] * 8):
                np.testing.assert_array_equal(r, together.r)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_refused(bad):
    w = gaussian()
    w[2, 3] = bad
    with pytest.raises(ParameterError, match=r"factors = .(1 NaN and 0|0 NaN and 1) infinite"):
        triangle(w)


@pytest.mark.parametrize(("rows", "columns"), [(8, 64), (32, 64), (48, 64), (60, 64), (64, 64), (128, 1024)])
def test_the_condition_of_rows_of_unit_norm_decides_whatever_way_it_is_found(rows, columns):
    # Of wide matrices the determinant shows it to be small; of those nearly square the inverse has to.
    rng = np.random.default_rng(7)
    shared = np.geomspace(0.1, 30.0, 12)[:, None, None] * rng.standard_normal((1, columns))
    stack = shared + rng.standard_normal((12, rows, columns))
    unit = stack / np.linalg.norm(stack, axis=-1, keepdims=True)
    norms = np.sqrt((np.linalg.svd(unit, compute_uv=False) ** -4.0).sum(-1))
    sure = abs(norms / 500.0 - 1.0) > 1e-3
    np.testing.assert_array_equal(triangles(stack).orthogonal[sure], norms[sure] > 500.0)


@pytest.mark.parametrize(("d_model", "d_head"), [(24, 1), (24, 5), (24, 24), (40, 16)])
def test_singular_values_are_those_of_the_dense_product(d_model, d_head):
    w_q, w_k = np.random.default_rng(1).standard_normal((2, 3, d_head, d_model))
    thin = product_singular_values(w_q, w_k)
    dense = np.linalg.svd(np.swapaxes(w_q, -1, -2) @ w_k, compute_uv=False)
    assert thin.shape == (3, d_head)
    np.testing.assert_allclose(thin, dense[:, :d_head], rtol=1e-10)
    assert (dense[:, d_head:] < 1e-12 * dense[:, :1]).all()


def test_leading_axes_broadcast_factors_are_widened_and_the_smallest_keeps_its_digits():
    rng = np.random.default_rng(3)
    w_q, w_k = rng.standard_normal((4, 3, 5, 12)), rng.standard_normal((3, 5, 12))
    together = product_singular_values(w_q, w_k)
    assert together.shape == (4, 3, 5)
    np.testing.assert_array_equal(together[2, 1], product_singular_values(w_q[2, 1], w_k[1]))
    w_q, w_k = np.random.default_rng(4).standard_normal((2, 6, 20)).astype(np.float32)
    narrow = product_singular_values(w_q, w_k)
    assert narrow.dtype == np.float64
    np.testing.assert_array_equal(narrow, product_singular_values(w_q.astype(float), w_k.astype(float)))
    # W_Q and W_K share their row space; singular values 1, 1e-5, 1e-10 of the product are known exactly.
    rotation, _ = np.linalg.qr(np.random.default_rng(5).standard_normal((30, 3)))
    w_q, w_k = np.diag([1.0, 1e-5, 1e-10]) @ rotation.T, rotation.T
    np.testing.assert_allclose(product_singular_values(w_q, w_k), [1.0, 1e-5, 1e-10], rtol=1e-5)
