"""A null gives its kind, the law of its entries and its draws as values, and a sentence only when asked."""

import pytest

from rmtbase.nulls import AnalyticNull, Axes, FixedSpectrum, LatentNull, Resampler, Signs
from rmtbase.nulls._kurtosis_null import KurtosisNull
from rmtbase.statistics import LatentShape

ANALYTIC = AnalyticNull(32, 8)
NULLS = [
    (ANALYTIC, "gaussian", "normal", 0),
    (FixedSpectrum((32, 8, 32)), "orthogonal", "orthogonal", 0),
    (KurtosisNull(ANALYTIC), "kurtosis", "", 0),
    (KurtosisNull(ANALYTIC, "uniform"), "gaussian", "uniform", 0),
    (LatentNull(LatentShape(64, 16, 8, 4), 100, 0), "gaussian", "normal", 100),
    (Resampler(Signs(), 60, 0), "signs", "", 60),
    (Resampler(Axes(), 60, 0), "axes", "", 60),
]


@pytest.mark.parametrize(("null", "kind", "entries", "draws"), NULLS)
def test_kind_entries_and_draws_are_values_and_the_factors_are_named_as_asked(null, kind, entries, draws):
    assert (null.kind, null.entries, null.draws) == (kind, entries, draws)
    assert null.description("W_O and W_V") == null.description().replace("W_Q and W_K", "W_O and W_V")
    assert null.description().startswith(f"{kind}: ")
