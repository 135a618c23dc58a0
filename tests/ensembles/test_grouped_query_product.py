"""Heads that share their keys: the joint law of the thin draw is that of dense matrices.

False failures: each comparison of laws is a two-sample Kolmogorov–Smirnov test at 1e-6, each correlation lies within
five standard errors; all together a correct sampler fails for fewer than one seed in 10 000. The seeds are fixed.
"""

import jax
import numpy as np
import pytest
from scipy import stats

from exhaustive import mostly_exhaustive
from rmtbase.ensembles import grouped_query_product
from rmtbase.errors import ParameterError
from rmtbase.linalg import reproducible_jax
from rmtbase.montecarlo import case_key, draw_keys, simulate_heads_with_factors
from rmtbase.statistics import SPECTRAL_STATISTICS, spectral_statistics

D_MODEL, D_HEAD, GROUP, DRAWS = 11, 4, 3, 4_000
NAMES = list(SPECTRAL_STATISTICS)
TRACE, LOG_DETERMINANT = NAMES.index("trace"), NAMES.index("log_determinant")


def drawn(d_model, d_head, group, draws, seed):
    ensemble = grouped_query_product(d_model, d_head, group)
    with reproducible_jax():
        keys = draw_keys(case_key(seed, ensemble.name), np.arange(draws, dtype=np.uint32))
        cores, norms = jax.vmap(ensemble.sample)(keys)
    singular = np.linalg.svd(np.asarray(cores), compute_uv=False)
    return spectral_statistics(singular), np.asarray(norms)


def head_correlation(sample):
    draws, group = sample.shape[:2]
    z = sample - sample.mean(axis=(0, 1))
    squares = (z**2).mean(axis=1)
    pairs = (z.sum(axis=1) ** 2 - group * squares) / (group * (group - 1))
    value = pairs.mean(axis=0) / squares.mean(axis=0)
    return value, (pairs - value * squares).std(axis=0, ddof=1) / (np.sqrt(draws) * squares.mean(axis=0))


@pytest.fixture(scope="module")
def thin():
    return drawn(D_MODEL, D_HEAD, GROUP, DRAWS, seed=1)


@pytest.fixture(scope="module")
def dense():
    rng = np.random.default_rng(2)
    w_q, w_k = rng.standard_normal((DRAWS, GROUP, D_HEAD, D_MODEL)), rng.standard_normal((DRAWS, 1, D_HEAD, D_MODEL))
    singular = np.linalg.svd(np.swapaxes(w_q, -1, -2) @ w_k, compute_uv=False)[..., :D_HEAD]
    norms = np.concatenate([(w_q**2).sum((2, 3)), (w_k**2).sum((2, 3))], axis=1)
    return spectral_statistics(singular), norms


def correlation(first, second):
    x, y = ((one - one.mean()) / one.std() for one in (first, second))
    r = np.mean(x * y)
    return r, np.std(x * y - r * (x**2 + y**2) / 2) / np.sqrt(x.size)


@pytest.mark.exhaustive
@pytest.mark.parametrize("combine", [np.add, np.subtract, np.maximum], ids=["sum", "difference", "maximum"])
def test_two_heads_jointly_have_the_law_of_dense_matrices(combine, thin, dense):
    for k, name in enumerate(NAMES):
        here, there = (np.log(np.abs(one)) if name != "log_determinant" else one for one in (thin[0], dense[0]))
        p = stats.ks_2samp(combine(here[:, 0, k], here[:, 2, k]), combine(there[:, 0, k], there[:, 2, k])).pvalue
        assert p > 1e-6, name


def test_spectra_norms_and_correlations_jointly_are_those_of_dense_matrices(thin, dense):
    for factor in range(GROUP + 1):
        for head in range(GROUP):
            here, there = (np.log(sample[:, head, TRACE]) - np.log(norms[:, factor]) for sample, norms in (thin, dense))
            assert stats.ks_2samp(here, there).pvalue > 1e-6, (head, factor)
    for k, name in enumerate(NAMES):
        (here, error), (there, other) = (correlation(one[:, 0, k], one[:, 1, k]) for one in (thin[0], dense[0]))
        assert abs(here - there) < 5 * np.hypot(error, other), name


@pytest.mark.parametrize(
    ("d_model", "d_head", "group"), mostly_exhaustive([(4, 4, 3), (768, 4, 3), (64, 16, 4)], always=1)
)
def test_correlations_of_trace_and_log_determinant_are_the_exact_ones(d_model, d_head, group):
    found, error = head_correlation(drawn(d_model, d_head, group, 4_000, seed=4)[0])
    exact = {TRACE: d_model / (2 * d_model + d_head + 1), LOG_DETERMINANT: 0.5}
    for k, value in exact.items():
        assert error[k] < 0.03
        assert abs(found[k] - value) < 5 * error[k], NAMES[k]


def test_traces_covary_and_heads_with_keys_of_their_own_do_not(thin):
    centred = thin[0][:, :, TRACE] - D_MODEL**2 * D_HEAD
    product = centred[:, 0] * centred[:, 1]
    assert abs(product.mean() - 2 * D_MODEL**3 * D_HEAD) < 5 * product.std() / np.sqrt(DRAWS)
    shuffled = thin[0].copy()
    shuffled[:, 1:] = np.roll(thin[0][:, 1:], 1, axis=0)
    shuffled[:, 2:] = np.roll(shuffled[:, 2:], 1, axis=0)
    independent, error = head_correlation(shuffled)
    assert (np.abs(independent) < 5 * error).all()
    shared, error = head_correlation(thin[0])
    assert (shared > 5 * error).all()
    heads = simulate_heads_with_factors(D_MODEL, D_HEAD, GROUP, 50, seed=1)
    estimate = thin[1][:50] / (D_MODEL * D_HEAD)
    own = thin[0][:50, 1, TRACE] / (estimate[:, 1] * estimate[:, 3])
    np.testing.assert_allclose(heads.product[:, 1, TRACE], own)
    ratio = NAMES.index("participation_ratio")
    np.testing.assert_allclose(heads.product[..., ratio], thin[0][:50, :, ratio])


def test_a_draw_has_the_stated_shapes_and_first_draws_are_those_of_a_shorter_run():
    ensemble = grouped_query_product(12, 4, 3)
    assert ensemble.name == "grouped_query_product 12x4 group=3"
    assert ensemble.matrix_shape == (3, 4, 4)
    assert ensemble.factor_sizes == (48,) * 4
    assert ensemble.rank == 4
    sample, norm_squared = drawn(12, 4, 3, 2, seed=0)
    assert (sample.shape, norm_squared.shape) == ((2, 3, len(NAMES)), (2, 4))
    few, more = (simulate_heads_with_factors(D_MODEL, D_HEAD, GROUP, draws, seed=1) for draws in (5, 20))
    for short, long in zip(few, more, strict=True):
        np.testing.assert_array_equal(short, long[:5])
    assert (simulate_heads_with_factors(D_MODEL, D_HEAD, GROUP, 5, seed=2).product != few.product).all()


@pytest.mark.parametrize(("name", "arguments"), [
    *(("d_model", (0, 1, 1, 10)), ("d_head", (8, 9, 1, 10)), ("group", (8, 4, 0, 10))),
    *(("draws", (8, 4, 2, 1)), ("seed", (8, 4, 2, 9, -1))),
])  # fmt: skip
def test_bad_parameters_are_named(name, arguments):
    with pytest.raises(ParameterError) as caught:
        simulate_heads_with_factors(*arguments)
    assert caught.value.name == name
