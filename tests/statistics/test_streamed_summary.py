"""The summary of a sample that is never held: quantiles are NumPy's to the bit, moments those of the held sample."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from rmtbase.errors import ParameterError
from rmtbase.statistics import summarize, summarize_stream

Array = NDArray[np.float64]

PROBABILITIES = (0.0, 0.001, 0.05, 0.16, 0.25, 0.5, 0.75, 0.975, 0.999, 1.0)


def blocks_of(sample: Array, size: int) -> Callable[[], Iterator[Array]]:
    """Readings of a sample (row, draw) in blocks of ``size`` draws."""
    return lambda: (sample[:, first : first + size] for first in range(0, sample.shape[1], size))


def samples(draws: int) -> Array:
    """Rows that are hard in one way each."""
    rng = np.random.default_rng(draws)
    normal = rng.standard_normal(draws)
    return np.stack([
        normal,
        1e3 + 1e-6 * normal,
        np.exp(20 * normal),
        -np.exp(20 * normal),
        np.round(normal, 1),
        np.full(draws, 3.25),
        np.where(np.arange(draws) % 5 == 0, 0.0, -0.0),
        np.where(normal > 1, 1e300, 1e-300 * normal),
        rng.standard_cauchy(draws),
        np.sort(normal),
        np.where(np.arange(draws) == draws // 2, 1e200, 1.0 + 1e-12 * normal),
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("draws", "size"), [(2, 1), (3, 2), (10, 10), (4_097, 500), (40_000, 1 << 14), (300_000, 1 << 14)]
)
def test_quantiles_are_numpys_to_the_bit(draws: int, size: int) -> None:
    sample = samples(draws)
    with np.errstate(over="ignore", invalid="ignore"):
        found, held = summarize_stream(blocks_of(sample, size), PROBABILITIES), summarize(sample.T, PROBABILITIES)
    np.testing.assert_array_equal(found.quantile, np.quantile(sample, PROBABILITIES, axis=1).T)
    np.testing.assert_array_equal(found.quantile_standard_error, held.quantile_standard_error)


def test_moments_are_those_of_the_held_sample() -> None:
    sample = samples(40_000)[[0, 1, 2, 3, 4, 5, 8, 9]]
    found, held = summarize_stream(blocks_of(sample, 1 << 14), PROBABILITIES), summarize(sample.T, PROBABILITIES)
    np.testing.assert_allclose(
        found.mean, held.mean, rtol=1e-12, atol=1e-13 * held.std.max(where=held.std < 2, initial=0)
    )
    np.testing.assert_allclose(found.std, held.std, rtol=1e-9)
    np.testing.assert_allclose(found.standard_error, held.standard_error, rtol=1e-9)
    np.testing.assert_allclose(found.std_standard_error, held.std_standard_error, rtol=1e-6)


def test_no_probabilities_no_quantiles() -> None:
    assert summarize_stream(blocks_of(samples(10), 4), []).quantile.shape == (11, 0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_visible(bad: float) -> None:
    sample = np.random.default_rng(0).standard_normal((2, 9_000))
    sample[1, 7_000] = bad
    found = summarize_stream(blocks_of(sample, 1_000), (0.0, 0.5, 1.0))
    with np.errstate(invalid="ignore"):
        held = np.quantile(sample, (0.0, 0.5, 1.0), axis=1).T
    np.testing.assert_array_equal(found.quantile, held)
    assert np.isfinite(found.mean[0])
    assert not np.isfinite(found.mean[1])
    assert np.isnan(found.std[1])


@pytest.mark.parametrize("draws", [0, 1])
def test_a_spread_needs_two_draws(draws: int) -> None:
    with pytest.raises(ParameterError, match=f"draws.*{draws}.*at least 2"):
        summarize_stream(blocks_of(np.zeros((3, draws)), 1), PROBABILITIES)


@pytest.mark.exhaustive
def test_memory_is_that_of_a_few_rows() -> None:
    """400 MiB of numbers, made anew for each reading, in less than 256 MiB: one row of 12.5 million at a time."""

    def reading() -> Iterator[Array]:
        for seed in range(400):
            yield np.random.default_rng(seed).random((4, 1 << 15))

    tracemalloc.start()
    summarize_stream(reading, (0.1, 0.5))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 256 * 2**20
