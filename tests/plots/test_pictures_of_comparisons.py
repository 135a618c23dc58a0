"""Models beside each other, and of several stacks: what is drawn is what the file holds, and stacks are named."""

from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from drawn_parts import cells, hatched, line, line_collections
from scipy import stats

from rmtbase.drawing.null_curves import null_spectrum
from rmtbase.results import open_table
from rmtbase.results.comparison.figures import (
    component_shapes,
    group_measure,
    group_measure_by_step,
    pair_heatmap,
    scale_law,
)
from rmtbase.results.figures import figures
from rmtbase.results.scores import circuit_scores
from rmtbase.results.scores.figures._eigenvalues import ordered_eigenvalues
from rmtbase.results.scores.figures._heatmaps import omnibus_heatmap, p_value_qq
from rmtbase.results.scores.figures._statistic_by_layer import statistic_by_layer
from rmtbase.tables import heads_present


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


@pytest.fixture(scope="module")
def stacks():
    return open_table(Path(__file__).parents[1] / "data" / "scores-of-several-stacks.nc", "scores")


@pytest.mark.parametrize("circuit", ["qk", "ov", "key"])
def test_a_map_has_a_cell_for_each_head_scored_and_a_hatched_one_for_that_of_zeros(stacks, circuit):
    scores = circuit_scores(stacks, circuit)
    heads = scores["heads"].to_dataset()
    ax = omnibus_heatmap(scores, legend=False)
    scored = heads["omnibus_p_value"].notnull().values
    np.testing.assert_array_equal(np.isfinite(cells(ax)), scored)
    assert len(hatched(ax)) == (heads_present(heads) & ~scored).sum() == (circuit != "key")
    assert ax.get_xlabel() == ("key head" if circuit == "key" else "head")


def test_stacks_are_named_and_layers_of_each_shape_stand_before_their_own_null(stacks):
    ax = omnibus_heatmap(stacks, legend=False)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["encoder 0", "decoder 0", "1", "cross 0", "1"]
    across = statistic_by_layer(stacks)
    assert [label.get_text() for label in across.get_xticklabels()][:2] == ["0\nencoder", "0\ndecoder"]
    lines = [line for line in across.lines if line.get_label().startswith("_") and len(set(line.get_xdata())) == 1]
    assert [line.get_xdata()[0] for line in lines] == [0.5, 2.5]
    ax = statistic_by_layer(stacks, "effective_rank")
    bands = [band for band in ax.collections if band.get_label() in ("null, 99 % of heads", "_child")]
    levels = stacks["heads"]["null_quantile"].sel(statistic="effective_rank", probability=[0.005, 0.995]).isel(head=0)
    for band, layers in zip(bands, (slice(0, 1), slice(1, 3), slice(3, 5)), strict=False):
        (low, high), box = levels[layers.start].values, band.get_paths()[0].get_extents()
        assert (box.x0, box.x1) == (layers.start - 0.5, layers.stop - 0.5)
        np.testing.assert_allclose((box.y0, box.y1), (low, high))
    ax = ordered_eigenvalues(stacks, heads=[(0, 0), (4, 2)])
    assert [line.get_label() for line in ax.lines] == ["encoder layer 0 head 0", "cross layer 1 head 2"]
    assert [np.isfinite(line.get_ydata()).sum() for line in ax.lines] == [8, 9]
    assert p_value_qq(stacks).get_title() == "p-values of 27 heads; 1 not testable"
    assert p_value_qq(circuit_scores(stacks, "key")).get_title() == "p-values of 20 key heads"


def test_every_shape_has_its_null_drawn_over_the_law_of_its_own_sizes(stacks):
    drawn = figures(stacks, names={"null-spectrum", "key-null-spectrum"})
    assert [len(figure.axes) for figure in drawn.values()] == [3, 3]
    edges = [float(ax.get_legend_handles_labels()[0][-1].get_xdata()[0]) for ax in drawn["key-null-spectrum"].axes]
    np.testing.assert_allclose(edges, [(np.sqrt(32) - np.sqrt(8)) ** 2, (np.sqrt(48) - np.sqrt(8)) ** 2, 7.05887450305])
    assert "$d_Q = 48$, $h = 9$, $d_K = 32$" in null_spectrum(stacks, case=2).get_title()


@pytest.mark.exhaustive
def test_all_pictures_of_all_circuits_are_drawn(stacks):
    drawn = figures(stacks)
    drawn = {name: one for name, one in drawn.items() if not name.endswith("heads-by-statistic")}  # of unequal bars
    of_matrices = {name for name in drawn if name.startswith(("matrix-", "weibull-"))}
    of_heads = {name for name in drawn if "-" in name and not name.startswith(("ov-", "key-"))} - of_matrices
    assert set(drawn) == {*of_heads, *of_matrices, *(f"{one}-{name}" for one in ("ov", "key") for name in of_heads)}
    for name in ("statistics-by-layer", "ov-z-heat-map", "matrix-z-heat-map", "key-moved-share-map"):
        drawn[name].draw_without_rendering()
