"""Kept order statistics bound every count of the full sample: from above, and closely."""

import numpy as np
import pytest
from compact_atlas import smallest_kept

from rmtbase.nulls import RATIO, STEP, count_bound, kept_ranks

SAMPLES = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "long-tailed": lambda rng, n: rng.standard_cauchy(n),
    "with ties": lambda rng, n: np.round(rng.standard_normal(n), 1),
    "all alike": lambda rng, n: np.zeros(n),
}


@pytest.mark.parametrize("draws", [2, 3, 33, 34, 100, 51_200, 1_000_000])
def test_ranks_rise_from_one_within_the_draws(draws):
    ranks = kept_ranks(draws)
    assert ranks[0] == 1
    assert (np.diff(ranks) >= 1).all()
    assert draws / RATIO - 1 <= ranks[-1] <= draws


def test_few_ranks_stand_for_many_draws_and_kept_values_are_rounded_down():
    np.testing.assert_array_equal(kept_ranks(51_200)[:33], np.arange(1, 34))
    assert kept_ranks(51_200).size < 300
    assert kept_ranks(1_000_000).size < 400
    sample = np.sort(np.random.default_rng(4).standard_normal(1000))
    ranks = kept_ranks(1000)
    kept = smallest_kept(sample, ranks).astype(float)
    assert (kept <= sample[ranks - 1]).all()
    assert (sample[ranks - 1] - kept < STEP).all()
    np.testing.assert_array_equal(kept, np.round(kept / STEP) * STEP)
    sample = np.array([-1e30, -1e9 - 0.3, 1e9 + 0.3, 1e30])
    assert (smallest_kept(sample, np.arange(1, 5)).astype(float) <= sample).all()


@pytest.mark.parametrize("draws", [2, 40, 5000])
@pytest.mark.parametrize("kind", SAMPLES)
def test_a_count_is_never_under_the_full_samples_and_hardly_over(kind, draws):
    rng = np.random.default_rng(3)
    sample = np.sort(SAMPLES[kind](rng, draws))
    ranks = kept_ranks(draws)
    kept = smallest_kept(sample, ranks)
    observed = np.concatenate([SAMPLES[kind](rng, 2000), sample, [-1e300, 1e300]])
    bound = count_bound(observed, kept, ranks, draws)
    assert count_bound(np.array([-np.inf, np.inf]), kept, ranks, draws).tolist() == [0, draws]
    assert (bound >= np.searchsorted(sample, observed, side="right")).all()
    # Rounding, to steps or to float32, may count a draw that lies a little on the other side of the observed value.
    nearly = np.searchsorted(sample, observed + np.maximum(STEP, 2.0**-23 * np.abs(observed)), side="right")
    assert (bound + 1 <= RATIO * (nearly + 1) + 1e-9).all()
