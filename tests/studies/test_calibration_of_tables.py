"""What studies/calibration says of the errors of quantiles and of the nearest published component."""

import numpy as np
import pytest
from scipy import stats
from study_files import held

from studies.calibration import quantile_errors

errors = held("calibration", "quantile_errors.json")


def test_errors_of_quantiles_are_right_in_size_and_cover_where_ten_draws_or_more_lie_beyond():
    assert errors["summary"] == quantile_errors.summary(errors["rows"])
    assert min(map(quantile_errors.beyond, errors["rows"])) == 10
    for group in errors["summary"]:
        assert 93 < group["covered_percent"] < 96, group
        assert group["heavy"] or 0.99 < group["ratio"] < 1.1, group
    # No single quantile covers less than 89 % by more than its sampling error: 2 000 or 200 tables, 744 quantiles.
    for row in errors["rows"]:
        assert stats.binom.cdf(round(row["covered"] * row["tables"]), row["tables"], 0.92) > 1e-3 / 744, row


def test_the_study_measures_what_it_says():
    sample = np.random.default_rng(3).standard_normal((40_000, len(quantile_errors.STATISTICS)))
    rows = quantile_errors.measure(sample, 200)
    assert {row["tables"] for row in rows} == {200}
    assert {row["probability"] for row in rows} == {0.05, 0.16, 0.25, 0.5, 0.75, 0.84, 0.95}
    # The median of 200 normal numbers: 8 statistics of 200 tables each, ratio and coverage known to 1.8 % and 0.6 %.
    ratios, covered = np.array([(row["ratio"], row["covered"]) for row in rows if row["probability"] == 0.5]).T
    assert ratios.mean() == pytest.approx(1.0, abs=0.09)
    assert covered.mean() == pytest.approx(0.945, abs=0.03)


def test_untrained_components_are_called_nearer_no_more_often_than_the_level():
    for width, row in held("calibration", "nearest_published.json")["widths"].items():
        for level in (0.5, 0.1, 0.05, 0.01):
            count = round(row[f"share_below_{level:g}"] * row["components"])
            assert stats.binomtest(count, row["components"], level).pvalue > 0.01, (width, level)
        assert stats.binom.sf(row["models_named"] - 1, row["models"], 0.05) > 0.05, width
