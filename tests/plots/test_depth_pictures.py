"""Pictures of effective depths: what they draw is what the table holds."""

import numpy as np
import pytest
from drawn_parts import line

from rmtbase.drawing.theme import LIGHT
from rmtbase.laws import ResidualPath
from rmtbase.results.depth import depth
from rmtbase.results.depth.figures import depth_profile, depth_spectrum
from rmtbase.results.figures import figures


@pytest.fixture(scope="module")
def table(folders):
    return depth(folders["learned"], depths=[1, 2, 3, 10], draws=19, components=["attention_query", "mlp_in"])


def with_fits(table, value):
    changed = table.copy(deep=True)
    changed["fits"][:] = value
    return changed


@pytest.mark.parametrize("plot", [depth_profile, depth_spectrum])
def test_a_matrix_that_cannot_be_tested_fits_no_depth_and_says_why(plot, table):
    changed = table.copy(deep=True)
    for name in set(table.data_vars) - {"n_rows", "n_columns", "reason"}:
        changed[name].values[0, 0] = np.nan
    changed["reason"] = changed["reason"].astype(object)
    changed["reason"].values[0, 0] = "all_zeros"
    ax = plot(changed.isel(layer=[0]), "attention_query")
    assert "not testable: all zeros" in ax.get_title()
    assert [one.get_label() for one in ax.lines] == ["not testable"]
    ax.get_figure().draw_without_rendering()


def test_the_profile_marks_the_nearest_depth_and_a_fit_fills_the_mark(table):
    ax = depth_profile(with_fits(table, 0.0), "mlp_in")
    row = table.sel(layer=1, component="mlp_in")
    np.testing.assert_array_equal(line(ax, "each depth").get_ydata(), row["distance_profile"])
    mark = line(ax, "nearest")
    assert (mark.get_xdata()[0], mark.get_ydata()[0]) == (row["effective_depth"], row["distance_profile"].min())
    assert "no depth fits" in mark.get_label()
    assert mark.get_markerfacecolor() == LIGHT.surface
    mark = line(depth_profile(with_fits(table, 1.0), "attention_query"), "nearest")
    assert "\nfits" in mark.get_label()
    assert mark.get_markerfacecolor() == LIGHT.observed


def test_the_spectrum_is_a_density_beside_laws_at_their_scale(table):
    ax = depth_spectrum(table, "attention_query")
    row = table.sel(layer=1, component="attention_query")
    (bars,) = ax.patches
    density, edges, _ = bars.get_data()
    assert (density * np.diff(edges)).sum() == pytest.approx(1.0)
    unit = float(np.sqrt((row["singular_value"] ** 2).mean()))
    scale = float(row["scale_profile"].sel(depth=10)) / unit
    drawn = line(ax, "depth 10")
    x = drawn.get_xdata()
    np.testing.assert_allclose(drawn.get_ydata(), ResidualPath(10, 1.0).pdf_singular_values(x / scale) / scale)
    assert f"law of depth {int(row['effective_depth'])}, the nearest" in [one.get_label() for one in ax.lines]


def test_all_matrices_share_the_axes(table):
    first, second = (depth_spectrum(table, name) for name in table["component"].values)
    assert first.get_xlim() == second.get_xlim()
    assert first.get_ylim() == second.get_ylim()
    first, second = (depth_profile(table, name) for name in table["component"].values)
    assert first.get_ylim() == second.get_ylim()


def test_the_standard_figure_has_a_row_for_each_matrix(table):
    (figure,) = figures(table).values()
    assert len(figure.axes) == 4
    figure.draw_without_rendering()
    for ax in figure.axes[::2]:  # what names the nearest depth does not lie on it
        named, place = ax.get_legend().get_window_extent(), line(ax, "nearest").get_xydata()[0]
        assert not named.padded(4).contains(*ax.transData.transform(place))
    assert [ax.get_title() for ax in figure.axes[::2]] == [
        "layer 1, attention query (32 × 32)",
        "layer 1, mlp in (48 × 32)",
    ]
