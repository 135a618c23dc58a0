"""Pictures of compositions: what they draw is what the table holds."""

import numpy as np
import pytest
import xarray as xr
from matplotlib.collections import LineCollection, QuadMesh
from matplotlib.colors import to_rgb

from rmtbase.drawing.theme import THEMES
from rmtbase.errors import ParameterError
from rmtbase.models import open_model
from rmtbase.results.composition import composition
from rmtbase.results.composition.figures import composition_graph, composition_heatmap
from rmtbase.results.composition.summary import summarize_composition
from rmtbase.results.figures import figure_names, figures


@pytest.fixture(scope="module")
def table():
    return composition(open_model("demo", "step-200"))


@pytest.mark.parametrize("plot", [composition_heatmap, composition_graph])
def test_what_is_no_table_of_compositions_is_refused(plot, table):
    for bad in (xr.Dataset({"temperature": ("day", [1.0])}), xr.DataTree(), None):
        with pytest.raises(ParameterError, match="compositions"):
            plot(bad)
    with pytest.raises(ParameterError, match="level"):
        plot(table, level=0.0)


def test_pairs_that_cannot_be_tested_are_hatched(table):
    changed = table.sel(kind=["k"]).copy(deep=True)
    for name in ("z_score", "p_value", "q_value"):
        changed[name].values[0, 3, 10] = np.nan
    changed["not_testable"].values[0, 3, 10] = 1
    ax = composition_heatmap(changed, "k", colorbar=False)
    (hatch,) = [one for one in ax.collections if one.get_label() == "not testable"]
    assert {tuple(np.round(of.mean(axis=0)).astype(int).tolist()) for of in hatch.get_segments()} == {(3, 10)}
    assert "of 383 pairs survive" in ax.get_title() and "hatched: not testable" in " ".join(ax.get_title().split())
    assert "1 more not testable" in " ".join(composition_graph(changed).get_title().split())
    assert "hatched" not in composition_heatmap(table, "k", colorbar=False).get_title()


def test_the_map_has_a_cell_for_each_pair_and_a_dot_for_each_that_survives(table):
    ax = composition_heatmap(table, "k", colorbar=False)
    (mesh,) = [one for one in ax.collections if isinstance(one, QuadMesh)]
    drawn = np.ma.filled(mesh.get_array(), np.nan)
    np.testing.assert_array_equal(drawn, table["z_score"].sel(kind="k").transpose("later", "earlier"))
    (dots,) = [one for one in ax.lines if one.get_label() == "q < 0.05"]
    q = table["q_value"].sel(kind="k").values
    assert {*zip(dots.get_xdata(), dots.get_ydata(), strict=True)} == {*zip(*np.nonzero(q < 0.05), strict=True)}
    assert f"{(q < 0.05).sum()} of 384 pairs survive" in ax.get_title()
    with pytest.raises(ParameterError, match="kind = 'x'"):
        composition_heatmap(table, "x")


def test_the_graph_has_a_line_for_each_pair_that_survives(table):
    ax = composition_graph(table)
    surviving = summarize_composition(table).surviving
    lines = [one for one in ax.collections if isinstance(one, LineCollection)]
    assert [len(one.get_paths()) for one in lines] == [
        sum(pair.kind == kind for pair in surviving) for kind in ("q", "k", "v")
    ]
    ends = [path.vertices[[0, -1]] for path in lines[1].get_paths()]
    expected = [
        [[int(end[-1]), int(end[1])] for end in (pair.earlier, pair.later)] for pair in surviving if pair.kind == "k"
    ]  # of L2H5 the place (5, 2)
    assert sorted(np.array(ends).tolist()) == sorted(expected)
    assert len({to_rgb(one.get_color()[0]) for one in lines}) == len({str(one.get_linestyle()) for one in lines}) == 3


def test_of_many_pairs_those_with_the_largest_scores_are_drawn_the_thicker_the_larger(table):
    ax = composition_graph(table, level=0.5)
    lines = [one for one in ax.collections if isinstance(one, LineCollection)]
    assert sum(len(one.get_paths()) for one in lines) == 120
    score = np.sort(table["score"].values[table["q_value"].values < 0.5])[::-1][:120]
    assert f"only the 120 largest scores; the thicker a line, the larger the score ({score[-1]:.2g}" in ax.get_title()
    width = np.sort(np.concatenate([one.get_linewidths() for one in lines]))[::-1]
    np.testing.assert_allclose((width - width[-1]) / np.ptp(width), (score - score[-1]) / np.ptp(score), atol=1e-9)


def test_a_model_without_any_has_nodes_alone():
    ax = composition_graph(composition(open_model("demo", "step-0"), kinds="v"))
    assert not any(len(one.get_paths()) for one in ax.collections)
    assert ax.get_title().startswith("0 of 384 pairs")


def test_both_are_figures_of_the_table_in_every_theme(table):
    assert figure_names(table) == {"composition": True, "composition-graph": True}
    for figure in figures(table, theme="print", width=3.4).values():
        figure.draw_without_rendering()
    for theme in THEMES.values():
        assert to_rgb(composition_graph(table, theme=theme).lines[0].get_color()) == to_rgb(theme.series[0])
