"""Resamplers of a given head keep what they say they keep, and leave the rest to chance.

False failures: means lie within five standard errors and Kolmogorov–Smirnov tests exceed 1e-6; all together a correct
sampler fails for fewer than one seed in 10 000. The seeds are fixed.
"""

import itertools

import jax
import ml_dtypes
import numpy as np
import pytest
from scipy import stats

from rmtbase.ensembles import haar_aligned_head, permuted_head, random_subspaces
from rmtbase.errors import ParameterError
from rmtbase.linalg import product_singular_values, reproducible_jax, without_noise
from rmtbase.montecarlo import case_key, draw_keys, draw_spectra

RESAMPLERS = (permuted_head, haar_aligned_head)
both = pytest.mark.parametrize("resampler", RESAMPLERS)


@jax.jit
def sample_many(ensemble, keys):
    return jax.vmap(ensemble.sample)(keys)


@jax.jit
def permute_many(ensemble, keys):
    return jax.vmap(ensemble.permuted)(keys)


def draws(many, ensemble, n):
    """The first n draws, as NumPy arrays."""
    with reproducible_jax():
        keys = draw_keys(case_key(0, ensemble.name), np.arange(n, dtype=np.uint32))
        return jax.tree.map(np.asarray, many(ensemble, keys))


def spectra(ensemble, n, seed=0):
    return np.concatenate([chunk.singular_values for chunk in draw_spectra(ensemble, n, seed, solver="svd")])


@pytest.fixture
def head():
    rng = np.random.default_rng(5)
    return rng.standard_t(3, (4, 11)), rng.standard_t(3, (4, 11)) * 0.02


# Permutation


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_shuffled_elements_are_the_heads_own_to_the_bit(dtype, head):
    w_q, w_k = (w.astype(dtype) for w in head)
    w_q[0, :3] = 1.0  # elements that are equal stay as many
    ensemble = permuted_head(w_q, w_k)
    for shuffled, own in zip(draws(permute_many, ensemble, 50), (w_q, w_k), strict=True):
        assert shuffled.dtype == own.dtype
        assert shuffled.shape == (50, *own.shape)
        bits = f"u{own.dtype.itemsize}"
        expected = np.sort(own.view(bits).ravel())
        np.testing.assert_array_equal(np.sort(shuffled.view(bits).reshape(50, -1), axis=1), np.tile(expected, (50, 1)))
        assert len(np.unique(shuffled.view(bits).reshape(50, -1), axis=0)) == 50


def test_all_orders_are_equally_likely():
    w = np.array([[1.0, 2.0, 3.0, 4.0]])
    ensemble = permuted_head(w, w)
    n = 24_000
    for shuffled in draws(permute_many, ensemble, n):
        orders = [tuple(order) for order in itertools.permutations(w[0])]
        counts = [int((shuffled[:, 0] == order).all(axis=1).sum()) for order in orders]
        assert sum(counts) == n
        assert stats.chisquare(counts).pvalue > 1e-6


def test_elements_of_queries_and_keys_are_shuffled_independently():
    w = np.array([[1.0, 2.0, 3.0, 4.0]])
    ensemble = permuted_head(w, w)
    first, second = draws(permute_many, ensemble, 24_000)
    counts = [[int(((first[:, 0, 0] == i) & (second[:, 0, 0] == j)).sum()) for i in w[0]] for j in w[0]]
    assert stats.chisquare(np.ravel(counts)).pvalue > 1e-6


def test_every_element_goes_everywhere():
    w = np.arange(35.0).reshape(5, 7)
    ensemble = permuted_head(w, w)
    shuffled, _ = draws(permute_many, ensemble, 7_000)
    place = np.argsort(shuffled.reshape(-1, 35), axis=1)
    for element in (0, 17, 34):
        assert stats.chisquare(np.bincount(place[:, element], minlength=35)).pvalue > 1e-6


def test_core_has_the_singular_values_of_the_shuffled_product(head):
    ensemble = permuted_head(*head)
    w_q, w_k = draws(permute_many, ensemble, 20)
    found = spectra(ensemble, 20)
    np.testing.assert_allclose(found, product_singular_values(w_q, w_k), rtol=1e-10)


def test_spectra_have_the_law_of_numpys_permutations(head):
    rng, n = np.random.default_rng(6), 3_000
    w_q, w_k = (rng.permuted(np.tile(w.reshape(1, -1), (n, 1)), axis=1).reshape(n, *w.shape) for w in head)
    expected, found = product_singular_values(w_q, w_k), spectra(permuted_head(*head), n)
    for k in range(4):
        assert stats.ks_2samp(found[:, k], expected[:, k]).pvalue > 1e-6


def test_shuffled_matrices_without_full_rank_keep_their_digits():
    w = np.zeros((5, 40))
    w[0, :12] = [1e-3, 1, 2, -3, 1e4, 5, 1, -1, 2, 7, 1e-2, 1]  # in five rows: some draws have a row of zeros
    ensemble = permuted_head(w, w)
    expected = product_singular_values(*draws(permute_many, ensemble, 300))
    found = without_noise(spectra(ensemble, 300))
    assert 50 < (expected[:, -1] == 0).sum() < 300
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-15 * expected.max())


# Rotation


def test_rotated_matrices_keep_their_singular_values(head):
    ensemble = haar_aligned_head(*head)
    for own, w in ((ensemble.s_q, head[0]), (ensemble.s_k, head[1])):
        np.testing.assert_allclose(own, np.linalg.svd(w, compute_uv=False), rtol=1e-12)
    drawn = draws(sample_many, ensemble, 400)
    rotation = drawn.matrix / (ensemble.s_q[:, None] * ensemble.s_k)
    np.testing.assert_allclose(rotation @ np.swapaxes(rotation, 1, 2), np.tile(np.eye(4), (400, 1, 1)), atol=1e-12)


def test_spectra_have_the_law_of_rotated_dense_matrices(head):
    n = 3_000
    rotation = stats.ortho_group(4, seed=7).rvs(n)
    expected = product_singular_values(rotation @ head[0], head[1])
    found = spectra(haar_aligned_head(*head), n)
    for k in range(4):
        assert stats.ks_2samp(found[:, k], expected[:, k]).pvalue > 1e-6


def test_trace_has_the_exact_mean_and_the_determinant_is_fixed(head):
    ensemble = haar_aligned_head(*head)
    found = spectra(ensemble, 4_000)
    trace = (found**2).sum(axis=1)
    exact = (ensemble.s_q**2).sum() * (ensemble.s_k**2).sum() / 4
    assert abs(trace.mean() - exact) < 5 * trace.std() / np.sqrt(4_000)
    np.testing.assert_allclose(np.log(found).sum(axis=1), np.log(ensemble.s_q * ensemble.s_k).sum(), atol=1e-10)


def test_a_rotation_of_the_residual_stream_leaves_the_spectrum_of_the_product_alone(head):
    rotation = stats.ortho_group(11, seed=8).rvs()
    np.testing.assert_allclose(
        product_singular_values(head[0], head[1] @ rotation), product_singular_values(*head), rtol=1e-12
    )


# Random subspaces

SHAPES = [(1, 1), (9, 1), (4, 4), (5, 4), (7, 4), (8, 4), (20, 4), (4000, 4)]


@pytest.mark.parametrize(("d_model", "d_head"), SHAPES)
def test_mean_square_cosine_of_principal_angles_is_h_over_d(d_model, d_head):
    n, d, h = 4_000, d_model, d_head
    cosines = spectra(random_subspaces(d, h), n)
    assert (cosines <= 1 + 1e-12).all()
    mean = (cosines**2).mean(axis=1)
    if d == h:
        np.testing.assert_allclose(mean, 1.0, rtol=1e-12)
        return
    variance = 2 * (d - h) ** 2 / (d**2 * (d - 1) * (d + 2))
    assert abs(mean.mean() - h / d) < 5 * np.sqrt(variance / n)
    square = (mean - h / d) ** 2
    assert abs(square.mean() - variance) < 5 * square.std() / np.sqrt(n)


@pytest.mark.parametrize(("d_model", "d_head"), [(9, 4), (5, 4), (4, 4)])
def test_corner_has_the_law_of_the_corner_of_a_haar_matrix(d_model, d_head):
    n, ensemble = 3_000, random_subspaces(d_model, d_head)
    corner = draws(sample_many, ensemble, n).matrix
    expected = stats.ortho_group(d_model, seed=9).rvs(n)[:, :d_head, :d_head]
    for i, j in itertools.product(range(d_head), repeat=2):
        assert stats.ks_2samp(corner[:, i, j], expected[:, i, j]).pvalue > 1e-6
    for jointly in (np.linalg.det, lambda one: np.trace(one, axis1=1, axis2=2)):
        assert stats.ks_2samp(jointly(corner), jointly(expected)).pvalue > 1e-6


def test_where_subspaces_must_meet_they_do():
    cosines = spectra(random_subspaces(6, 4), 200)
    np.testing.assert_allclose(cosines[:, :2], 1.0, atol=1e-12)
    assert (cosines[:, 2] < 1 - 1e-9).all()


@pytest.mark.parametrize(("d_model", "d_head"), [(4, 5), (0, 1), (4, 0), (4.0, 2), (True, 1), (4, None), ("4", 2)])
def test_subspaces_of_no_shape_are_refused(d_model, d_head):
    with pytest.raises(ParameterError):
        random_subspaces(d_model, d_head)


# Both


@both
def test_norms_are_the_heads_own(resampler, head):
    ensemble = resampler(*head)
    drawn = draws(sample_many, ensemble, 3)
    np.testing.assert_allclose(drawn.norm_squared, np.tile([(w**2).sum() for w in head], (3, 1)), rtol=1e-12)
    assert ensemble.factor_sizes == (44, 44)
    assert drawn.matrix.shape == (3, *ensemble.matrix_shape) == (3, 4, 4)
    assert ensemble.rank == 4


@both
def test_name_identifies_the_values_and_nothing_else(resampler, head):
    w_q, w_k = (w.astype(np.float32) for w in head)
    name = resampler(w_q, w_k).name
    assert name.startswith(f"{resampler.__name__} 11x4 sha256:")
    for same in ((w_q.astype(np.float64), w_k), (np.asfortranarray(w_q), w_k.copy())):
        assert resampler(*same).name == name
    changed = w_q.copy()
    changed[3, 10] = np.nextafter(changed[3, 10], np.float32(9))
    for other in ((w_k, w_q), (changed, w_k), (w_q[:, ::-1], w_k)):
        assert resampler(*other).name != name


@both
def test_draws_are_a_function_of_head_seed_and_index(resampler, head):
    first = spectra(resampler(*head), 40)
    np.testing.assert_array_equal(spectra(resampler(*head), 25), first[:25])
    np.testing.assert_array_equal(spectra(resampler(*(w.astype(np.float64) for w in head)), 40), first)
    assert (spectra(resampler(*head), 40, seed=1) != first).any(axis=1).all()


@both
def test_zero_matrices_give_zero_draws(resampler, head):
    zero = np.zeros_like(head[0])
    for w_q, w_k in ((zero, head[1]), (head[0], zero), (zero, zero)):
        np.testing.assert_array_equal(spectra(resampler(w_q, w_k), 5), 0.0)


@both
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["w_q", "w_k"])
def test_value_that_is_not_finite_is_refused(resampler, name, bad, head):
    head[name == "w_k"][1, 2] = bad
    refused(name, "finite", lambda: resampler(*head))


@both
@pytest.mark.parametrize("shape", [(), (4,), (4, 0), (2, 4, 11), (11, 4)])
def test_what_has_not_the_shape_of_a_head_is_refused(resampler, shape, head):
    refused("w_q", "(d_head, d_model)", lambda: resampler(np.ones(shape), head[1]))


@both
def test_matrices_of_two_head_dimensions_are_refused(resampler, head):
    refused("w_k", "as many rows as w_q of shape (4, 11)", lambda: resampler(head[0], head[1][:3]))


@both
@pytest.mark.parametrize("dtype", [int, bool, complex, object, str, np.longdouble])
def test_elements_that_are_no_floats_are_refused(resampler, dtype, head):
    refused("w_k", "floating-point", lambda: resampler(head[0], np.ones((4, 11), dtype=int).astype(dtype)))


@both
@pytest.mark.parametrize("bad", [None, "a name", [[1.0], [1.0, 2.0]]])
def test_what_is_no_array_is_refused(resampler, bad, head):
    refused("w_q", "", lambda: resampler(bad, head[1]))


def refused(name, fragment, call):
    with pytest.raises(ParameterError) as caught:
        call()
    assert caught.value.name == name
    assert fragment in str(caught.value)
