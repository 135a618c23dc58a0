"""Figures that a reader can read: names cover no point, noise is pale, and what would inform of nothing is left out."""

import sys
from pathlib import Path

import numpy as np
import pytest
from drawn_parts import mesh_of
from matplotlib.colors import to_hex

import rmtbase
from rmtbase.drawing.theme import LIGHT
from rmtbase.results.composition import composition
from rmtbase.results.composition.figures import composition_heatmap
from rmtbase.results.figures import figure_names
from rmtbase.results.scores import render
from rmtbase.results.scores.figures._eigenvalues import eigenvalue_heatmap
from rmtbase.results.scores.figures._heatmaps import matrix_z_heatmap, moved_share_heatmap, omnibus_heatmap, z_heatmap
from rmtbase.results.scores.figures._statistic_by_layer import statistic_by_layer

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scoring"))  # models are made there
from made_models import layers, model_of


@pytest.mark.parametrize("side", [1, -1])
@pytest.mark.parametrize("scale", ["linear", "log"])
def test_the_name_of_an_outlier_covers_no_point(side, scale, learned):
    """One head far beyond all others, with neighbours as near to it as they come, on either side of them."""
    tree = learned.copy(deep=True)
    observed = tree["heads"]["observed"].sel(statistic="stable_rank")
    rng = np.random.default_rng(5)
    values = 10.0 + rng.uniform(0, 0.1, observed.shape)
    far = 9.0 if scale == "linear" else 9.9
    values[1, :3] = 10.0 + side * far * np.array([0.99, 1.0, 0.98])
    tree["heads"]["observed"].loc[{"statistic": "stable_rank"}] = values
    ax = statistic_by_layer(tree, "stable_rank")
    ax.figure.draw_without_rendering()
    (name,) = ax.texts
    box = name.get_window_extent()
    points = [ax.transData.transform(line.get_xydata()) for line in ax.lines if line.get_marker() in ("o", "x")]
    inside = [box.contains(*point) for each in points for point in each]
    assert len(inside) >= values.size and not any(inside)
    assert ax.get_window_extent().containsy(box.y0) and ax.get_window_extent().containsy(box.y1)


@pytest.mark.exhaustive
def test_the_figure_of_p_values_is_left_out_where_most_lie_on_the_floor(scores):
    tree = scores["random"].copy(deep=True)
    assert figure_names(tree)["p-value-qq"]
    heads = tree["heads"].to_dataset()
    heads["omnibus_p_value"][:] = heads["omnibus_q_value"][:] = 1 / (tree.attrs["null_draws"] + 1)
    tree["heads"] = heads
    assert not figure_names(tree)["p-value-qq"]
    page = render(tree)
    assert "A figure of all p-values is left out: 12 of 12 heads have the smallest p-value" in page
    assert 'id="figure-p-value-qq"' not in page and 'id="figure-p-value-qq"' in render(scores["random"])


def strongest(mesh, colours):
    """How far from the palest colour each cell's is, in steps."""
    rgb = [to_hex(one) for one in mesh.cmap(mesh.norm(mesh.get_array().compressed()))]
    middle = len(colours) // 2 if colours == LIGHT.diverging else 0
    return np.abs(np.array([list(colours).index(one) for one in rgb]) - middle)


def test_maps_of_a_model_that_learned_nothing_are_pale(scores):
    """Of each map at most one cell in ten is coloured, and none more than three of seven steps."""
    tree = scores["random"]
    composed = composition(model_of(np.random.default_rng(3), layers(3), heads=4, d_model=32))
    axes = [
        *(z_heatmap(tree, name) for name in ("stable_rank", "largest_eigenvalue", "log_determinant")),
        *(matrix_z_heatmap(tree, name) for name in ("excess_kurtosis", "mean")),
        moved_share_heatmap(tree),
        omnibus_heatmap(tree),
        eigenvalue_heatmap(tree),
        composition_heatmap(composed, "k"),
    ]
    for ax in axes:
        mesh = mesh_of(ax)
        colours = LIGHT.sequential if "moved" in ax.get_title() else LIGHT.diverging
        steps = strongest(mesh, tuple(colours))
        assert (steps > 0).mean() <= 0.1 and steps.max() <= 3, ax.get_title()


def test_random_heads_are_pale_at_a_shape_whose_moved_shares_are_large(tmp_path):
    """At d_head 4 random heads have more than 8 %, which elsewhere is the third colour."""
    tree = rmtbase.score(model_of(np.random.default_rng(4), layers(3), heads=8, d_head=4, d_model=16))
    shares = 100 * tree["heads"]["moved_share"].values
    assert np.median(shares) > 4.0
    steps = strongest(mesh_of(moved_share_heatmap(tree)), tuple(LIGHT.sequential))
    assert (steps == 0).mean() > 0.9
