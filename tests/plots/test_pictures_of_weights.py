"""Elements, magnitudes and eigenvalues of heads and matrices: what is drawn is what the file holds, beside its law."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from drawn_parts import bands, cells, line, mesh_of
from scipy import stats
from scored_model import D_HEAD, D_MODEL, HEADS, KEY_HEADS, LAYERS

from rmtbase import laws
from rmtbase.results import open_table
from rmtbase.results.baseline.figures import element_property
from rmtbase.results.figures import figure_names, figures
from rmtbase.results.scores.figures._eigenvalues import (
    eigenvalue_density_heatmap,
    eigenvalue_heatmap,
    ordered_eigenvalues,
)
from rmtbase.results.scores.figures._element_histograms import (
    head_density,
    head_density_heatmap,
    magnitude_heatmap,
    tail_counts,
    weibull_plane,
    weibull_plot,
    weibull_residuals,
)
from rmtbase.results.scores.figures._statistic_by_layer import matrix_statistic_by_layer, statistic_by_layer
from rmtbase.results.scores.figures._statistic_scatter import statistic_scatter


@pytest.fixture
def learned_elements(with_elements):
    return with_elements["learned"]


def levels(mesh):
    return list(mesh.norm.boundaries), [mesh.cmap(k) for k in range(mesh.cmap.N)]


# Elements of heads.


def test_the_density_of_a_head_is_that_of_the_file_beside_its_law(learned_elements):
    own = learned_elements["heads/elements"].to_dataset().sel(layer=1, head=2, component="W_QK")["histogram"].values
    for scale in ("linear", "log"):
        ax = head_density(learned_elements, 1, 2, scale=scale)
        values, edges, _ = ax.patches[0].get_data()
        np.testing.assert_allclose(values[own > 0], own[own > 0])
        assert edges[[0, -1]].tolist() == pytest.approx([-8.0, 8.0])
        x, y = line(ax, "element of a random product").get_data()
        np.testing.assert_allclose(y, laws.ProductElement(D_HEAD, D_HEAD**-0.5).pdf(x))
        assert ax.get_yscale() == scale
    assert len({head_density(learned_elements, layer, 0).get_ylim() for layer in range(LAYERS)}) == 1


def test_a_random_head_lies_in_the_band_of_its_entries(with_elements):
    """Of 12 heads and about 60 bins each 95 % are expected inside, those of few counts more."""
    inside = []
    for layer in range(LAYERS):
        for head in range(HEADS):
            ax = head_density(with_elements["random"], layer, head, "W_Q", "linear")
            (band,) = bands(ax).values()
            outline = band.get_paths()[0].vertices
            values, edges, _ = ax.patches[0].get_data()
            centre = 0.5 * (edges[1:] + edges[:-1])
            top = np.interp(centre, outline[: len(outline) // 2, 0], stats.norm.pdf(outline[: len(outline) // 2, 0]))
            spread = 1.96 * np.sqrt(top / (D_HEAD * D_MODEL * 0.1))
            inside += (np.abs(values - top) <= spread)[np.abs(centre) < 2].tolist()
            assert outline[:, 1].max() == pytest.approx(stats.norm.pdf(0) + 1.96 * np.sqrt(0.39894228 / 25.6), rel=1e-6)
    assert np.mean(inside) > 0.93


def test_a_map_of_densities_has_a_row_for_each_head_and_the_null_on_top(learned_elements):
    ax = head_density_heatmap(learned_elements, "W_K")
    drawn = cells(ax).reshape(-1, 160)
    assert len(drawn) == 2 + LAYERS * KEY_HEADS
    held = np.isfinite(drawn[0])
    x = np.linspace(-7.95, 7.95, 160)
    np.testing.assert_allclose(np.exp(drawn[0][held]), stats.norm.pdf(x[held]), rtol=1e-9)
    own = learned_elements["heads/elements"].to_dataset().sel(component="W_K")["histogram"].values[0, 1]
    np.testing.assert_allclose(np.exp(drawn[3][own > 0]), own[own > 0])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["null", "0", "1", "2"]


def test_weights_in_their_own_unit_keep_their_share_and_show_their_width(learned_elements):
    table = learned_elements["heads/elements"].to_dataset().sel(component="W_Q")
    sigma = table["sigma"].where(table["histogram"].notnull().any("bin")).values.ravel()
    ax = head_density_heatmap(learned_elements, "W_Q", "weight")
    density = np.exp(np.nan_to_num(cells(ax), nan=-np.inf)).reshape(-1, 160)[2:]
    x = np.linspace(-7.95, 7.95, 160)
    spread = np.sqrt((density * x**2).sum(axis=1) * 0.1)
    shown = sigma[np.isfinite(sigma)]
    wide = shown / np.sqrt(np.mean(shown**2)) < 1.5
    np.testing.assert_allclose(spread[wide], (shown / np.sqrt(np.mean(shown**2)))[wide], rtol=0.1)


def test_colours_of_densities_and_eigenvalues_are_those_of_any_other_file(with_elements):
    for plot, component in (
        (head_density_heatmap, ["W_QK"]),
        (magnitude_heatmap, ["mlp_in"]),
        (eigenvalue_heatmap, []),
    ):
        one, other = (levels(mesh_of(plot(table, *component))) for table in with_elements.values())
        assert one == other


# Eigenvalues and magnitudes.


def test_eigenvalues_are_those_of_the_file_over_the_null_s_median(learned_elements):
    ax = eigenvalue_heatmap(learned_elements)
    drawn = np.exp(cells(ax)).reshape(-1, D_HEAD)
    lines = ordered_eigenvalues(learned_elements, heads=[(1, 0)]).lines
    (own,) = [one for one in lines if one.get_label() == "layer 1 head 0"]
    np.testing.assert_allclose(drawn[HEADS], own.get_ydata())
    shown = np.exp(cells(eigenvalue_heatmap(learned_elements, "mean"))).reshape(-1, D_HEAD)[2:]
    values = learned_elements["heads"]["eigenvalue"].values.reshape(-1, D_HEAD)
    held = values[:, -1] > 0
    np.testing.assert_allclose(shown[held], values[held] / values[np.isfinite(values)].mean())


def test_a_row_of_densities_holds_all_of_a_head_s_eigenvalues(learned_elements):
    mesh = mesh_of(eigenvalue_density_heatmap(learned_elements))
    edges = np.log(mesh.get_coordinates()[0, :, 0])
    density = np.exp(np.ma.filled(mesh.get_array(), -np.inf)).reshape(-1, len(edges) - 1)
    share = (density * np.diff(edges)).sum(axis=1)
    zero = learned_elements["heads"]["eigenvalue"].values[..., 0].ravel() == 0
    np.testing.assert_allclose(share, [1.0, 0.0, *np.where(zero, 0.0, 1.0)])


def test_each_layer_stands_beside_the_half_normal_law_at_its_sigma(learned_elements):
    ax = magnitude_heatmap(learned_elements, "mlp_in")
    first = np.nan_to_num(cells(ax), nan=-np.inf).reshape(-1, 2)
    sigma = float(learned_elements["matrices"]["sigma"].sel(layer=0, component="mlp_in"))
    edges = np.linspace(-12.0, 4.0, 161)
    expected = np.diff(2 * stats.norm.cdf(10**edges / sigma) - 1) / 0.1
    np.testing.assert_allclose(np.exp(first[:, 1]), expected, atol=1e-12)
    own = learned_elements["matrices"]["log_magnitude_histogram"].sel(layer=0, component="mlp_in").values
    np.testing.assert_allclose(np.exp(first[:, 0]), own)
    limits = {magnitude_heatmap(learned_elements, name).get_ylim() for name in ("mlp_in", "attention_key")}
    assert len(limits) == 1


# Weibull plots.


def test_a_file_s_matrix_gives_the_points_of_its_histogram(learned_elements):
    matrix = learned_elements["matrices"].to_dataset().sel(layer=2, component="mlp_out")
    x, y = line(weibull_plot(learned_elements, 2, "mlp_out"), "weights").get_data()
    share = np.cumsum(matrix["log_magnitude_histogram"].values) * 0.1
    rms = float(matrix["sigma"]) * np.hypot(1.0, float(matrix["observed"].sel(statistic="mean")))
    places = np.round((np.log10(x * rms) + 12.0) / 0.1).astype(int)
    np.testing.assert_allclose(-np.expm1(-np.exp(y)), share[places - 1], atol=1e-12)
    fit = dict(zip(*line(weibull_plot(learned_elements, 2, "mlp_out"), "fit").get_data(), strict=True))
    (low, high), (first, last) = np.log(list(fit)), fit.values()
    assert (last - first) / (high - low) == pytest.approx(float(matrix["observed"].sel(statistic="weibull_shape")))
    x, residual = line(weibull_residuals(learned_elements, 2, "mlp_out"), "weights").get_data()
    np.testing.assert_array_equal(x, y)
    assert np.abs(residual[(y > np.log(-np.log(0.9))) & (y < np.log(-np.log(0.1)))]).max() < 0.15
    (figure,) = figures(learned_elements, names=["weibull-plot-mlp_out-2"]).values()
    assert "layer 2, mlp out, 1536 weights" in figure.get_suptitle()


def test_the_tail_counts_what_is_larger_and_an_outlier_stands_alone(learned_elements):
    matrix = learned_elements["matrices"].to_dataset().sel(layer=2, component="mlp_out")
    ax = tail_counts(learned_elements, 2, "mlp_out")
    rms = float(matrix["sigma"]) * np.hypot(1.0, float(matrix["observed"].sel(statistic="mean")))
    x, count = line(ax, "weights").get_data()
    above = 1536 * np.cumsum(matrix["log_magnitude_histogram"].values[::-1])[::-1] * 0.1
    np.testing.assert_allclose(count, above[np.round((np.log10(x * rms) + 12.0) / 0.1).astype(int)], atol=1e-9)
    (largest,) = line(ax, "largest").get_xdata()
    known = float(matrix["observed"].sel(statistic="largest_magnitude")) * float(matrix["sigma"])
    assert largest == pytest.approx(known / rms)
    body_x, body = line(ax, "Weibull law of the body").get_data()
    assert np.interp(largest, body_x, body) < np.interp(2.0, body_x, body)


def test_the_band_of_a_matrix_s_statistic_is_its_null_s(learned_elements):
    ax = matrix_statistic_by_layer(learned_elements)
    one = learned_elements["matrices"].to_dataset().sel(statistic="weibull_shape", component="mlp_in")
    middle, half = one["null_mean"].values[0], 1.96 * one["null_std"].values[0]
    drawn = [(patch.get_y(), patch.get_height()) for patch in ax.patches]
    assert any(ends == pytest.approx((middle - half, 2 * half)) for ends in drawn)
    np.testing.assert_allclose(line(ax, "mlp in").get_ydata(), one["observed"].values)


@pytest.mark.parametrize("statistic", ["kl_matched_normal", "entropy_residual", "weibull_shape"])
def test_elements_of_heads_stand_by_layer_before_the_band_of_their_null(statistic, learned_elements):
    ax = statistic_by_layer(learned_elements, statistic, group="elements", component="W_Q")
    one = learned_elements["heads"]["elements"].to_dataset().sel(element_statistic=statistic, component="W_Q")
    (band,) = [patch for patch in ax.patches if patch.get_label() == "null, 95 % of heads"]
    middle, half = float(one["null_mean"][0, 0]), 1.96 * float(one["null_std"][0, 0])
    assert (band.get_y(), band.get_height()) == pytest.approx((middle - half, 2 * half))
    drawn = [y for q in ("<", "≥") for y in line(ax, f"head, q {q} 0.05").get_ydata() if np.isfinite(y)]
    np.testing.assert_allclose(sorted(drawn), np.sort(one["observed"].values[one["observed"].notnull().values]))


def test_the_spread_of_a_head_stands_beside_that_of_its_core(learned_elements):
    ax = statistic_by_layer(learned_elements, "sigma", group="elements")
    one = learned_elements["heads"]["elements"].to_dataset().sel(component="W_QK")
    core = (one["sigma"] * one["observed"].sel(element_statistic="core_sigma")).values.ravel()
    np.testing.assert_allclose(line(ax, r"$\sigma_\mathrm{fit}$ of its core").get_ydata(), core)
    assert not ax.patches


def test_ticks_on_either_side_of_zero_do_not_touch(learned_elements):
    elements = learned_elements["heads"]["elements"].to_dataset()
    far = elements.assign(observed=elements["observed"] * 3e4)
    ax = statistic_by_layer(far, "skewness", group="elements", component="W_Q")
    assert ax.get_yscale() == "symlog"
    ax.figure.draw_without_rendering()
    low, high = ax.get_ylim()
    names = [one for one in ax.get_yticklabels() if one.get_text() and low <= one.get_position()[1] <= high]
    boxes = sorted((one.get_window_extent() for one in names), key=lambda box: box.y0)
    assert len(boxes) >= 3
    assert all(below.y1 < above.y0 for below, above in pairwise(boxes))


def test_the_plane_holds_every_matrix_in_the_units_of_its_weights(learned_elements):
    ax = weibull_plane(learned_elements)
    matrices = learned_elements["matrices"].to_dataset().sel(component="attention_output")
    k, ratio, mean = (matrices["observed"].sel(statistic=n).values for n in ("weibull_shape", "weibull_scale", "mean"))
    x, y = line(ax, "attention output").get_data()
    np.testing.assert_allclose(x, k)
    np.testing.assert_allclose(y, ratio * matrices["sigma"].values * np.hypot(1.0, mean))


# Scatters.


def test_no_head_lies_below_pearson_s_bound_and_each_shape_s_null_is_marked_once(learned_elements):
    ax = statistic_scatter(learned_elements, "skewness", "excess_kurtosis", component="W_Q")
    skewness, kurtosis = line(ax, "observed").get_data()
    table = learned_elements["heads/elements"].to_dataset().sel(component="W_Q")["observed"]
    np.testing.assert_array_equal(skewness, table.sel(element_statistic="skewness").values.ravel())
    x, bound = line(ax, "Pearson's bound").get_data()
    np.testing.assert_allclose(bound, laws.pearson_bound(x) - 3.0)
    held = np.isfinite(kurtosis)
    assert (kurtosis[held] >= np.interp(skewness[held], x, bound) - 1e-9).all()
    assert ax.get_ylim()[0] <= -2.0
    assert sum(one.get_label() == "null, mean and 95 %" for one in ax.lines) == 1


# Tables of elements.


def test_properties_of_elements_follow_their_size():
    stored = open_table(Path(__file__).parents[1] / "data" / "elements.nc")
    table = stored.isel(case=[0, 0]).assign(d_head=("case", [6, 2]), d_model=("case", [24, 24]))
    ax = element_property(table, "histogram_kl")
    np.testing.assert_allclose(ax.containers[0].lines[0].get_ydata(), table["mean"].sel(statistic="histogram_kl"))
    np.testing.assert_array_equal(ax.containers[0].lines[0].get_xdata(), [2, 6])
    assert list(figures(table, names=["element-properties"])) == ["element-properties"]
    assert list(figures(table.isel(case=[0]), names=["element-properties"])) == []


# Figures by name.


@pytest.mark.exhaustive
def test_heavy_figures_are_drawn_on_request_alone(learned_elements):
    names = figure_names(learned_elements)
    assert list(figures(learned_elements)) == [name for name, standard in names.items() if standard]
    assert "weibull-by-layer" in [name for name, standard in names.items() if standard]
    drawn = figures(
        learned_elements, names=["head-densities-W_V-?", "weibull-plane", "moment-corner", "no such"], width=3.4
    )
    assert list(drawn) == [
        "weibull-plane",
        "moment-corner",
        *(f"head-densities-W_V-{layer}" for layer in range(LAYERS)),
    ]
    assert len(drawn["moment-corner"].axes) == 10
