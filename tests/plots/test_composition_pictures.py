"""Pictures of compositions: what they draw is what the table holds."""

import numpy as np
import pytest
from drawn_parts import cells, hatched, line, line_collections
from matplotlib.colors import to_rgb

from rmtbase.drawing.theme import THEMES
from rmtbase.errors import ParameterError
from rmtbase.models import open_model
from rmtbase.results.composition import composition
from rmtbase.results.composition.figures import composition_by_layer, composition_graph, composition_heatmap
from rmtbase.results.composition.report import pairs_with, summarize_composition
from rmtbase.results.figures import figure_names, figures


@pytest.fixture(scope="module")
def table():
    return composition(open_model("demo", "step-200"))


def at_level(table, level):
    """Return the table with q-values that fall below 0.05 where they fell below another level."""
    return table.assign(q_value=table["q_value"] * (0.05 / level))


def test_the_map_has_a_cell_for_each_pair_and_pairs_that_cannot_be_tested_are_hatched(table):
    ax = composition_heatmap(table, "k", legend=False)
    np.testing.assert_array_equal(cells(ax), table["z_score"].sel(kind="k").transpose("later", "earlier"))
    dots = line(ax, "q < 0.05")
    q = table["q_value"].sel(kind="k").values
    assert {*zip(dots.get_xdata(), dots.get_ydata(), strict=True)} == {*zip(*np.nonzero(q < 0.05), strict=True)}
    assert f"{(q < 0.05).sum()} of 384 pairs compose" in ax.get_title()
    changed = table.sel(kind=["k"]).copy(deep=True)
    for name in ("z_score", "p_value", "q_value"):
        changed[name].values[0, 3, 10] = np.nan
    changed["not_testable"].values[0, 3, 10] = 1
    ax = composition_heatmap(changed, "k", legend=False)
    assert hatched(ax) == {(10, 3)}
    assert "of 383 pairs compose" in ax.get_title() and "hatched: not testable" in " ".join(ax.get_title().split())
    assert "1 more not testable" in " ".join(composition_graph(changed).get_title().split())
    assert "hatched" not in composition_heatmap(table, "k", legend=False).get_title()


def test_the_graph_has_a_line_for_each_pair_that_composes_or_the_largest_of_many(table):
    ax = composition_graph(at_level(table, 0.001))
    surviving = summarize_composition(table, 0.001).surviving
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
    ax = composition_graph(at_level(table, 0.5))
    lines = line_collections(ax)
    score = np.sort(table["score"].values[table["q_value"].values < 0.5])[::-1]
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


def test_the_map_of_layers_counts_the_pairs_and_all_figures_are_drawn_in_every_theme(table):
    ax = composition_by_layer(table, "k", legend=False)
    share = cells(ax)
    printed = {tuple(map(int, one.get_position())): one.get_text() for one in ax.texts}
    of_kind = table.sel(kind="k")
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
    assert figure_names(table) == dict.fromkeys(["composition-graph", "composition-by-layer", "composition"], True)
    for figure in figures(table, theme="print", width=3.4).values():
        figure.draw_without_rendering()
    for theme in THEMES.values():
        assert to_rgb(composition_graph(table, theme=theme).lines[0].get_color()) == to_rgb(theme.series[0])
    for ax in (composition_heatmap(table, "k"), composition_by_layer(table, "k"), composition_graph(table)):
        assert ax.get_ylim()[0] > ax.get_ylim()[1] and ax.get_xlim()[0] < ax.get_xlim()[1]  # layer 0 on top


def test_pairs_of_a_layer_or_a_head_are_what_is_left_of_the_table_and_its_figures(table):
    whole = summarize_composition(table, 0.5)
    for layer, head in ((2, None), (None, 5), (2, 5)):
        here = pairs_with(table, layer, head)
        sides = []
        for side in ("earlier", "later"):
            chosen = np.ones(table.sizes[side], dtype=bool)
            for name, number in (("layer", layer), ("head", head)):
                chosen &= (table[f"{side}_{name}"].values == number) | (number is None)
            sides.append(chosen)
        kept = sides[0][:, None] | sides[1][None, :]
        for name in ("score", "q_value", "z_score"):
            np.testing.assert_array_equal(here[name].values, np.where(kept, table[name].values, np.nan))
        assert here["q_value"].notnull().sum() < table["q_value"].notnull().sum()
        names = table["earlier"].values.tolist()
        expected = [one for one in whole.surviving if kept[names.index(one.earlier), names.index(one.later)]]
        assert list(summarize_composition(table, 0.5, layer, head).surviving) == expected
        assert 0 < len(expected) < len(whole.surviving)
        drawn = composition_graph(at_level(here, 0.5))
        assert sum(len(one.get_paths()) for one in line_collections(drawn)) == min(30, len(expected))
    for wrong in ({"layer": 4}, {"head": -1}):
        with pytest.raises(ParameterError, match=r"expected one of 0, 1, 2, 3"):
            pairs_with(table, **wrong)
