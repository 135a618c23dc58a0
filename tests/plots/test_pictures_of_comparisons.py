"""Models beside each other: what is drawn is what the comparison holds."""

from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from drawn_parts import cells, line, line_collections
from scipy import stats

from rmtbase.results import open_table
from rmtbase.results.comparison.figures import (
    component_shapes,
    group_measure,
    group_measure_by_step,
    pair_heatmap,
    scale_law,
)
from rmtbase.results.figures import figures


@pytest.fixture(scope="module")
def comparison():
    return open_table(Path(__file__).parents[1] / "data" / "comparison.nc", "comparison")


def test_shapes_pairs_and_the_scale_s_law_are_those_of_the_comparison(comparison):
    ax = component_shapes(comparison)
    table = comparison["components"].to_dataset().sel(model="b")
    np.testing.assert_array_equal(line(ax, "b").get_ydata(), table["shape"].values)
    bars = line_collections(ax)[1]
    ends = np.array([segment[:, 1] for segment in bars.get_segments()])
    mean, spread = table["shape_null_mean"].values, 1.96 * table["shape_null_std"].values
    np.testing.assert_allclose(ends, np.stack([mean - spread, mean + spread], axis=1))
    drawn = cells(pair_heatmap(comparison))
    q = comparison["pairs"]["omnibus_q_value"].sel(pair="b | d").item()
    assert drawn[1, 3] == drawn[3, 1] == pytest.approx(-np.log10(q))
    assert np.isnan(np.diag(drawn)).all()
    ax = scale_law(comparison)
    x, y = next(one for one in ax.lines if "slope" in str(one.get_label())).get_data()
    np.testing.assert_allclose(y, float(comparison["findings"]["scale_law_slope"]) * x)
    np.testing.assert_array_equal(line(ax, "published models").get_ydata(), comparison["published"]["mean_scale"])
    assert list(figures(comparison, width=3.4)) == ["pairs", "component-shapes", "scale-law", "group-measures"]


@pytest.fixture(scope="module")
def grouped():
    """Two measures of three seeds of each of two recipes, at two steps, of which groups differ at the second."""
    value = np.random.default_rng(3).standard_normal((2, 6, 2))
    models, measures = [f"{group}{k}" for group in "ab" for k in range(3)], ["heads_departed", "trace"]
    at = {"model": models, "measure": measures}
    along = xr.Dataset({"value": (("step", "model", "measure"), value)}, {**at, "step": [0, 8]})
    along["group_of"] = ("model", [*"aaabbb"])
    p = np.array([[1.0, 1.0], [0.01, 0.5]])
    between = xr.Dataset(
        {"adjusted_p_value": (("step", "measure"), p)}, {"group": [*"ab"], "measure": measures, "step": [0, 8]}
    )
    between["headline"] = ("measure", [1, 0])
    groups = {"/members": along.isel(step=1, drop=True), "/between": between.isel(step=1, drop=True)}
    groups |= {"/along/members": along, "/along/between": between}
    tree = xr.DataTree.from_dict({"/models": xr.Dataset({"name": ("model", models)}, {"model": models}), **groups})
    tree.attrs = {"kind": "comparison"}
    return tree


def test_groups_are_drawn_seed_by_seed_and_along_steps_with_where_they_differ(grouped):
    ax = group_measure(grouped, "trace")
    values = grouped["members"]["value"].sel(measure="trace").values[3:]
    dots = [one.get_ydata() for one in ax.lines if len(one.get_ydata()) == 3]
    np.testing.assert_array_equal(dots[1], values)
    (bar,) = line_collections(ax)[1].get_segments()
    low, high = stats.t.interval(0.95, 2, values.mean(), stats.sem(values))
    np.testing.assert_allclose(bar[:, 1], [low, high])
    ax = group_measure_by_step(grouped, "heads_departed")
    values = grouped["along/members"]["value"].sel(measure="heads_departed").values[:, 3:]
    np.testing.assert_allclose(line(ax, "b").get_ydata(), values.mean(axis=1))
    assert line(ax, "groups differ, adjusted p < 0.05").get_xdata().tolist() == [8]
    assert list(figures(grouped, width=5.0)) == ["group-measures", "group-measures-by-step"]
