"""Planted directions are counted, measured and told from noise; what learned nothing has none."""

from itertools import pairwise

import numpy as np
import pytest

from rmtbase.errors import ParameterError
from rmtbase.laws import RankOneSpike
from rmtbase.results.signal import spectral_signal

W_QK, MATRIX = (96, 16, 64), (160, 40)


def spectra(dims, strengths, trials, seed=0):
    """Eigenvalues of X_1 ... X_L with spikes of those strengths on X_1, u and v the first unit vectors."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(trials):
        factors = [rng.standard_normal(shape) for shape in pairwise(dims)]
        for k, strength in enumerate(strengths):
            factors[0][k, k] += strength
        product = np.linalg.multi_dot(factors) if len(factors) > 1 else factors[0]
        found.append(np.linalg.svd(product, compute_uv=False)[: min(dims)] ** 2)
    return np.array(found)


def threshold(dims):
    return RankOneSpike(dims=dims, factor=0, normalization="none").threshold


@pytest.mark.exhaustive
@pytest.mark.parametrize("dims", [W_QK, MATRIX, (40, 200), (60, 30, 20, 50)], ids=str)
def test_noise_has_a_direction_as_often_as_the_level_says(dims):
    found = spectral_signal(spectra(dims, [], 200), dims)
    # Of 200 at 5 % more than 21, or of rests at 0.1 % more than 4, with probability 1e-3 each.
    assert (found.n_directions > 0).sum() <= 21
    assert (~found.noise_floor).sum() <= 4
    none = found.n_directions == 0
    assert (found.signal_share[none] == 0).all()
    scale = (found.noise_scale[none] - 1.0) / found.noise_scale_std[none]
    assert abs(scale.mean()) < 4.0 / np.sqrt(none.sum())


@pytest.mark.parametrize("dims", [(96, 32, 96), (32, 128)], ids=str)
def test_noise_of_other_entries_is_known_by_their_kurtosis(dims):
    rng = np.random.default_rng(4)

    def drawn():
        factors = [rng.uniform(-1.0, 1.0, (300, *shape)) for shape in pairwise(dims)]
        kurtosis = [np.mean(one**4, axis=(1, 2)) / np.mean(one**2, axis=(1, 2)) ** 2 - 3.0 for one in factors]
        product = factors[0] if len(factors) == 1 else factors[0] @ factors[1]
        return np.linalg.svd(product, compute_uv=False)[:, : min(dims)] ** 2, np.mean(kurtosis, axis=0)

    eigenvalues, kurtosis = drawn()
    found = spectral_signal(eigenvalues, dims, excess_kurtosis=kurtosis)
    # Of 300 at 5 % fewer than 5 or more than 29 with probability 1e-3 at either end.
    assert 5 <= (found.n_directions > 0).sum() <= 29
    assert 5 <= (found.rest_p_value < 0.05).sum() <= 29
    as_normal = spectral_signal(eigenvalues, dims)
    assert (found.first_p_value < as_normal.first_p_value).mean() > 0.99  # whose edge is farther out
    one = spectral_signal(3.0 * eigenvalues[7], dims, excess_kurtosis=kurtosis[7])
    np.testing.assert_allclose(one.rest_p_value, found.rest_p_value[7], rtol=1e-6)  # at any scale


@pytest.mark.parametrize(("dims", "multiples"), [(W_QK, (2.5,)), (MATRIX, (4.0, 3.0, 2.5)), ((60, 30, 20, 50), (3.0,))])
def test_strong_directions_are_found_and_measured(dims, multiples):
    strengths = threshold(dims) * np.array(multiples)
    found = spectral_signal(spectra(dims, strengths, 100, seed=1), dims)
    # Beyond each test's 5 % of too many: of 100 fewer than 85 with probability 1e-4.
    assert (found.n_directions == len(multiples)).sum() >= 85
    gain = RankOneSpike(dims=dims, factor=0, normalization="none").gain
    inside = (found.strength_low[:, : len(multiples)] <= gain * strengths) & (
        gain * strengths <= found.strength_high[:, : len(multiples)]
    )
    # A share of 0.95 over 100 and more: less than 0.87 with probability 1e-3.
    assert inside.mean() > 0.87
    rest = found.rest_p_value[found.n_directions == len(multiples)]
    assert (rest < 0.05).mean() < 0.15


def test_limits_of_a_strength_are_those_of_its_mean_over_the_other_factor():
    dims, trials, rng = W_QK, 600, np.random.default_rng(8)
    strength = 2.0 * threshold(dims)
    query, key = rng.standard_normal((trials, 96, 16)), rng.standard_normal((trials, 16, 64))
    query[:, 0, 0] += strength
    left, right = (np.linalg.qr(one, mode="r") for one in (query, np.swapaxes(key, 1, 2)))
    found = spectral_signal(np.linalg.svd(left @ np.swapaxes(right, 1, 2), compute_uv=False) ** 2, dims)
    realised = strength * np.linalg.norm(key[:, 0], axis=1)
    low, high = found.strength_low[:, 0], found.strength_high[:, 0]
    seen = ~np.isnan(low)
    mean, own = (np.mean((low <= true) & (true <= high), where=seen) for true in (strength * 64**0.5, realised))
    # Shares of some 590 with standard errors of 0.9 %: three of them about 95 %, and the other clearly beyond.
    assert abs(mean - 0.95) < 0.027
    assert own > max(mean + 0.01, 0.975)


def test_numbers_of_one_direction_belong_together():
    values = spectra(MATRIX, [3.0 * threshold(MATRIX)], 1, seed=2)[0]
    found = spectral_signal(values, MATRIX)
    assert found.n_directions == 1
    spike = RankOneSpike(dims=MATRIX, normalization="none")
    scale = found.noise_scale**2
    theta = float(spike.strength(values[0] / scale)) * found.noise_scale
    assert found.strength[0] == pytest.approx(theta, rel=1e-12)
    shrunken = float(spike.outlier(values[0] / scale).shrunken) * found.noise_scale
    assert found.shrunken[0] == pytest.approx(shrunken, rel=1e-12)
    left, right = spike.overlaps(theta / found.noise_scale)
    np.testing.assert_allclose((found.overlap_left[0], found.overlap_right[0]), (left, right), rtol=1e-9)
    assert found.shrunken[0] == pytest.approx(theta * np.sqrt(left * right), rel=1e-9)
    assert found.expected_error == pytest.approx(theta**2 * (1 - left * right), rel=1e-6)
    assert found.signal_share == pytest.approx(theta**2 / values.sum(), rel=1e-12)
    assert found.raw_share == pytest.approx(values[0] / values.sum(), rel=1e-12)
    # Σλ is what noise at that scale has, and the signal: up to the next order, the scale's own error.
    assert values.sum() == pytest.approx(scale * np.prod(MATRIX) + theta**2, rel=2e-3)


def test_units_are_those_of_the_matrix_and_each_spectrum_is_as_if_it_were_alone():
    values = spectra(W_QK, [3.0 * threshold(W_QK)], 5, seed=3)
    one, other = spectral_signal(values, W_QK), spectral_signal(4.0 * values, W_QK)
    for name in ("strength", "strength_low", "strength_high", "shrunken", "threshold", "noise_scale"):
        np.testing.assert_allclose(getattr(other, name), 2.0 * getattr(one, name), rtol=1e-10)
    for name in ("n_directions", "p_value", "next_p_value", "rest_p_value", "overlap_left", "signal_share"):
        np.testing.assert_allclose(getattr(other, name), getattr(one, name), rtol=1e-8, atol=1e-15)
    values = np.concatenate([spectra(W_QK, [], 2), spectra(W_QK, [3.0 * threshold(W_QK)], 3, seed=4)])
    together = spectral_signal(values.reshape(1, 5, 16), W_QK)
    assert together.n_directions.shape == (1, 5)
    for k, one in enumerate(values):
        alone = spectral_signal(one, W_QK)
        n = int(alone.n_directions)
        assert together.n_directions[0, k] == n
        assert together.rest_p_value[0, k] == pytest.approx(float(alone.rest_p_value), rel=1e-10)
        np.testing.assert_allclose(together.strength_high[0, k, :n], alone.strength_high, rtol=1e-10)


@pytest.mark.parametrize(
    "values",
    [2.0 ** -np.arange(16.0), np.r_[np.ones(3), np.zeros(13)], np.zeros(16)],
    ids=["steep", "low rank", "zeros"],
)
def test_where_no_bulk_is_left_there_is_no_floor(values):
    found = spectral_signal(values, W_QK)
    assert not found.noise_floor
    assert np.isnan(found.n_directions)
    assert found.strength.size == 0


@pytest.mark.parametrize("size", [1e3, 1e8, 1e14])
def test_a_direction_of_any_size_has_limits_about_it(size):
    for dims in (W_QK, MATRIX):
        values = spectra(dims, [], 1, seed=7)[0]
        values[0] = size * values[1]
        found = spectral_signal(values, dims)
        assert found.n_directions >= 1
        assert found.strength_low[0] <= found.strength[0] <= found.strength_high[0]
        assert found.strength_high[0] < 2.0 * found.strength_low[0]
        assert 0.0 < found.overlap_left[0] <= 1.0
        assert found.shrunken[0] <= found.strength[0] * (1 + 1e-12)


def test_a_rest_that_is_no_noise_is_no_floor_and_a_spectrum_without_a_number_says_why():
    # Half the values ten times the others, evenly: nothing stands out of it, and no Gaussian product has it.
    found = spectral_signal(np.repeat([10.0, 1.0], 64), (1024, 128, 1024))
    assert found.n_directions == 0
    assert found.rest_p_value < 1e-6
    assert not found.noise_floor
    rng, dims = np.random.default_rng(20), (16, 40)
    noise = np.linalg.svd(rng.standard_normal(dims), compute_uv=False) ** 2
    geometric, low_rank = 1e3 * 0.5 ** np.arange(16), np.where(np.arange(16) < 3, 1.0, 0.0)
    found = spectral_signal([noise, geometric, low_rank, 0.0 * noise], dims)
    assert found.no_number.tolist() == ["", "too_few_left", "zeros_left", ""]
    assert np.isnan(found.n_directions).tolist() == [False, True, True, True]
    drawn = np.sort(10.0 ** (rng.uniform(0, 6, (200, 1)) * rng.uniform(0, 1, (200, 16))))[:, ::-1]
    found = spectral_signal(drawn, dims)
    without = np.isnan(found.n_directions)
    assert (without == (found.no_number != "")).all() and 0 < without.sum() < 200


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"eigenvalues": np.ones(15)}, "eigenvalues"),
        ({"eigenvalues": np.arange(16.0)}, "eigenvalues"),
        ({"eigenvalues": -np.arange(16.0)}, "eigenvalues"),
        ({"eigenvalues": np.ones(7), "dims": (7, 100)}, "dims"),
        ({"dims": (96,)}, "dims"),
        ({"level": 0.0}, "level"),
        ({"level": 0.5}, "level"),
        ({"level": True}, "level"),
        ({"excess_kurtosis": -2.5}, "excess_kurtosis"),
        ({"excess_kurtosis": 3.5}, "excess_kurtosis"),
        ({"excess_kurtosis": np.zeros(3)}, "excess_kurtosis"),
    ],
)
def test_bad_arguments_are_named(arguments, name):
    with pytest.raises(ParameterError) as caught:
        spectral_signal(**({"eigenvalues": np.ones(16), "dims": W_QK} | arguments))
    assert caught.value.name == name
