"""A table as a pandas frame: one row for each thing measured."""

import sys
from pathlib import Path

import numpy as np
import pytest

import rmtbase
from rmtbase.errors import ParameterError
from rmtbase.results.diff import diff
from rmtbase.tables import KINDS, frame_groups, to_pandas

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scoring"))  # models are made there
from made_models import layers, model_of

ROWS = {
    **dict.fromkeys(("baseline", "spectra", "elements", "atlas"), ("case", "statistic")),
    "effective_depth": ("layer", "component"),
    "scores": ("layer", "head", "statistic"),
    "trajectory": ("step", "layer", "head", "statistic"),
    "comparison": ("model",),
    "changes": ("layer", "head", "component"),
    "composition": ("kind", "earlier", "later"),
    "signal": ("layer", "component"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_is_one_thing_measured(kind, stored_tables):
    table = stored_tables[kind]
    first = {
        "scores": "heads", "trajectory": "heads", "comparison": "models", "signal": "matrices", "changes": "heads",
    }.get(kind)  # fmt: skip
    dataset = table[first].to_dataset() if first else table
    rows = list(ROWS[kind])
    frame = to_pandas(table)
    assert frame.columns[: len(rows)].tolist() == rows
    others = frame.drop_duplicates(rows[1:]) if rows[1:] else frame[:1]
    assert len(frame) == dataset[rows].sizes[rows[0]] * len(others)
    assert not frame.duplicated(rows).any()
    assert not set(frame.columns) & {"sample", "density", "eigenvalue_mean", "symbol", "formula"}


def test_baseline_frame_has_what_one_looks_up(table, stored_tables):
    with pytest.raises(ParameterError, match="table"):
        to_pandas(stored_tables["scores"]["null"].to_dataset())
    said = "table[['eigenvalue_mean', 'eigenvalue_std']].to_dataframe()"
    assert said in table.attrs["comment"]
    assert len(eval(said, {"table": table})) == table.sizes["case"] * table.sizes["index"]
    frame = to_pandas(table)
    assert {"d_model", "d_head", "sigma_q", "sigma_k", "mean", "std", "standard_error"} <= set(frame.columns)
    assert {"analytic_mean", "analytic_std", "analytic_method", "quantile_0.5", "quantile_0.975"} <= set(frame.columns)
    one = frame[(frame["case"] == 1) & (frame["statistic"] == "trace")].iloc[0]
    there = table.isel(case=1).sel(statistic="trace")
    assert (one["mean"], one["sigma_k"]) == (there["mean"].item(), there["sigma_k"].item())
    assert one["quantile_0.975"] == there["quantile"].sel(probability=0.975).item()


def test_scores_frame_has_heads_or_matrices(stored_tables):
    tree = stored_tables["scores"]
    heads, matrices = to_pandas(tree), to_pandas(tree, "matrices")
    one = heads.set_index(["layer", "head", "statistic"]).loc[(1, 2, "trace")]
    there = tree["heads"].sel(layer=1, head=2)
    assert one["p_value"] == there["p_value"].sel(statistic="trace").item()
    assert one["omnibus_q_value"] == there["omnibus_q_value"].item()
    assert matrices.columns[:3].tolist() == ["layer", "component", "statistic"]
    with pytest.raises(ParameterError, match=r"group = 'head'.*heads, by_head, elements, matrices"):
        to_pandas(tree, "head")


def test_by_head_has_one_row_for_each_head_with_what_is_said_of_it(stored_tables):
    tree = stored_tables["scores"]
    frame, heads = to_pandas(tree, "by_head"), tree["heads"].to_dataset()
    assert len(frame) == heads.sizes["layer"] * heads.sizes["head"]
    assert not frame.duplicated(["layer", "head"]).any() and "statistic" not in frame
    one = frame.set_index(["layer", "head"]).loc[(1, 2)]
    for name in ("moved_share", "omnibus_q_value", "relation", "sigma_q", "farthest_statistic", "key_head"):
        assert one[name] == heads[name].sel(layer=1, head=2).item()
    run = stored_tables["trajectory"]
    frame, sizes = to_pandas(run, "by_head"), run["heads"].sizes
    assert frame.columns[:3].tolist() == ["step", "layer", "head"]
    assert len(frame) == sizes["step"] * sizes["layer"] * sizes["head"]
    assert "by_head" not in {name[-7:] for name in frame_groups(stored_tables["signal"])}


def test_by_head_of_changes_and_of_a_further_circuit_has_what_is_known_of_a_whole_head():
    before, after = (model_of(np.random.default_rng(seed), layers(2), heads=3) for seed in (1, 2))
    tree = diff(before, after, components=["attention_query", "attention_key"])
    frame = to_pandas(tree, "by_head")
    assert frame["relative_change_qk"].tolist() == tree["heads"]["relative_change_qk"].values.ravel().tolist()
    assert {"layer", "head", "similarity_qk"} <= {*frame} and "component" not in frame
    model = model_of(np.random.default_rng(1), layers(1), heads=2, d_head=8)
    tree = rmtbase.score(model, "analytic", circuits=["qk", "ov"])
    assert [name for name in frame_groups(tree) if name.endswith("by_head")] == ["by_head", "ov_by_head"]
    expected = tree["circuits/ov/heads"]["moved_share"].values.ravel()
    np.testing.assert_array_equal(to_pandas(tree, "ov_by_head")["moved_share"], expected)
