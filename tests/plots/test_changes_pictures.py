"""Pictures of changes: a cell for each matrix, or each head, with its z."""

import sys
from pathlib import Path

import numpy as np
import pytest
from drawn_parts import cells, line

from rmtbase.models import open_model
from rmtbase.results.diff import diff
from rmtbase.results.diff.figures import change_heatmap
from rmtbase.results.diff.report import report
from rmtbase.results.figures import figure_names, figures

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scoring"))  # models are made there
from made_models import layers, model_of


@pytest.fixture(scope="module")
def tree():
    return diff(
        open_model("demo", "step-0"), open_model("demo", "step-200"), components=["attention_key", "attention_value"]
    )


@pytest.fixture(scope="module")
def products():
    """Changes of a small model, whose queries and keys are known."""
    before, after = (model_of(np.random.default_rng(seed), layers(2), heads=4) for seed in (1, 2))
    return diff(before, after)


def test_maps_hold_the_size_the_shares_of_heads_and_z(tree):
    ax = change_heatmap(tree)
    np.testing.assert_array_equal(cells(ax), np.log(tree["matrices"]["relative_change"]))
    assert ax.get_title() == "size of the change", "nothing is tested in it, so there are no dots to explain"
    shares = tree["heads"]["share_head"].sel(component="attention_value").transpose("layer", "head")
    ax = change_heatmap(tree, "share", "attention_value")
    expected = tree["heads"]["expected_share_head"].sel(component="attention_value").transpose("layer", "head")
    np.testing.assert_array_equal(cells(ax)[:, : shares.sizes["head"]], np.log(shares / expected))
    named = tree["heads"]["q_value_head"].sel(component="attention_value").transpose("layer", "head").values < 0.05
    dots = line(ax, "q < 0.05")
    assert sorted(zip(dots.get_ydata(), dots.get_xdata(), strict=True)) == [(y, x) for y, x in np.argwhere(named)] != []
    np.testing.assert_array_equal(cells(change_heatmap(tree, "out")), tree["matrices"]["z_score_out"])
    of_heads = tree["heads"]["z_score_in"].sel(component="attention_key")
    ax = change_heatmap(tree, "in", "attention_key")
    np.testing.assert_array_equal(cells(ax), of_heads)
    assert ax.get_title().startswith("attention key, old directions of the inputs")


def test_the_first_figure_is_the_one_that_the_first_sentence_is_of(tree):
    names = ["shares-of-heads", "changes", "old-directions", "old-directions-of-heads"]
    assert list(figure_names(tree)) == names
    assert len(figures(tree, names=[names[0]])[names[0]].axes) == 3, "two components and the colour bar"
    one = tree.copy(deep=True)
    one["heads"]["share_head"].loc[{"component": "attention_key"}] = np.nan  # unchanged
    assert len(figures(one, names=[names[0]])[names[0]].axes) == 2
    assert "8 of 8 matrices changed" in list(report(tree))[1]


def test_the_first_figure_shows_the_change_of_w_qk_and_w_ov_of_each_head(products):
    assert list(report(products))[1].startswith("Heads whose W_QK changed most")
    first = next(iter(figure_names(products)))
    assert first == "changes-of-heads"
    for ax, name in zip(figures(products, names=[first])[first].axes, ("qk", "ov"), strict=False):
        np.testing.assert_array_equal(cells(ax), np.log(products["heads"][f"relative_change_{name}"]))
        assert ax.get_ylim()[0] > ax.get_ylim()[1], "layer 0 on top"
