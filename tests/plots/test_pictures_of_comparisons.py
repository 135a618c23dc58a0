"""Models beside each other: what is drawn is what the comparison holds."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import LineCollection, QuadMesh

from rmtbase.errors import ParameterError
from rmtbase.plots import component_shapes, figure_names, figures, pair_heatmap, scale_law, shape_drifts
from rmtbase.tables import open_table


@pytest.fixture(scope="module")
def comparison():
    return open_table(Path(__file__).parents[1] / "data" / "comparison-schema-1.5.nc", "comparison")


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
    assert list(figures(comparison, width=3.4)) == ["pairs", "component-shapes", "scale-law"]
    assert set(figure_names(comparison)) > {"shape-drifts", "component-shapes-published"}
