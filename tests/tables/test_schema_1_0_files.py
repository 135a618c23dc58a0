"""Files written at schema 1.0 stay readable, and stay usable."""

from pathlib import Path

import numpy as np
import pytest

import rmtbase
from rmtbase.report import render
from rmtbase.scoring import summarize_scores
from rmtbase.tables import TableWarning, null_method, open_baseline, open_scores
from telling import Told

DATA = Path(__file__).parents[1] / "data"


def test_baseline_of_schema_1_0_is_read():
    with pytest.warns(TableWarning, match="no digest"):
        table = open_baseline(DATA / "baseline-schema-1.0.nc")
    assert table.attrs["schema_version"] == "1.0"
    assert table["d_model"].values.tolist() == [12, 12]
    assert table["sigma_k"].values.tolist() == [1.0, 0.25]
    np.testing.assert_allclose(table["mean"].sel(statistic="trace"), [33.82746863, 0.5285542], rtol=1e-7)


def test_baseline_of_schema_1_0_serves_as_null():
    notes = Told()
    w_q, w_k = np.random.default_rng(0).standard_normal((2, 2, 3, 12))
    with pytest.warns(TableWarning, match="no digest"):
        scores = rmtbase.score_heads(w_q, w_k, baseline=DATA / "baseline-schema-1.0.nc", progress=notes)
    assert np.isfinite(scores["heads"]["z_score"]).all()
    assert notes[0].startswith("null of (12, 3): 6 draws from ")


def test_scores_of_schema_1_0_are_read():
    with pytest.warns(TableWarning, match="no digest"):
        tree = open_scores(DATA / "scores-schema-1.0.nc")
    assert tree.attrs["schema_version"] == "1.0"
    assert tree["heads"]["p_value"].sel(statistic="trace").shape == (2, 4)
    assert tree["heads"]["z_score"].values[0, 0, 0] == pytest.approx(-0.27162619, rel=1e-6)
    assert summarize_scores(tree).n_heads == 8
    assert null_method(tree.attrs) == "simulated"
    assert "never below 2 / (100 + 1)" in render(tree)
