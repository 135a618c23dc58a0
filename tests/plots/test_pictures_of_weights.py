"""Elements, magnitudes and eigenvalues of heads and matrices: what is drawn is what the file holds, beside its law."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from drawn_parts import bands, cells, line, mesh_of
from matplotlib.collections import PathCollection
from scipy import stats
from scored_model import D_HEAD, D_MODEL, HEADS, KEY_HEADS, LAYERS, ZERO

from rmtbase import laws
from rmtbase.drawing.layout import figure_style
from rmtbase.results import open_table
from rmtbase.results.baseline.figures import element_property
from rmtbase.results.figures import figure_names, figures
from rmtbase.results.scores.figures._eigenvalues import (
    eigenvalue_density_heatmap,
    eigenvalue_heatmap,
    head_eigenvalue_density,
    head_eigenvalues,
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
from rmtbase.results.scores.figures._statistic_by_layer import (
    matrix_statistic_by_layer,
    statistic_by_layer,
    width_by_layer,
)
from rmtbase.results.scores.figures._statistic_scatter import spectrum_and_width, statistic_scatter


@pytest.fixture
def tree(with_elements):
    return with_elements["learned"]


def levels(mesh):
    return list(mesh.norm.boundaries), [mesh.cmap(k) for k in range(mesh.cmap.N)]


def test_the_density_of_a_head_is_that_of_the_file_beside_its_law_in_either_unit(tree):
    own = tree["heads/elements"].to_dataset().sel(layer=1, head=2, component="W_QK")["histogram"].values
    for scale in ("linear", "log"):
        ax = head_density(tree, 1, 2, scale=scale)
        values, edges, _ = ax.patches[0].get_data()
        np.testing.assert_allclose(values[own > 0], own[own > 0])
        assert edges[[0, -1]].tolist() == pytest.approx([-8.0, 8.0])
        x, y = line(ax, "element of a random product").get_data()
        np.testing.assert_allclose(y, laws.ProductElement(D_HEAD, D_HEAD**-0.5).pdf(x))
        assert ax.get_yscale() == scale
    assert len({head_density(tree, layer, 0).get_ylim() for layer in range(LAYERS)}) == 1
    elements = tree["heads/elements"].to_dataset().sel(component="W_Q", layer=1)
    for head in range(2):
        ax = head_density(tree, 1, head, "W_Q", "weights")
        heights, edges, _ = ax.patches[0].get_data()
        sigma = float(elements["sigma"].sel(head=head))
        centre, mass = 0.5 * (edges[1:] + edges[:-1]), heights * np.diff(edges)
        assert mass.sum() == pytest.approx(1.0, abs=1e-3)
        assert np.sqrt(mass @ centre**2 - (mass @ centre) ** 2) == pytest.approx(sigma, rel=0.02)


def test_random_heads_lie_in_the_bands_of_their_entries_and_widths(with_elements):
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
    tree = with_elements["random"]
    ax = spectrum_and_width(tree, "eigenvalue", STYLE).axes[0]
    own = line(ax, "heads")
    shape = tree["heads"].to_dataset().sel(statistic="stable_rank")
    low, high = (shape["null_quantile"].sel(probability=level).values.ravel() for level in (0.005, 0.995))
    within = (shape["observed"].values.ravel() >= low) & (shape["observed"].values.ravel() <= high)
    (band,) = ax.collections
    ends = band.get_paths()[0].vertices
    norm = (D_MODEL * np.asarray(own.get_xdata())) ** 2
    per_norm = ends[:, 1] / (D_MODEL * ends[:, 0]) ** 2
    drawn = np.asarray(own.get_ydata()) / norm
    np.testing.assert_array_equal(within, (drawn >= per_norm.min()) & (drawn <= per_norm.max()))
    for plot, component in (
        (head_density_heatmap, ["W_QK"]),
        (magnitude_heatmap, ["mlp_in"]),
        (eigenvalue_heatmap, []),
    ):
        one, other = (levels(mesh_of(plot(table, *component))) for table in with_elements.values())
        assert one == other


def test_a_map_of_densities_has_a_row_for_each_head_in_either_unit(tree):
    ax = head_density_heatmap(tree, "W_K")
    drawn = cells(ax).reshape(-1, 160)
    assert len(drawn) == 2 + LAYERS * KEY_HEADS
    held = np.isfinite(drawn[0])
    x = np.linspace(-7.95, 7.95, 160)
    np.testing.assert_allclose(np.exp(drawn[0][held]), stats.norm.pdf(x[held]), rtol=1e-9)
    own = tree["heads/elements"].to_dataset().sel(component="W_K")["histogram"].values[0, 1]
    np.testing.assert_allclose(np.exp(drawn[3][own > 0]), own[own > 0])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["null", "0", "1", "2"]
    table = tree["heads/elements"].to_dataset().sel(component="W_Q")
    sigma = table["sigma"].where(table["histogram"].notnull().any("bin")).values.ravel()
    ax = head_density_heatmap(tree, "W_Q", "weight")
    density = np.exp(np.nan_to_num(cells(ax), nan=-np.inf)).reshape(-1, 160)[2:]
    spread = np.sqrt((density * x**2).sum(axis=1) * 0.1)
    shown = sigma[np.isfinite(sigma)]
    wide = shown / np.sqrt(np.mean(shown**2)) < 1.5
    np.testing.assert_allclose(spread[wide], (shown / np.sqrt(np.mean(shown**2)))[wide], rtol=0.1)


def test_eigenvalues_and_densities_are_those_of_the_file(tree):
    ax = eigenvalue_heatmap(tree)
    drawn = np.exp(cells(ax)).reshape(-1, D_HEAD)
    lines = ordered_eigenvalues(tree, heads=[(1, 0)]).lines
    (own,) = [one for one in lines if one.get_label() == "layer 1 head 0"]
    np.testing.assert_allclose(drawn[HEADS], own.get_ydata())
    shown = np.exp(cells(eigenvalue_heatmap(tree, "mean"))).reshape(-1, D_HEAD)[2:]
    values = tree["heads"]["eigenvalue"].values.reshape(-1, D_HEAD)
    held = values[:, -1] > 0
    np.testing.assert_allclose(shown[held], values[held] / values[np.isfinite(values)].mean())
    mesh = mesh_of(eigenvalue_density_heatmap(tree))
    edges = np.log(mesh.get_coordinates()[0, :, 0])
    density = np.exp(np.ma.filled(mesh.get_array(), -np.inf)).reshape(-1, len(edges) - 1)
    share = (density * np.diff(edges)).sum(axis=1)
    zero = tree["heads"]["eigenvalue"].values[..., 0].ravel() == 0
    np.testing.assert_allclose(share, [1.0, 0.0, *np.where(zero, 0.0, 1.0)])


def test_each_layer_stands_beside_the_half_normal_law_and_a_file_has_a_figure_of_each(tree):
    ax = magnitude_heatmap(tree, "mlp_in")
    first = np.nan_to_num(cells(ax), nan=-np.inf).reshape(-1, 2)
    sigma = float(tree["matrices"]["sigma"].sel(layer=0, component="mlp_in"))
    edges = np.linspace(-12.0, 4.0, 161)
    expected = np.diff(2 * stats.norm.cdf(10**edges / sigma) - 1) / 0.1
    np.testing.assert_allclose(np.exp(first[:, 1]), expected, atol=1e-12)
    own = tree["matrices"]["log_magnitude_histogram"].sel(layer=0, component="mlp_in").values
    np.testing.assert_allclose(np.exp(first[:, 0]), own)
    limits = {magnitude_heatmap(tree, name).get_ylim() for name in ("mlp_in", "attention_key")}
    assert len(limits) == 1
    names = figure_names(tree)
    assert {f"{kind}-{k}" for kind in ("head-eigenvalues", "head-eigenvalue-densities") for k in range(LAYERS)} <= {
        *names
    }
    assert {f"{kind}-W_QK" for kind in ("width-and-entropy", "width-and-divergence")} <= {*names}
    pair = figures(tree, names=["by-layer-condition-number"])["by-layer-condition-number"].axes
    assert [ax.get_ylabel().split(" $")[0].replace("\n", " ") for ax in pair] == [
        "condition number",
        "condition number of singular values",
    ]
    grid = figures(tree, names=["head-eigenvalues-2"], width=5.0)["head-eigenvalues-2"]
    assert [ax.get_title() for ax in grid.axes] == [f"head {head}" for head in range(HEADS)]
    assert "layer 2" in grid.get_suptitle()


def test_a_file_s_matrix_gives_the_points_of_its_histogram_and_an_outlier_stands_alone(tree):
    matrix = tree["matrices"].to_dataset().sel(layer=2, component="mlp_out")
    x, y = line(weibull_plot(tree, 2, "mlp_out"), "weights").get_data()
    share = np.cumsum(matrix["log_magnitude_histogram"].values) * 0.1
    rms = float(matrix["sigma"]) * np.hypot(1.0, float(matrix["observed"].sel(statistic="mean")))
    places = np.round((np.log10(x * rms) + 12.0) / 0.1).astype(int)
    np.testing.assert_allclose(-np.expm1(-np.exp(y)), share[places - 1], atol=1e-12)
    fit = dict(zip(*line(weibull_plot(tree, 2, "mlp_out"), "fit").get_data(), strict=True))
    (low, high), (first, last) = np.log(list(fit)), fit.values()
    assert (last - first) / (high - low) == pytest.approx(float(matrix["observed"].sel(statistic="weibull_shape")))
    x, residual = line(weibull_residuals(tree, 2, "mlp_out"), "weights").get_data()
    np.testing.assert_array_equal(x, y)
    assert np.abs(residual[(y > np.log(-np.log(0.9))) & (y < np.log(-np.log(0.1)))]).max() < 0.15
    (figure,) = figures(tree, names=["weibull-plot-mlp_out-2"]).values()
    assert "layer 2, mlp out, 1536 weights" in figure.get_suptitle()
    ax = tail_counts(tree, 2, "mlp_out")
    rms = float(matrix["sigma"]) * np.hypot(1.0, float(matrix["observed"].sel(statistic="mean")))
    x, count = line(ax, "weights").get_data()
    above = 1536 * np.cumsum(matrix["log_magnitude_histogram"].values[::-1])[::-1] * 0.1
    np.testing.assert_allclose(count, above[np.round((np.log10(x * rms) + 12.0) / 0.1).astype(int)], atol=1e-9)
    (largest,) = line(ax, "largest").get_xdata()
    known = float(matrix["observed"].sel(statistic="largest_magnitude")) * float(matrix["sigma"])
    assert largest == pytest.approx(known / rms)
    body_x, body = line(ax, "Weibull law of the body").get_data()
    assert np.interp(largest, body_x, body) < np.interp(2.0, body_x, body)


def test_the_band_of_a_matrix_s_statistic_is_its_null_s_and_the_plane_holds_every_matrix(tree):
    ax = matrix_statistic_by_layer(tree)
    one = tree["matrices"].to_dataset().sel(statistic="weibull_shape", component="mlp_in")
    middle, half = one["null_mean"].values[0], 1.96 * one["null_std"].values[0]
    drawn = [(patch.get_y(), patch.get_height()) for patch in ax.patches]
    assert any(ends == pytest.approx((middle - half, 2 * half)) for ends in drawn)
    np.testing.assert_allclose(line(ax, "mlp in").get_ydata(), one["observed"].values)
    ax = weibull_plane(tree)
    matrices = tree["matrices"].to_dataset().sel(component="attention_output")
    k, ratio, mean = (matrices["observed"].sel(statistic=n).values for n in ("weibull_shape", "weibull_scale", "mean"))
    x, y = line(ax, "attention output").get_data()
    np.testing.assert_allclose(x, k)
    np.testing.assert_allclose(y, ratio * matrices["sigma"].values * np.hypot(1.0, mean))


@pytest.mark.parametrize("statistic", ["kl_matched_normal", "entropy_residual", "weibull_shape"])
def test_elements_of_heads_stand_by_layer_before_the_band_of_their_null(statistic, tree):
    ax = statistic_by_layer(tree, statistic, group="elements", component="W_Q")
    one = tree["heads"]["elements"].to_dataset().sel(element_statistic=statistic, component="W_Q")
    (band,) = [patch for patch in ax.patches if patch.get_label() == "null, 95 % of heads"]
    middle, half = float(one["null_mean"][0, 0]), 1.96 * float(one["null_std"][0, 0])
    assert (band.get_y(), band.get_height()) == pytest.approx((middle - half, 2 * half))
    drawn = [y for q in ("<", "≥") for y in line(ax, f"head, q {q} 0.05").get_ydata() if np.isfinite(y)]
    np.testing.assert_allclose(sorted(drawn), np.sort(one["observed"].values[one["observed"].notnull().values]))


def test_width_stands_beside_that_of_the_core_entropy_or_divergence(tree):
    ax = statistic_by_layer(tree, "sigma", group="elements")
    one = tree["heads"]["elements"].to_dataset().sel(component="W_QK")
    core = (one["sigma"] * one["observed"].sel(element_statistic="core_sigma")).values.ravel()
    np.testing.assert_allclose(line(ax, r"$\sigma_\mathrm{fit}$ of its core").get_ydata(), core)
    assert not ax.patches
    ax = width_by_layer(tree, "entropy", "W_Q")
    elements = tree["heads/elements"].to_dataset().sel(component="W_Q")
    width, entropy = (line(ax, name).get_ydata() for name in (r"$\sigma$", "entropy"))
    sigma = elements["sigma"].values.ravel()
    np.testing.assert_allclose(width[sigma > 0], sigma[sigma > 0])
    assert np.isnan(width[sigma == 0]).all()  # of zeros, which have no place on this axis
    residual = elements["observed"].sel(element_statistic="entropy_residual").values.ravel()
    np.testing.assert_allclose(np.log(entropy / width), residual, atol=1e-12)
    ax.figure.draw_without_rendering()
    (right,) = ax.child_axes
    np.testing.assert_allclose(right.get_ylim(), UNIT + np.log(ax.get_ylim()))
    ax = width_by_layer(tree, "kl_matched_normal", "W_QK")
    elements = tree["heads/elements"].to_dataset().sel(component="W_QK")
    of = {name: elements["observed"].sel(element_statistic=name).values for name in ("core_sigma", "kl_matched_normal")}
    np.testing.assert_allclose(line(ax, "core").get_ydata(), (of["core_sigma"] * elements["sigma"].values).ravel())
    right = ax.figure.axes[-1]
    assert right is not ax
    np.testing.assert_allclose(right.lines[0].get_ydata(), of["kl_matched_normal"].ravel())


def test_ticks_do_not_touch_and_a_statistic_over_nothing_is_drawn_as_it_is(tree):
    elements = tree["heads"]["elements"].to_dataset()
    far = elements.assign(observed=elements["observed"] * 3e4)
    ax = statistic_by_layer(far, "skewness", group="elements", component="W_Q")
    assert ax.get_yscale() == "symlog"
    ax.figure.draw_without_rendering()
    low, high = ax.get_ylim()
    names = [one for one in ax.get_yticklabels() if one.get_text() and low <= one.get_position()[1] <= high]
    boxes = sorted((one.get_window_extent() for one in names), key=lambda box: box.y0)
    assert len(boxes) >= 3
    assert all(below.y1 < above.y0 for below, above in pairwise(boxes))
    ax = statistic_by_layer(tree, "largest_eigenvalue", over="nothing")
    of_one = tree["heads"].to_dataset().sel(statistic="largest_eigenvalue")
    value = of_one["observed"].values[of_one["q_value"].notnull().values]
    drawn = np.concatenate([one.get_ydata() for one in ax.lines if "head, q" in str(one.get_label())])
    np.testing.assert_allclose(np.sort(drawn), np.sort(value))
    assert "null mean" not in ax.get_ylabel()


def test_scatters_keep_to_pearson_s_bound_and_the_normal_law_and_colour_layers(tree):
    ax = statistic_scatter(tree, "skewness", "excess_kurtosis", component="W_Q")
    skewness, kurtosis = line(ax, "observed").get_data()
    table = tree["heads/elements"].to_dataset().sel(component="W_Q")["observed"]
    np.testing.assert_array_equal(skewness, table.sel(element_statistic="skewness").values.ravel())
    x, bound = line(ax, "Pearson's bound").get_data()
    np.testing.assert_allclose(bound, laws.pearson_bound(x) - 3.0)
    held = np.isfinite(kurtosis)
    assert (kurtosis[held] >= np.interp(skewness[held], x, bound) - 1e-9).all()
    assert ax.get_ylim()[0] <= -2.0
    assert sum(one.get_label() == "null, mean and 95 %" for one in ax.lines) == 1
    (figure,) = figures(tree, names=["scatter-participation-entropy"]).values()
    ax = figure.axes[0]
    (marks,) = [one for one in ax.collections if isinstance(one, PathCollection)]
    colours = marks.get_facecolors().reshape(LAYERS, HEADS, 4)
    assert (colours == colours[:, :1]).all()
    assert len({tuple(one) for one in colours[:, 0]}) == LAYERS
    assert figure.axes[-1].get_ylabel() == "layer"
    drawn = line(statistic_scatter(tree, "sigma", "entropy", component="W_Q"), "observed")
    x, y = (np.asarray(one) for one in drawn.get_data())
    elements = tree["heads/elements"].to_dataset().sel(component="W_Q", element_statistic="entropy_residual")
    residual = elements["observed"].values.ravel()
    np.testing.assert_allclose(y[x > 0] - np.log(x[x > 0]) - UNIT, residual[x > 0], atol=1e-12)
    assert np.isnan(y[x == 0]).all()


def test_properties_of_elements_follow_their_size():
    stored = open_table(Path(__file__).parents[1] / "data" / "elements.nc")
    table = stored.isel(case=[0, 0]).assign(d_head=("case", [6, 2]), d_model=("case", [24, 24]))
    ax = element_property(table, "histogram_kl")
    np.testing.assert_allclose(ax.containers[0].lines[0].get_ydata(), table["mean"].sel(statistic="histogram_kl"))
    np.testing.assert_array_equal(ax.containers[0].lines[0].get_xdata(), [2, 6])
    assert list(figures(table, names=["element-properties"])) == ["element-properties"]
    assert list(figures(table.isel(case=[0]), names=["element-properties"])) == []


@pytest.mark.exhaustive
def test_heavy_figures_are_drawn_on_request_alone(tree):
    names = figure_names(tree)
    assert list(figures(tree)) == [name for name, standard in names.items() if standard]
    assert "weibull-by-layer" in [name for name, standard in names.items() if standard]
    drawn = figures(tree, names=["head-densities-W_V-?", "weibull-plane", "moment-corner", "no such"], width=3.4)
    assert list(drawn) == [
        "weibull-plane",
        "moment-corner",
        *(f"head-densities-W_V-{layer}" for layer in range(LAYERS)),
    ]
    assert len(drawn["moment-corner"].axes) == 10


STYLE = figure_style("light", None)
UNIT = 0.5 * np.log(2 * np.pi * np.e)


def test_eigenvalues_of_a_head_stand_at_their_ranks_before_the_null_at_its_scale(tree):
    drawn = [head_eigenvalues(tree, 1, head) for head in range(HEADS)]
    for head, ax in enumerate(drawn):
        own = line(ax, "eigenvalues")
        np.testing.assert_allclose(own.get_ydata(), tree["heads/eigenvalue"].sel(layer=1, head=head))
        np.testing.assert_array_equal(own.get_xdata(), np.arange(1, D_HEAD + 1))
    assert len({ax.get_ylim() for ax in drawn}) == 1
    heads, null = tree["heads"].to_dataset(), tree["null"].to_dataset()
    scale = float((heads["sigma_q"] * heads["sigma_k"]).sel(layer=2, head=1)) ** 2
    (band,) = head_eigenvalues(tree, 2, 1).collections
    low, high = (null["eigenvalue_quantile"].sel(probability=level).values * scale for level in (0.01, 0.99))
    heights = band.get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == pytest.approx((low.min(), high.max()))
    for layer, head in ((1, 0), (2, 2)):
        observed, null = (one.get_data() for one in head_eigenvalue_density(tree, layer, head).patches)
        np.testing.assert_array_equal(observed.edges, null.edges)
        width = np.diff(np.log(observed.edges))
        assert observed.values @ width == pytest.approx(1.0)
        assert null.values @ width == pytest.approx(1.0)
    drawn = line(head_eigenvalues(tree, *ZERO), "eigenvalues").get_ydata()
    assert np.isnan(drawn).all()


@pytest.mark.parametrize(("convention", "identity", "power"), [("eigenvalue", 1, 2), ("singular value", 2, 2)])
def test_the_sum_that_is_an_identity_lies_on_its_line(tree, convention, identity, power):
    ax = spectrum_and_width(tree, convention, STYLE).axes[identity]
    heads = line(ax, "heads")
    np.testing.assert_allclose(heads.get_ydata(), (D_MODEL * np.asarray(heads.get_xdata())) ** power)
    assert np.asarray(heads.get_xdata()).size == LAYERS * HEADS - 1  # but for the one of zeros
