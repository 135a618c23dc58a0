"""Pictures of changes, of learned directions and of effective depths: what they draw is what the file holds."""

import sys
from pathlib import Path

import numpy as np
import pytest
from drawn_parts import cells, line

from rmtbase.drawing.theme import LIGHT
from rmtbase.laws import ResidualPath
from rmtbase.models import open_model
from rmtbase.results.depth import depth
from rmtbase.results.depth.figures import depth_profile, depth_spectrum
from rmtbase.results.diff import diff
from rmtbase.results.diff.figures import change_heatmap
from rmtbase.results.diff.report import report
from rmtbase.results.figures import figure_names, figures
from rmtbase.results.signal import signal
from rmtbase.results.signal.figures import learned_directions

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scoring"))  # models are made there
from made_models import layers, model_of


@pytest.fixture(scope="module")
def changes():
    return diff(
        open_model("demo", "step-0"), open_model("demo", "step-200"), components=["attention_key", "attention_value"]
    )


@pytest.fixture(scope="module")
def products():
    """Changes of a small model, whose queries and keys are known."""
    before, after = (model_of(np.random.default_rng(seed), layers(2), heads=4) for seed in (1, 2))
    return diff(before, after)


def test_maps_hold_the_size_the_shares_of_heads_and_z(changes):
    ax = change_heatmap(changes)
    np.testing.assert_array_equal(cells(ax), np.log(changes["matrices"]["relative_change"]))
    assert ax.get_title() == "size of the change", "nothing is tested in it, so there are no dots to explain"
    shares = changes["heads"]["share_head"].sel(component="attention_value").transpose("layer", "head")
    ax = change_heatmap(changes, "share", "attention_value")
    expected = changes["heads"]["expected_share_head"].sel(component="attention_value").transpose("layer", "head")
    np.testing.assert_array_equal(cells(ax)[:, : shares.sizes["head"]], np.log(shares / expected))
    named = changes["heads"]["q_value_head"].sel(component="attention_value").transpose("layer", "head").values < 0.05
    dots = line(ax, "q < 0.05")
    assert sorted(zip(dots.get_ydata(), dots.get_xdata(), strict=True)) == [(y, x) for y, x in np.argwhere(named)] != []
    np.testing.assert_array_equal(cells(change_heatmap(changes, "out")), changes["matrices"]["z_score_out"])
    of_heads = changes["heads"]["z_score_in"].sel(component="attention_key")
    ax = change_heatmap(changes, "in", "attention_key")
    np.testing.assert_array_equal(cells(ax), of_heads)
    assert ax.get_title().startswith("attention key, old directions of the inputs")


def test_the_first_figure_is_the_one_that_the_first_sentence_is_of(changes):
    names = ["shares-of-heads", "changes", "old-directions", "old-directions-of-heads"]
    assert list(figure_names(changes)) == names
    assert len(figures(changes, names=[names[0]])[names[0]].axes) == 3, "two components and the colour bar"
    one = changes.copy(deep=True)
    one["heads"]["share_head"].loc[{"component": "attention_key"}] = np.nan  # unchanged
    assert len(figures(one, names=[names[0]])[names[0]].axes) == 2
    assert "8 of 8 matrices changed" in list(report(changes))[1]


def test_the_first_figure_shows_the_change_of_w_qk_and_w_ov_of_each_head(products):
    assert list(report(products))[1].startswith("Heads whose W_QK changed most")
    first = next(iter(figure_names(products)))
    assert first == "changes-of-heads"
    for ax, name in zip(figures(products, names=[first])[first].axes, ("qk", "ov"), strict=False):
        np.testing.assert_array_equal(cells(ax), np.log(products["heads"][f"relative_change_{name}"]))
        assert ax.get_ylim()[0] > ax.get_ylim()[1], "layer 0 on top"


@pytest.fixture(scope="module")
def directions():
    return signal(open_model("demo", "step-200", proof=False), circuits=("value",), matrices="none")


def test_each_direction_is_a_mark_at_its_strength(directions):
    assert figure_names(directions) == {"directions-qk": True, "directions-value": True}
    ax = learned_directions(directions, "value")
    group = directions["circuits/value/heads"].to_dataset()
    height = (group["strength"] / group["threshold"]).values
    drawn = np.concatenate([one.get_ydata() for one in ax.lines if one.get_marker() == "o"])
    np.testing.assert_allclose(np.sort(drawn), np.sort(height[np.isfinite(height)]))
    found = int((group["n_directions"] > 0).sum())
    assert f"learned directions in {found} of 16 key heads" in ax.get_title()
    assert ax.get_xlim() == (-0.6, 3.6)


def test_directions_that_cannot_be_tested_have_a_cross_and_those_without_a_number_a_triangle(directions):
    changed = directions.copy(deep=True)
    group = changed["circuits/value/heads"]
    for name in ("first_p_value", "n_directions", "strength", "noise_floor"):
        group[name].values[1, 2] = np.nan
    ax = learned_directions(changed, "value")
    assert line(ax, "not testable").get_xdata() == pytest.approx([1.1])  # the third of four key heads of layer 1
    assert "of 15 testable key heads" in ax.get_title() and "1 of 16 key heads not testable" in ax.get_title()
    assert "not testable" in [text.get_text() for text in ax.get_legend().get_texts()]
    for name in ("first_p_value", "n_directions", "strength", "noise_floor"):
        group[name].values[:] = np.nan
    assert "none of 16 key heads can be tested" in learned_directions(changed, "value").get_title()
    changed = directions.copy(deep=True)
    group = changed["circuits/value/heads"]
    for name in ("n_directions", "strength", "signal_share"):
        group[name].values[2, :] = np.nan
    group["no_number"] = group["no_number"].astype(object)
    group["no_number"].values[2, :] = "too_few_left"
    ax = learned_directions(changed, "value")
    assert line(ax, "no number").get_xdata() == pytest.approx(2 + np.linspace(-0.3, 0.3, 4))
    found = int((group["n_directions"] > 0).sum())
    title = ax.get_title()
    assert f"learned directions in {found} of 12 key heads with a number" in title
    assert "4 of 16 key heads have no number: too few eigenvalues are left below the directions" in title
    group["n_directions"].values[:], group["strength"].values[:] = np.nan, np.nan
    group["no_number"].values[:] = "too_few_left"
    assert "learned directions" not in learned_directions(changed, "value").get_title()


@pytest.fixture(scope="module")
def depths(folders):
    return depth(folders["learned"], depths=[1, 2, 3, 10], draws=19, components=["attention_query", "mlp_in"])


def with_fits(depths, value):
    changed = depths.copy(deep=True)
    changed["fits"][:] = value
    return changed


@pytest.mark.parametrize("plot", [depth_profile, depth_spectrum])
def test_a_matrix_that_cannot_be_tested_fits_no_depth_and_says_why(plot, depths):
    changed = depths.copy(deep=True)
    for name in set(depths.data_vars) - {"n_rows", "n_columns", "reason"}:
        changed[name].values[0, 0] = np.nan
    changed["reason"] = changed["reason"].astype(object)
    changed["reason"].values[0, 0] = "all_zeros"
    ax = plot(changed.isel(layer=[0]), "attention_query")
    assert "not testable: all zeros" in ax.get_title()
    assert [one.get_label() for one in ax.lines] == ["not testable"]
    ax.get_figure().draw_without_rendering()


def test_the_profile_marks_the_nearest_depth_and_the_spectrum_stands_beside_laws(depths):
    ax = depth_profile(with_fits(depths, 0.0), "mlp_in")
    row = depths.sel(layer=1, component="mlp_in")
    np.testing.assert_array_equal(line(ax, "each depth").get_ydata(), row["distance_profile"])
    mark = line(ax, "nearest")
    assert (mark.get_xdata()[0], mark.get_ydata()[0]) == (row["effective_depth"], row["distance_profile"].min())
    assert "no depth fits" in mark.get_label()
    assert mark.get_markerfacecolor() == LIGHT.surface
    mark = line(depth_profile(with_fits(depths, 1.0), "attention_query"), "nearest")
    assert "\nfits" in mark.get_label()
    assert mark.get_markerfacecolor() == LIGHT.observed
    ax = depth_spectrum(depths, "attention_query")
    row = depths.sel(layer=1, component="attention_query")
    (bars,) = ax.patches
    density, edges, _ = bars.get_data()
    assert (density * np.diff(edges)).sum() == pytest.approx(1.0)
    unit = float(np.sqrt((row["singular_value"] ** 2).mean()))
    scale = float(row["scale_profile"].sel(depth=10)) / unit
    drawn = line(ax, "depth 10")
    x = drawn.get_xdata()
    np.testing.assert_allclose(drawn.get_ydata(), ResidualPath(10, 1.0).pdf_singular_values(x / scale) / scale)
    assert f"law of depth {int(row['effective_depth'])}, the nearest" in [one.get_label() for one in ax.lines]


def test_all_matrices_share_the_axes_and_the_standard_figure_has_a_row_for_each(depths):
    first, second = (depth_spectrum(depths, name) for name in depths["component"].values)
    assert first.get_xlim() == second.get_xlim()
    assert first.get_ylim() == second.get_ylim()
    first, second = (depth_profile(depths, name) for name in depths["component"].values)
    assert first.get_ylim() == second.get_ylim()
    (figure,) = figures(depths).values()
    assert len(figure.axes) == 4
    figure.draw_without_rendering()
    for ax in figure.axes[::2]:  # what names the nearest depth does not lie on it
        named, place = ax.get_legend().get_window_extent(), line(ax, "nearest").get_xydata()[0]
        assert not named.padded(4).contains(*ax.transData.transform(place))
    assert [ax.get_title() for ax in figure.axes[::2]] == [
        "layer 1, attention query (32 × 32)",
        "layer 1, mlp in (48 × 32)",
    ]
