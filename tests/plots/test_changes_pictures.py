"""Pictures of changes, directions, effective depths and compositions: what they draw is what the file holds."""

import sys
from pathlib import Path

import numpy as np
import pytest
from drawn_parts import cells, hatched, line, line_collections
from matplotlib.colors import to_rgb

from rmtbase.drawing.theme import LIGHT, THEMES
from rmtbase.errors import ParameterError
from rmtbase.laws import ResidualPath
from rmtbase.models import open_model
from rmtbase.results.composition import composition
from rmtbase.results.composition.figures import composition_by_layer, composition_graph, composition_heatmap
from rmtbase.results.composition.report import pairs_with, summarize_composition
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


def test_the_first_figure_is_the_one_that_the_first_sentence_is_of(changes, products):
    names = ["shares-of-heads", "changes", "old-directions", "old-directions-of-heads"]
    assert list(figure_names(changes)) == names
    assert len(figures(changes, names=[names[0]])[names[0]].axes) == 3, "two components and the colour bar"
    one = changes.copy(deep=True)
    one["heads"]["share_head"].loc[{"component": "attention_key"}] = np.nan  # unchanged
    assert len(figures(one, names=[names[0]])[names[0]].axes) == 2
    assert "8 of 8 matrices changed" in list(report(changes))[1]
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


@pytest.fixture(scope="module")
def composed():
    return composition(open_model("demo", "step-200"))


def at_level(composed, level):
    """Return the composed with q-values that fall below 0.05 where they fell below another level."""
    return composed.assign(q_value=composed["q_value"] * (0.05 / level))


def test_the_map_has_a_cell_for_each_pair_and_pairs_that_cannot_be_tested_are_hatched(composed):
    ax = composition_heatmap(composed, "k", legend=False)
    np.testing.assert_array_equal(cells(ax), composed["z_score"].sel(kind="k").transpose("later", "earlier"))
    dots = line(ax, "q < 0.05")
    q = composed["q_value"].sel(kind="k").values
    assert {*zip(dots.get_xdata(), dots.get_ydata(), strict=True)} == {*zip(*np.nonzero(q < 0.05), strict=True)}
    assert f"{(q < 0.05).sum()} of 384 pairs compose" in ax.get_title()
    changed = composed.sel(kind=["k"]).copy(deep=True)
    for name in ("z_score", "p_value", "q_value"):
        changed[name].values[0, 3, 10] = np.nan
    changed["not_testable"].values[0, 3, 10] = 1
    ax = composition_heatmap(changed, "k", legend=False)
    assert hatched(ax) == {(10, 3)}
    assert "of 383 pairs compose" in ax.get_title() and "hatched: not testable" in " ".join(ax.get_title().split())
    assert "1 more not testable" in " ".join(composition_graph(changed).get_title().split())
    assert "hatched" not in composition_heatmap(composed, "k", legend=False).get_title()


def test_the_graph_has_a_line_for_each_pair_that_composes_or_the_largest_of_many(composed):
    ax = composition_graph(at_level(composed, 0.001))
    surviving = summarize_composition(composed, 0.001).surviving
    assert 0 < len(surviving) <= 30
    lines = line_collections(ax)
    assert [len(one.get_paths()) for one in lines] == [
        sum(pair.kind == kind for pair in surviving) for kind in ("q", "k", "v")
    ]
    ends = [path.vertices[[0, -1]] for path in lines[1].get_paths()]
    expected = [
        [[int(end[-1]), int(end[1])] for end in (pair.earlier, pair.later)] for pair in surviving if pair.kind == "k"
    ]  # of L2H5 the place (5, 2)
    assert sorted(np.array(ends).tolist()) == sorted(expected)
    assert len({to_rgb(one.get_color()[0]) for one in lines}) == len({str(one.get_linestyle()) for one in lines}) == 3
    ax = composition_graph(at_level(composed, 0.5))
    lines = line_collections(ax)
    score = np.sort(composed["score"].values[composed["q_value"].values < 0.5])[::-1]
    said = " ".join(ax.get_title().split())
    assert f"drawn: the 30 of these {score.size} with the largest scores" in said
    score = score[:30]
    assert sum(len(one.get_paths()) for one in lines) == score.size
    assert f"the thicker a line, the larger the score ({score[-1]:.2g}" in said
    width = np.sort(np.concatenate([one.get_linewidths() for one in lines]))[::-1]
    np.testing.assert_allclose((width - width[-1]) / np.ptp(width), (score - score[-1]) / np.ptp(score), atol=1e-9)


def test_a_model_without_any_has_nodes_alone():
    ax = composition_graph(composition(open_model("demo", "step-0"), kinds=("v",)))
    assert not any(len(one.get_paths()) for one in ax.collections)
    assert ax.get_title().startswith("0 of 384 pairs")


def test_the_map_of_layers_counts_the_pairs_and_all_figures_are_drawn_in_every_theme(composed):
    ax = composition_by_layer(composed, "k", legend=False)
    share = cells(ax)
    printed = {tuple(map(int, one.get_position())): one.get_text() for one in ax.texts}
    of_kind = composed.sel(kind="k")
    for earlier in range(4):
        for later in range(4):
            q = of_kind["q_value"].values[
                np.ix_(of_kind["earlier_layer"].values == earlier, of_kind["later_layer"].values == later)
            ]
            if earlier >= later:
                assert np.isnan(share[later, earlier])
                continue
            np.testing.assert_allclose(share[later, earlier], 100 * (q < 0.05).mean())
            assert printed.get((earlier, later), "0") == str((q < 0.05).sum())
    assert printed
    assert figure_names(composed) == dict.fromkeys(["composition-graph", "composition-by-layer", "composition"], True)
    for figure in figures(composed, theme="print", width=3.4).values():
        figure.draw_without_rendering()
    for theme in THEMES.values():
        assert to_rgb(composition_graph(composed, theme=theme).lines[0].get_color()) == to_rgb(theme.series[0])
    for ax in (composition_heatmap(composed, "k"), composition_by_layer(composed, "k"), composition_graph(composed)):
        assert ax.get_ylim()[0] > ax.get_ylim()[1] and ax.get_xlim()[0] < ax.get_xlim()[1]  # layer 0 on top


def test_pairs_of_a_layer_or_a_head_are_what_is_left_of_the_table_and_its_figures(composed):
    whole = summarize_composition(composed, 0.5)
    for layer, head in ((2, None), (None, 5), (2, 5)):
        here = pairs_with(composed, layer, head)
        sides = []
        for side in ("earlier", "later"):
            chosen = np.ones(composed.sizes[side], dtype=bool)
            for name, number in (("layer", layer), ("head", head)):
                chosen &= (composed[f"{side}_{name}"].values == number) | (number is None)
            sides.append(chosen)
        kept = sides[0][:, None] | sides[1][None, :]
        for name in ("score", "q_value", "z_score"):
            np.testing.assert_array_equal(here[name].values, np.where(kept, composed[name].values, np.nan))
        assert here["q_value"].notnull().sum() < composed["q_value"].notnull().sum()
        names = composed["earlier"].values.tolist()
        expected = [one for one in whole.surviving if kept[names.index(one.earlier), names.index(one.later)]]
        assert list(summarize_composition(composed, 0.5, layer, head).surviving) == expected
        assert 0 < len(expected) < len(whole.surviving)
        drawn = composition_graph(at_level(here, 0.5))
        assert sum(len(one.get_paths()) for one in line_collections(drawn)) == min(30, len(expected))
    for wrong in ({"layer": 4}, {"head": -1}):
        with pytest.raises(ParameterError, match=r"expected one of 0, 1, 2, 3"):
            pairs_with(composed, **wrong)
