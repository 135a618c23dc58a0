"""Models beside each other: what is drawn is what the comparison holds."""

from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from matplotlib.collections import LineCollection, QuadMesh
from scipy import stats

from rmtbase.errors import ParameterError
from rmtbase.results import open_table
from rmtbase.results.comparison.figures import (
    component_shapes,
    group_measure,
    group_measure_by_step,
    pair_heatmap,
    scale_law,
    shape_drifts,
)
from rmtbase.results.figures import figure_names, figures


@pytest.fixture(scope="module")
def comparison():
    return open_table(Path(__file__).parents[1] / "data" / "comparison.nc", "comparison")


def line(ax, label):
    (found,) = [one for one in ax.lines if one.get_label() == label]
    return found


@pytest.mark.parametrize("plot", [component_shapes, pair_heatmap, scale_law, shape_drifts])
def test_what_is_no_comparison_is_refused(plot, training):
    for table in (training, training["heads"].to_dataset()):
        with pytest.raises(ParameterError, match="a comparison tree"):
            plot(table)


def test_each_model_s_shapes_stand_before_their_null(comparison):
    ax = component_shapes(comparison, published=True)
    table = comparison["components"].to_dataset().sel(model="b")
    np.testing.assert_array_equal(line(ax, "b").get_ydata(), table["shape"].values)
    bars = [one for one in ax.collections if isinstance(one, LineCollection)][1]
    ends = np.array([segment[:, 1] for segment in bars.get_segments()])
    mean, spread = table["shape_null_mean"].values, 1.96 * table["shape_null_std"].values
    np.testing.assert_allclose(ends, np.stack([mean - spread, mean + spread], axis=1))


def test_drifts_have_their_errors_and_pairs_their_q_values(comparison):
    ax = shape_drifts(comparison)
    np.testing.assert_array_equal(line(ax, "a | c").get_ydata(), comparison["drifts"]["drift"].sel(pair="a | c").values)
    ax = pair_heatmap(comparison)
    (mesh,) = [one for one in ax.collections if isinstance(one, QuadMesh)]
    cells = np.ma.filled(mesh.get_array(), np.nan).reshape(4, 4)
    q = comparison["pairs"]["omnibus_q_value"].sel(pair="b | d").item()
    assert cells[1, 3] == cells[3, 1] == pytest.approx(-np.log10(q))
    assert np.isnan(np.diag(cells)).all()


def test_the_scale_s_law_is_the_line_of_the_findings(comparison):
    ax = scale_law(comparison)
    x, y = next(one for one in ax.lines if "slope" in str(one.get_label())).get_data()
    np.testing.assert_allclose(y, float(comparison["findings"]["scale_law_slope"]) * x)
    np.testing.assert_array_equal(line(ax, "published models").get_ydata(), comparison["published"]["mean_scale"])


def test_a_comparison_has_its_figures(comparison):
    assert list(figures(comparison, width=3.4)) == ["pairs", "component-shapes", "scale-law", "group-measures"]
    assert set(figure_names(comparison)) > {"shape-drifts", "component-shapes-published"}


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


def test_groups_are_drawn_seed_by_seed_with_their_interval(grouped):
    ax = group_measure(grouped, "trace")
    values = grouped["members"]["value"].sel(measure="trace").values[3:]
    dots = [one.get_ydata() for one in ax.lines if len(one.get_ydata()) == 3]
    np.testing.assert_array_equal(dots[1], values)
    (bar,) = [one for one in ax.collections if isinstance(one, LineCollection)][1].get_segments()
    low, high = stats.t.interval(0.95, 2, values.mean(), stats.sem(values))
    np.testing.assert_allclose(bar[:, 1], [low, high])
    with pytest.raises(ParameterError, match="one of heads_departed, trace"):
        group_measure(grouped, "npr")


def test_groups_are_drawn_along_steps_with_where_they_differ(grouped):
    ax = group_measure_by_step(grouped, "heads_departed")
    values = grouped["along/members"]["value"].sel(measure="heads_departed").values[:, 3:]
    np.testing.assert_allclose(line(ax, "b").get_ydata(), values.mean(axis=1))
    assert line(ax, "groups differ, adjusted p < 0.05").get_xdata().tolist() == [8]
    assert list(figures(grouped, width=5.0)) == ["group-measures", "group-measures-by-step"]
