"""A null gives the law of its entries and its draws as values, and a sentence only when asked."""

import pytest

from rmtbase.nulls import AnalyticNull, Axes, FixedSpectrum, LatentNull, Resampler, Signs
from rmtbase.nulls._kurtosis_null import KurtosisNull
from rmtbase.statistics import LatentShape

ANALYTIC = AnalyticNull(32, 8)
NULLS = [
    (ANALYTIC, "normal", 0),
    (FixedSpectrum((32, 8, 32)), "orthogonal", 0),
    (KurtosisNull(ANALYTIC), "kurtosis", 0),
    (KurtosisNull(ANALYTIC, "uniform", -1.2), "uniform", 0),
    (LatentNull(LatentShape(64, 16, 8, 4), 100, 0), "normal", 100),
    (Resampler(Signs(), 60, 0), "signs", 60),
    (Resampler(Axes(), 60, 0), "axes", 60),
]


@pytest.mark.parametrize(("null", "entries", "draws"), NULLS)
def test_entries_and_draws_are_values(null, entries, draws):
    assert (null.entries, null.draws) == (entries, draws)
