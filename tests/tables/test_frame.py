"""A table as a pandas frame: one row for each thing measured."""

import pytest

from rmtbase.errors import ParameterError
from rmtbase.tables import KINDS, to_pandas

ROWS = {
    "baseline": ("case", "statistic"),
    "spectra": ("case", "statistic"),
    "elements": ("case", "statistic"),
    "atlas": ("case", "statistic"),
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
        "scores": "heads",
        "trajectory": "heads",
        "comparison": "models",
        "signal": "matrices",
        "changes": "heads",
    }.get(kind)
    dataset = table[first].to_dataset() if first else table
    rows = list(ROWS[kind])
    frame = to_pandas(table)
    assert frame.columns[: len(rows)].tolist() == rows
    others = frame.drop_duplicates(rows[1:]) if rows[1:] else frame[:1]
    assert len(frame) == dataset[rows].sizes[rows[0]] * len(others)
    assert not frame.duplicated(rows).any()
    assert not set(frame.columns) & {"sample", "density", "eigenvalue_mean", "symbol", "formula"}


def test_baseline_frame_has_what_one_looks_up(table):
    frame = to_pandas(table)
    assert {"d_model", "d_head", "sigma_q", "sigma_k", "mean", "std", "standard_error"} <= set(frame.columns)
    assert {"analytic_mean", "analytic_std", "analytic_method", "quantile_0.5", "quantile_0.975"} <= set(frame.columns)
    one = frame[(frame["case"] == 1) & (frame["statistic"] == "trace")].iloc[0]
    there = table.isel(case=1).sel(statistic="trace")
    assert one["mean"] == there["mean"].item()
    assert one["sigma_k"] == there["sigma_k"].item()
    assert one["quantile_0.975"] == there["quantile"].sel(probability=0.975).item()


def test_scores_frame_has_heads_or_matrices(stored_tables):
    tree = stored_tables["scores"]
    heads, matrices = to_pandas(tree), to_pandas(tree, "matrices")
    one = heads.set_index(["layer", "head", "statistic"]).loc[(1, 2, "trace")]
    there = tree["heads"].sel(layer=1, head=2)
    assert one["p_value"] == there["p_value"].sel(statistic="trace").item()
    assert one["omnibus_q_value"] == there["omnibus_q_value"].item()
    assert matrices.columns[:3].tolist() == ["layer", "component", "statistic"]
    with pytest.raises(ParameterError, match=r"group = 'head'.*heads, elements, matrices"):
        to_pandas(tree, "head")


def test_variables_that_share_their_dimensions_are_a_frame_as_the_file_itself_says(table):
    said = "table[['eigenvalue_mean', 'eigenvalue_std']].to_dataframe()"
    assert said in table.attrs["comment"]
    frame = eval(said, {"table": table})  # the line that the attribute gives
    assert len(frame) == table.sizes["case"] * table.sizes["index"]
    assert len(to_pandas(table)) == table.sizes["case"] * table.sizes["statistic"]


def test_dataset_without_rows_is_refused(stored_tables):
    with pytest.raises(ParameterError, match="table"):
        to_pandas(stored_tables["scores"]["null"].to_dataset())
