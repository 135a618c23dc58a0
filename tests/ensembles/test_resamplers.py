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

from exhaustive import mostly_exhaustive
from rmtbase.ensembles import axis_permuted_head, random_subspaces, sign_flipped_head
from rmtbase.errors import ParameterError
from rmtbase.linalg import product_singular_values, reproducible_jax, without_noise
from rmtbase.montecarlo import case_key, draw_keys, draw_spectra

RESAMPLERS = (sign_flipped_head, axis_permuted_head)
both = pytest.mark.parametrize("resampler", RESAMPLERS)


@jax.jit
def sample_many(ensemble, keys):
    return jax.vmap(ensemble.sample)(keys)


@jax.jit
def flip_many(ensemble, keys):
    return jax.vmap(ensemble.flipped)(keys)


def draws(many, ensemble, n):
    with reproducible_jax():
        keys = draw_keys(case_key(0, ensemble.name), np.arange(n, dtype=np.uint32))
        return jax.tree.map(np.asarray, many(ensemble, keys))


def spectra(ensemble, n, seed=0):
    return np.concatenate([chunk.singular_values for chunk in draw_spectra(ensemble, n, seed, solver="svd")])


@pytest.fixture
def head():
    rng = np.random.default_rng(5)
    return rng.standard_t(3, (4, 11)), rng.standard_t(3, (4, 11)) * 0.02


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_flipped_elements_keep_their_sizes_and_places_to_the_bit(dtype, head):
    w_q, w_k = (w.astype(dtype) for w in head)
    ensemble = sign_flipped_head(w_q, w_k)
    for drawn, own in zip(draws(flip_many, ensemble, 50), (w_q, w_k), strict=True):
        assert drawn.dtype == own.dtype
        np.testing.assert_array_equal(np.abs(drawn), np.tile(np.abs(own), (50, 1, 1)))
        assert len(np.unique(drawn.astype(float).reshape(50, -1), axis=0)) == 50


def test_signs_are_fair_and_independent_of_each_other_and_between_the_factors():
    w = np.ones((5, 13))  # more than two words of 32 bits
    n = 6_000
    signs = np.concatenate([each.reshape(n, -1) for each in draws(flip_many, sign_flipped_head(w, w), n)], axis=1)
    assert set(np.unique(signs)) == {-1.0, 1.0}
    correlation = signs.T @ signs / n
    assert np.abs(signs.mean(axis=0)).max() < 5.5 / np.sqrt(n)
    assert np.abs(correlation - np.eye(len(correlation))).max() < 6.0 / np.sqrt(n)


def test_cores_have_the_spectra_of_flipped_products_and_permutations_fix_the_determinant(head):
    ensemble = sign_flipped_head(*head)
    w_q, w_k = draws(flip_many, ensemble, 20)
    np.testing.assert_allclose(spectra(ensemble, 20), product_singular_values(w_q, w_k), rtol=1e-10)
    rng, n = np.random.default_rng(6), 3_000
    w_q, w_k = (w * rng.choice([-1.0, 1.0], (n, *w.shape)) for w in head)
    expected, found = product_singular_values(w_q, w_k), spectra(sign_flipped_head(*head), n)
    for k in range(4):
        assert stats.ks_2samp(found[:, k], expected[:, k]).pvalue > 1e-6
    ensemble = axis_permuted_head(*head)
    found = spectra(ensemble, 400)
    fixed = np.log([np.linalg.svd(w, compute_uv=False) for w in head]).sum()
    np.testing.assert_allclose(np.log(found).sum(axis=1), fixed, atol=1e-10)
    norms = draws(sample_many, ensemble, 5).norm_squared
    np.testing.assert_allclose(norms, [[(w**2).sum() for w in head]] * 5)


def test_matrices_without_full_rank_keep_their_digits_and_subspaces_meet_where_they_must():
    w = np.zeros((5, 40))
    w[:, :6] = [1e-3, 1, 2, -3, 1e4, 5]  # five rows of equal sizes: some draws have two that are equal
    ensemble = sign_flipped_head(w, w)
    expected = product_singular_values(*draws(flip_many, ensemble, 300))
    found = without_noise(spectra(ensemble, 300))
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-13 * expected.max())
    cosines = spectra(random_subspaces(6, 4), 200)
    np.testing.assert_allclose(cosines[:, :2], 1.0, atol=1e-12)
    assert (cosines[:, 2] < 1 - 1e-9).all()


def test_permuted_heads_are_those_of_signed_permutations(head):
    w_q, w_k = head
    signs = np.array(list(itertools.product([1.0, -1.0], repeat=4)))[:, :, None]
    products = [w_q.T @ (s * w_k[list(order)]) for order in itertools.permutations(range(4)) for s in signs[:8]]
    known = np.array([np.linalg.norm(each) for each in products])
    n = 19_200
    found = np.sqrt((spectra(axis_permuted_head(*head), n) ** 2).sum(axis=1))
    place = np.abs(found[:, None] - known).argmin(axis=1)
    np.testing.assert_allclose(found, known[place], rtol=1e-10)
    assert stats.chisquare(np.bincount(place, minlength=len(known))).pvalue > 1e-6


SHAPES = [(1, 1), (9, 1), (4, 4), (5, 4), (7, 4), (8, 4), (20, 4), (4000, 4)]


@pytest.mark.parametrize(("d_model", "d_head"), mostly_exhaustive(SHAPES, always=1))
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


@pytest.mark.exhaustive
@pytest.mark.parametrize(("d_model", "d_head"), mostly_exhaustive([(9, 4), (5, 4), (4, 4)], always=1))
def test_corner_has_the_law_of_the_corner_of_a_haar_matrix(d_model, d_head):
    n, ensemble = 3_000, random_subspaces(d_model, d_head)
    corner = draws(sample_many, ensemble, n).matrix
    expected = stats.ortho_group(d_model, seed=9).rvs(n)[:, :d_head, :d_head]
    for i, j in itertools.product(range(d_head), repeat=2):
        assert stats.ks_2samp(corner[:, i, j], expected[:, i, j]).pvalue > 1e-6
    for jointly in (np.linalg.det, lambda one: np.trace(one, axis1=1, axis2=2)):
        assert stats.ks_2samp(jointly(corner), jointly(expected)).pvalue > 1e-6


@both
def test_draws_keep_the_norms_are_named_by_the_values_and_depend_on_head_seed_and_index(resampler, head):
    ensemble = resampler(*head)
    drawn = draws(sample_many, ensemble, 3)
    np.testing.assert_allclose(drawn.norm_squared, np.tile([(w**2).sum() for w in head], (3, 1)), rtol=1e-12)
    assert ensemble.factor_sizes == (44, 44)
    assert drawn.matrix.shape == (3, *ensemble.matrix_shape) == (3, 4, 4)
    assert ensemble.rank == 4
    w_q, w_k = (w.astype(np.float32) for w in head)
    name = resampler(w_q, w_k).name
    assert name.startswith(f"{resampler.__name__} 11x4 sha256:")
    for same in ((w_q.astype(np.float64), w_k), (np.asfortranarray(w_q), w_k.copy())):
        assert resampler(*same).name == name
    changed = w_q.copy()
    changed[3, 10] = np.nextafter(changed[3, 10], np.float32(9))
    for other in ((w_k, w_q), (changed, w_k), (w_q[:, ::-1], w_k)):
        assert resampler(*other).name != name
    first = spectra(resampler(*head), 40)
    np.testing.assert_array_equal(spectra(resampler(*head), 25), first[:25])
    np.testing.assert_array_equal(spectra(resampler(*(w.astype(np.float64) for w in head)), 40), first)
    assert (spectra(resampler(*head), 40, seed=1) != first).any(axis=1).all()
    zero = np.zeros_like(head[0])
    for w_q, w_k in ((zero, head[1]), (head[0], zero), (zero, zero)):
        np.testing.assert_array_equal(spectra(resampler(w_q, w_k), 5), 0.0)


ONES = np.ones((4, 11))


def one_bad(value):
    return np.where(np.arange(44).reshape(4, 11) == 13, value, 1.0)


REFUSED = [
    *((name, one_bad(value), "finite") for value in (np.nan, np.inf, -np.inf) for name in ("w_q", "w_k")),
    *(("w_q", np.ones(shape), "(d_head, d_model)") for shape in ((), (4,), (4, 0), (2, 4, 11), (11, 4))),
    ("w_k", ONES[:3], "as many rows as w_q of shape (4, 11)"),
    *(("w_k", ONES.astype(int).astype(kind), "floating") for kind in (int, bool, complex, object, str, np.longdouble)),
    *(("w_q", bad, "") for bad in (None, "a name", [[1.0], [1.0, 2.0]])),
]


@both
@pytest.mark.parametrize(("name", "bad", "fragment"), REFUSED)
def test_what_is_no_head_is_refused(resampler, name, bad, fragment):
    with pytest.raises(ParameterError) as caught:
        resampler(**{"w_q": ONES, "w_k": ONES, name: bad})
    assert caught.value.name == name
    assert fragment in str(caught.value)
