"""Pictures of models of several stacks, shapes and circuits: what is not there is not drawn, and stacks are named."""

from pathlib import Path

import numpy as np
import pytest
from drawn_parts import cells, hatched

from rmtbase.drawing.null_curves import null_spectrum
from rmtbase.results import open_table
from rmtbase.results.figures import figures
from rmtbase.results.scores import circuit_scores
from rmtbase.results.scores.figures._eigenvalues import ordered_eigenvalues
from rmtbase.results.scores.figures._heatmaps import omnibus_heatmap, p_value_qq
from rmtbase.results.scores.figures._statistic_by_layer import statistic_by_layer
from rmtbase.tables import heads_present


@pytest.fixture(scope="module")
def tree():
    return open_table(Path(__file__).parents[1] / "data" / "scores-of-several-stacks.nc", "scores")


@pytest.mark.parametrize("circuit", ["qk", "ov", "key"])
def test_a_map_has_a_cell_for_each_head_scored_and_a_hatched_one_for_that_of_zeros(tree, circuit):
    scores = circuit_scores(tree, circuit)
    heads = scores["heads"].to_dataset()
    ax = omnibus_heatmap(scores, legend=False)
    scored = heads["omnibus_p_value"].notnull().values
    np.testing.assert_array_equal(np.isfinite(cells(ax)), scored)
    assert len(hatched(ax)) == (heads_present(heads) & ~scored).sum() == (circuit != "key")
    assert ax.get_xlabel() == ("key head" if circuit == "key" else "head")


def test_stacks_are_named_and_layers_of_each_shape_stand_before_their_own_null(tree):
    ax = omnibus_heatmap(tree, legend=False)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["encoder 0", "decoder 0", "1", "cross 0", "1"]
    across = statistic_by_layer(tree)
    assert [label.get_text() for label in across.get_xticklabels()][:2] == ["0\nencoder", "0\ndecoder"]
    lines = [line for line in across.lines if line.get_label().startswith("_") and len(set(line.get_xdata())) == 1]
    assert [line.get_xdata()[0] for line in lines] == [0.5, 2.5]
    ax = statistic_by_layer(tree, "effective_rank")
    bands = [band for band in ax.collections if band.get_label() in ("null, 99 % of heads", "_child")]
    levels = tree["heads"]["null_quantile"].sel(statistic="effective_rank", probability=[0.005, 0.995]).isel(head=0)
    for band, layers in zip(bands, (slice(0, 1), slice(1, 3), slice(3, 5)), strict=False):
        (low, high), box = levels[layers.start].values, band.get_paths()[0].get_extents()
        assert (box.x0, box.x1) == (layers.start - 0.5, layers.stop - 0.5)
        np.testing.assert_allclose((box.y0, box.y1), (low, high))
    ax = ordered_eigenvalues(tree, heads=[(0, 0), (4, 2)])
    assert [line.get_label() for line in ax.lines] == ["encoder layer 0 head 0", "cross layer 1 head 2"]
    assert [np.isfinite(line.get_ydata()).sum() for line in ax.lines] == [8, 9]
    assert p_value_qq(tree).get_title() == "p-values of 27 heads; 1 not testable"
    assert p_value_qq(circuit_scores(tree, "key")).get_title() == "p-values of 20 key heads"


def test_every_shape_has_its_null_drawn_over_the_law_of_its_own_sizes(tree):
    drawn = figures(tree, names={"null-spectrum", "key-null-spectrum"})
    assert [len(figure.axes) for figure in drawn.values()] == [3, 3]
    edges = [float(ax.get_legend_handles_labels()[0][-1].get_xdata()[0]) for ax in drawn["key-null-spectrum"].axes]
    np.testing.assert_allclose(edges, [(np.sqrt(32) - np.sqrt(8)) ** 2, (np.sqrt(48) - np.sqrt(8)) ** 2, 7.05887450305])
    assert "$d_Q = 48$, $h = 9$, $d_K = 32$" in null_spectrum(tree, case=2).get_title()


@pytest.mark.exhaustive
def test_all_pictures_of_all_circuits_are_drawn(tree):
    drawn = figures(tree)
    drawn = {name: one for name, one in drawn.items() if not name.endswith("heads-by-statistic")}  # of unequal bars
    of_matrices = {name for name in drawn if name.startswith(("matrix-", "weibull-"))}
    of_heads = {name for name in drawn if "-" in name and not name.startswith(("ov-", "key-"))} - of_matrices
    assert set(drawn) == {*of_heads, *of_matrices, *(f"{one}-{name}" for one in ("ov", "key") for name in of_heads)}
    for name in ("statistics-by-layer", "ov-z-heat-map", "matrix-z-heat-map", "key-moved-share-map"):
        drawn[name].draw_without_rendering()
