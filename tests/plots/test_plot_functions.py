"""Figures of scores and baselines: what is drawn is what the file holds, names cover no point, and noise is pale."""

import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from drawn_parts import bands, cells, hatched, line, mesh_of
from matplotlib.colors import to_hex
from scipy import stats
from scored_model import D_HEAD, D_MODEL, HEADS, LAYERS, PLANTED, ZERO

import rmtbase
from rmtbase import laws
from rmtbase.drawing.color_scales import Q_LEVELS, Z_LEVELS
from rmtbase.drawing.null_curves import null_spectrum
from rmtbase.drawing.theme import LIGHT
from rmtbase.nulls import Table
from rmtbase.results.composition import composition
from rmtbase.results.composition.figures import composition_heatmap
from rmtbase.results.figures import figure_names, figures
from rmtbase.results.scores import render, summarize_scores
from rmtbase.results.scores._how_much import farthest_distance
from rmtbase.results.scores.figures._eigenvalues import eigenvalue_heatmap, ordered_eigenvalues
from rmtbase.results.scores.figures._heatmaps import (
    flagged_by_statistic,
    matrix_z_heatmap,
    moved_share_heatmap,
    omnibus_heatmap,
    p_value_qq,
    z_heatmap,
)
from rmtbase.results.scores.figures._statistic_by_layer import statistic_by_layer

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scoring"))  # models are made there
from made_models import layers, model_of


@pytest.mark.parametrize("case", range(4))
def test_the_free_edges_stand_where_the_table_says(case, baseline):
    ax = null_spectrum(baseline, case)
    row = baseline.isel(case=case)
    vertical = sorted(one.get_xdata()[0] for one in ax.lines if one.get_xdata()[0] == one.get_xdata()[-1])
    assert vertical == [float(row["edge_lower"]), float(row["edge_upper"])]


def test_the_histogram_is_a_density_beside_exact_laws_and_its_legend_lies_off_the_data(baseline):
    row, ax = baseline.isel(case=0), null_spectrum(baseline)
    values, edges, _ = ax.patches[0].get_data()
    assert np.sum(values * np.diff(edges)) == pytest.approx(1.0)
    held = edges[np.flatnonzero(values > 0)]
    left, right = ax.get_xlim()
    assert left <= held.min() and held.max() <= right and ax.get_ylim()[1] > values.max()
    (bars,) = [one for one in ax.collections if hasattr(one, "get_segments")]
    length = [segment[1][1] - segment[0][1] for segment in bars.get_segments()]
    errors = row["density_standard_error"].values[row["density"].values > 0]
    np.testing.assert_allclose(length, 2 * errors, rtol=1e-9)
    law = laws.low_rank_product(d_model=D_MODEL, d_head=D_HEAD, normalization="sqrt_d")
    x, y = line(ax, "free-product law").get_data()
    np.testing.assert_allclose((x[0], x[-1]), law.support)
    np.testing.assert_allclose((x[0], x[-1]), (row["edge_lower"], row["edge_upper"]))
    np.testing.assert_allclose(y, law.pdf(x))
    assert x.size == 500
    assert np.trapezoid(y, x) == pytest.approx(1.0, abs=1e-4)
    naive, naive_y = line(ax, "Marchenko–Pastur (one factor)").get_data()
    assert np.ptp(naive[naive_y > 0]) < np.ptp(x[y > 0])
    assert "(dimensionless)" in ax.get_xlabel()
    assert ax.get_ylabel() == r"density of $\lambda$"
    for plot in (null_spectrum, ordered_eigenvalues):
        ax = plot(baseline)
        ax.get_figure().draw_without_rendering()
        assert ax.get_legend().get_window_extent().y1 < ax.get_window_extent().y0


@pytest.fixture(scope="module")
def extreme():
    """Nulls of a square and of one direction."""
    return rmtbase.baseline([8, 16], [8, 1], draws=200)


def test_a_null_that_begins_at_zero_or_has_one_direction_is_seen(extreme, baseline):
    ax = null_spectrum(extreme, 0)
    assert (ax.get_yscale(), null_spectrum(baseline).get_yscale()) == ("log", "linear")
    density = extreme["density"].isel(case=0).values
    low, high = ax.get_ylim()
    assert low < density[density > 0].min()
    assert density.max() < high
    assert "edges, 0 and " in line(ax, "edges").get_label()
    ax = ordered_eigenvalues(extreme, case=1)
    for band in bands(ax).values():
        assert np.ptp(band.get_paths()[0].vertices[:, 0]) == pytest.approx(0.8)
    ax.get_figure().draw_without_rendering()
    assert [tick for tick in ax.get_xticks() if ax.get_xlim()[0] <= tick <= ax.get_xlim()[1]] == [1]


def test_the_bands_are_the_table_s_quantiles_and_the_null_of_scores_is_the_table_at_unit_sigma(baseline, learned):
    ax = ordered_eigenvalues(baseline, case=2)
    quantile = baseline["eigenvalue_quantile"].isel(case=2, index=slice(0, 6))
    outer, inner = bands(ax)["null, 1–99 %"], bands(ax)["null, 16–84 %"]
    relative = quantile / quantile.sel(probability=0.5)
    for band, levels in ((outer, (0.01, 0.99)), (inner, (0.16, 0.84))):
        y = band.get_paths()[0].vertices[:, 1]
        assert y.min() == pytest.approx(float(relative.sel(probability=levels[0]).min()))
        assert y.max() == pytest.approx(float(relative.sel(probability=levels[1]).max()))
    np.testing.assert_array_equal(line(ax, "median").get_ydata(), np.ones(6))
    np.testing.assert_array_equal(line(ax, "median").get_xdata(), np.arange(1, 7))
    of_scores, of_table = null_spectrum(learned), null_spectrum(baseline)
    unit = D_MODEL  # the table is per d_model, the scores' null is of the raw product
    for label in ("free-product law", "Marchenko–Pastur (one factor)"):
        np.testing.assert_allclose(
            line(of_scores, label).get_ydata() * unit, line(of_table, label).get_ydata(), rtol=1e-9
        )


def test_a_head_is_drawn_at_its_own_scale_and_the_farthest_is_chosen(learned):
    ax = ordered_eigenvalues(learned, heads=[(1, 0), (2, 3)])
    head = learned["heads"].to_dataset().sel(layer=1, head=0)
    median = learned["null"]["eigenvalue_quantile"].sel(probability=0.5).values
    expected = head["eigenvalue"].values / float(head["sigma_q"] * head["sigma_k"]) ** 2 / median
    np.testing.assert_allclose(line(ax, "layer 1 head 0").get_ydata(), expected)
    assert len(line(ax, "layer 2 head 3").get_ydata()) == D_HEAD
    planted = line(ordered_eigenvalues(learned, heads=[PLANTED[0]]), "layer 1 head 0").get_ydata()[0]
    assert planted > bands(ax)["null, 1–99 %"].get_paths()[0].vertices[:, 1].max()
    labels = [one.get_label() for one in ordered_eigenvalues(learned).lines]
    z = np.abs(farthest_distance(learned["heads"].to_dataset()))
    assert np.isnan(z[ZERO])
    farthest = np.unravel_index(np.nanargmax(z), z.shape)
    assert farthest in PLANTED
    assert f"layer {farthest[0]} head {farthest[1]} (farthest)" in labels
    assert not any(f"layer {ZERO[0]} head {ZERO[1]}" in label for label in labels)


def test_every_scored_head_is_a_point_and_the_band_is_the_null_s(learned):
    ax = statistic_by_layer(learned)
    heads = learned["heads"].to_dataset().sel(statistic="normalized_participation_ratio")
    flagged = heads["q_value"].values < 0.05
    drawn = line(ax, "q < 0.05")
    np.testing.assert_array_equal(drawn.get_ydata(), heads["observed"].values[flagged])
    assert drawn.get_markerfacecolor() == LIGHT.flagged
    others = line(ax, "q ≥ 0.05")
    assert others.get_markerfacecolor() == "none"
    assert np.isfinite(others.get_ydata()).sum() + flagged.sum() == LAYERS * HEADS - 1
    cross = line(ax, "not testable")  # the head of zeros, at the foot
    assert cross.get_xdata().size == 1
    x = np.concatenate([one.get_xdata() for one in (drawn, others, cross)])
    assert sorted(np.round(x)) == sorted(np.repeat(np.arange(LAYERS), HEADS))
    heads = learned["heads"].to_dataset().sel(statistic="normalized_participation_ratio", layer=1, head=0)
    np.testing.assert_allclose(band_of(ax), heads["null_quantile"].sel(probability=[0.005, 0.995]))
    low, high = ax.get_ylim()
    assert low < band_of(ax)[0] and band_of(ax)[1] < high
    (medians,) = [one for one in ax.collections if "median of" in one.get_label()]
    observed = learned["heads"]["observed"].sel(statistic="normalized_participation_ratio")
    ends = [segment[0][1] for segment in medians.get_segments()]
    np.testing.assert_allclose(ends, observed.median("head", skipna=True))  # without the head that was not scored


@pytest.mark.parametrize(
    ("statistic", "words"),
    [("stable_rank", "stable rank"), ("largest_eigenvalue", "/ null mean"), ("log_determinant", "− null mean")],
)
def test_the_band_holds_random_heads_and_the_axis_names_the_scale(statistic, words, scores):
    ax = statistic_by_layer(scores["random"], statistic)
    low, high = band_of(ax)
    values = line(ax, "q ≥ 0.05").get_ydata()
    # 12 random heads in a 99 % band: all but at most one, except with probability 0.006; the seed is fixed.
    assert ((values >= low) & (values <= high)).sum() >= values.size - 1
    assert low < line(ax, "median").get_ydata()[0] < high
    assert words in " ".join(ax.get_ylabel().split())


def band_of(ax):
    corners = ax.patches[0].get_corners()[:, 1]
    return corners.min(), corners.max()


def test_heads_far_below_a_narrow_band_have_an_axis_that_shows_both(learned):
    far = learned.copy()
    heads = learned["heads"].to_dataset().copy(deep=True)
    heads["observed"].loc[{"statistic": "log_determinant", "layer": 1}] -= 1e3
    far["heads"] = heads
    assert statistic_by_layer(far, "log_determinant").get_yscale() == "symlog"
    assert statistic_by_layer(learned, "normalized_participation_ratio").get_yscale() == "linear"


def test_scores_of_plain_arrays_are_one_layer(baseline):
    rng = np.random.default_rng(0)
    dataset = rmtbase.score_heads(*rng.standard_normal((2, 5, D_HEAD, D_MODEL)), Table(baseline))
    for plot in (statistic_by_layer, z_heatmap, p_value_qq):
        assert plot(dataset).get_ylabel()
    assert z_heatmap(dataset, legend=False).get_ylim() == (0.5, -0.5)


def test_cells_are_z_with_layer_0_on_top_and_q_in_colours_of_their_levels(learned):
    ax = z_heatmap(learned, "stable_rank")
    z = learned["heads"]["z_score"].sel(statistic="stable_rank").values
    np.testing.assert_array_equal(cells(ax), z)
    assert np.isnan(cells(ax)[ZERO])
    assert ax.get_ylim() == (LAYERS - 0.5, -0.5)
    bar = ax.get_figure().axes[1]
    texts = [text.get_text() for text in bar.get_yticklabels()]
    assert texts == [f"−{z:g}" for z in reversed(Z_LEVELS)] + [f"{z:g}" for z in Z_LEVELS]
    assert "standard deviations" in bar.get_ylabel()
    places = {0.0: 7, 1.96: 7, -1.96: 7, 2.5: 8, -2.5: 6, 299: 13, 301: 14, 1e9: 14, -1e9: 0}
    for value, place in places.items():
        assert to_hex(mesh_of(ax).cmap(mesh_of(ax).norm(value))) == LIGHT.diverging[place]
    ax = omnibus_heatmap(learned)
    q = learned["heads"]["omnibus_q_value"].values
    mesh, dots = mesh_of(ax), line(ax, "q < 0.05")
    np.testing.assert_allclose(cells(ax), -np.log10(q))
    assert set(zip(dots.get_ydata(), dots.get_xdata(), strict=True)) == set(zip(*np.nonzero(q < 0.05), strict=True))
    places = {0.5: 7, 0.03: 9, 0.005: 11, 5e-4: 12, 5e-5: 14, 0.0: 14}
    for value, place in places.items():
        with np.errstate(divide="ignore"):
            assert to_hex(mesh.cmap(mesh.norm(-np.log10(value)))) == LIGHT.diverging[place]
    texts = [text.get_text() for text in ax.get_figure().axes[1].get_yticklabels()]
    assert texts == [f"{one:g}" for one in Q_LEVELS]


def test_the_farthest_statistic_is_on_its_scale_and_heads_flagged_are_counted(learned):
    ax = z_heatmap(learned, "largest_eigenvalue")
    assert r"of $\ln\,\lambda_1$" in ax.get_title()
    heads = learned["heads"].to_dataset()
    drawn = np.abs(cells(ax))
    chosen = heads["farthest_statistic"].values == "largest_eigenvalue"
    np.testing.assert_array_equal(drawn[chosen], np.abs(farthest_distance(heads))[chosen])
    for finding in summarize_scores(learned).findings:
        assert abs(farthest_distance(heads)[finding.layer, finding.head]) == pytest.approx(finding.distance)
    heads = learned["heads"].to_dataset().copy(deep=True)
    heads["z_score"][:] = heads["observed"][:] = np.nan
    assert "largest $|z|" not in z_heatmap(heads).get_title()
    ax = flagged_by_statistic(learned)
    flagged = summarize_scores(learned).flagged
    counts = [int(text.get_text()) for text in ax.texts]
    assert counts == sorted(flagged.values(), reverse=True)
    assert [bar.get_width() for bar in ax.containers[1]] == counts
    ax = matrix_z_heatmap(learned, "skewness")
    components = learned["matrices"]["component"].values
    assert [text.get_text().replace("\n", "_") for text in ax.get_xticklabels()] == list(components)
    np.testing.assert_array_equal(
        mesh_of(ax).get_array(), learned["matrices"]["z_score"].sel(statistic="skewness").values
    )


@pytest.mark.parametrize("plot", [omnibus_heatmap, z_heatmap])
def test_a_head_that_cannot_be_tested_is_hatched_and_the_title_says_so(plot, learned, scores):
    ax = plot(learned)
    assert hatched(ax) == {ZERO}
    assert np.argwhere(np.isnan(cells(ax))).tolist() == [[*ZERO]]  # and no colour of the scale
    assert "hatched: not testable" in " ".join(ax.get_title().split())
    bare = learned["heads"].to_dataset().drop_isel(layer=ZERO[0])
    assert "hatched" not in plot(bare).get_title()


def test_the_p_value_band_is_that_of_ordered_uniforms_also_of_one_head_and_the_floors_those_of_the_draws(learned):
    ax = p_value_qq(learned)
    n = LAYERS * HEADS - 1
    i = np.arange(1, n + 1)
    path = bands(ax)["null, 95 % at each rank"].get_paths()[0].vertices
    assert path[:, 1].max() == pytest.approx(-np.log10(stats.beta(1, n).ppf(0.025)))
    assert path[:, 1].min() == pytest.approx(-np.log10(stats.beta(n, 1).ppf(0.975)))
    np.testing.assert_allclose(line(ax, "expected").get_xdata(), -np.log10(i / (n + 1)))
    assert line(ax, "floor of one statistic").get_ydata()[0] == pytest.approx(-np.log10(2 / 2001))
    assert line(ax, "floor of all together").get_ydata()[0] == pytest.approx(-np.log10(1 / 2001))
    assert line(ax, "floor of one").get_label() == "floor of one statistic, 0.001"
    tree = learned.copy()
    tree["heads"] = learned["heads"].to_dataset().isel(layer=[0], head=[0])
    ax = p_value_qq(tree)
    (band,) = bands(ax).values()
    assert band.get_linewidth()[0] > 5
    assert line(ax, "expected").get_marker() == "_"
    assert ax.get_title() == "p-values of 1 head"


def test_random_p_values_stay_in_the_band_and_learned_ones_leave_it(scores):
    def below_band(tree):
        p = np.sort(line(p_value_qq(tree), "all statistics together").get_ydata())[::-1]
        n = p.size
        i = np.arange(1, n + 1)
        # Simultaneous over the ranks: each at 1e-4, all at about 1e-3; the seed is fixed.
        return (p > -np.log10(stats.beta(i, n + 1 - i).ppf(1e-4))).any()

    assert not below_band(scores["random"])
    assert below_band(scores["learned"])


def test_an_analytic_null_has_no_draws_to_show_and_a_floor_where_a_head_lies_on_it(analytic):
    ax = null_spectrum(analytic["learned"])
    labels = [one.get_label() for one in (*ax.lines, *ax.patches, *ax.containers)]
    assert "free-product law" in labels
    assert not any("Monte Carlo" in label or "error" in label for label in labels)
    assert len(ax.lines) == 4  # the law, the naive law, and the two edges
    null = analytic["learned"]["null"].to_dataset()
    density, edges = null["density_free"].values, null["bin_edge"].values
    x, y = line(ax, "free-product law").get_data()
    below = np.concatenate([[0.0], np.cumsum(0.5 * (y[1:] + y[:-1]) * np.diff(x))])
    np.testing.assert_allclose(np.diff(np.interp(edges, x, below)) / np.diff(edges), density, atol=2e-3 * density.max())
    assert ax.get_ylim()[1] > density.max()
    assert line(p_value_qq(analytic["learned"]), r"floor $1 \times 10^{-16}$").get_ydata()[0] == pytest.approx(16.0)
    lines = p_value_qq(analytic["random"]).lines
    assert not [one for one in lines if "floor" in one.get_label()]
    assert all(np.isfinite(one.get_ydata()).all() for one in lines)


@pytest.mark.parametrize("plot", [statistic_by_layer, z_heatmap, p_value_qq])
def test_a_statistic_without_a_null_leaves_an_empty_picture(plot):
    rng = np.random.default_rng(1)
    scores = rmtbase.score_heads(*rng.standard_normal((2, 5, 16, 20)), "analytic")
    heads = scores["heads"].to_dataset()
    absent = heads["statistic"].isin(["smallest_eigenvalue", "condition_number", "condition_number_singular"])
    for name in ("null_mean", "null_std", "null_quantile", "z_score", "p_value", "q_value"):
        heads[name] = heads[name].where(~absent)
    scores["heads"] = xr.DataTree(heads)
    drawn = plot(scores) if plot is p_value_qq else plot(scores, "condition_number")
    drawn.get_figure().draw_without_rendering()
    assert "smallest eigenvalue" not in [one.get_label() for one in drawn.lines]


def test_heads_with_nulls_of_their_own_stand_before_bands_and_bars_of_their_own(resampled):
    ax = ordered_eigenvalues(resampled, heads=[(0, 1), (1, 0)])
    quantile = resampled["null"]["eigenvalue_quantile"]
    own = quantile.sel(layer=1, head=0)
    lower, upper = (own.sel(probability=level) / own.sel(probability=0.5) for level in (0.01, 0.99))
    drawn = ax.collections[1].get_paths()[0].vertices[:, 1]
    assert drawn.min() == pytest.approx(lower.min().item())
    assert drawn.max() == pytest.approx(upper.max().item())
    assert len(ax.collections) == 2
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "the head's null, 1–99 %",
        "layer 0 head 1",
        "layer 1 head 0",
    ]
    ax = statistic_by_layer(resampled, "stable_rank")
    (bars,) = [one for one in ax.collections if one.get_label() == "each head's null, 99 %"]
    ends = np.array([segment[:, 1] for segment in bars.get_segments()])
    quantile = resampled["heads"]["null_quantile"].sel(statistic="stable_rank", probability=[0.005, 0.995]).values
    np.testing.assert_allclose(ends, quantile.reshape(-1, 2)[np.isfinite(quantile.reshape(-1, 2)).all(axis=1)])
    assert "null, 99 % of heads" not in [one.get_label() for one in ax.patches]
    assert line(p_value_qq(resampled), "floor of one").get_ydata()[0] == pytest.approx(-np.log10(2 / 500))


def test_a_baseline_s_panels_show_every_case_and_full_rank_above_them(baseline):
    figure = figures(baseline, names=["baseline"])["baseline"]
    elements, ranks, densities = figure.axes
    for ax in figure.axes:
        named = [one for one in ax.lines if not one.get_label().startswith("_")]
        assert len(named) == baseline.sizes["case"]
    for case, law_line in enumerate(elements.lines):
        row = baseline.isel(case=case)
        facts = {name: row[name].item() for name in ("d_model", "d_head", "sigma_q", "sigma_k")}
        law = laws.product_element(**facts, normalization=baseline.attrs["normalization"])
        np.testing.assert_allclose(law_line.get_ydata(), law.pdf(law_line.get_xdata()))
    np.testing.assert_allclose(ranks.lines[0].get_ydata(), baseline["eigenvalue_mean"].values[0, :D_HEAD])
    for curve in densities.lines:  # per unit of ln λ, as scales lie far apart
        assert np.trapezoid(curve.get_ydata(), np.log(curve.get_xdata())) == pytest.approx(1.0, abs=1e-3)
    figure = figures(baseline, names=["baseline-full-rank"])["baseline-full-rank"]
    elements, ranks, densities = figure.axes[:3]
    assert len(figure.axes) == 6
    for case in range(baseline.sizes["case"]):
        row = baseline.isel(case=case)
        width, variance = int(row["d_model"]), float(row["sigma_q"] * row["sigma_k"])
        x, y = elements.lines[case].get_data()
        np.testing.assert_allclose(y, stats.norm(scale=(variance / width) ** 0.5).pdf(x))
        x, y = densities.lines[case].get_data()
        exact = np.sqrt(np.fmax(4 * variance / x - 1, 0)) / (
            2 * np.pi * variance
        )  # Marchenko and Pastur (1967), square
        np.testing.assert_allclose(y[:-1], (x * exact)[:-1], rtol=1e-6, atol=1e-9)
        values = np.interp(np.arange(1, width + 1), *ranks.lines[case].get_data())
        assert values.mean() == pytest.approx(variance, rel=0.01)


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


def test_maps_of_a_model_that_learned_nothing_are_pale_at_any_shape(scores):
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
    # At d_head 4 random heads have more than 8 %, which elsewhere is the third colour.
    tree = rmtbase.score(model_of(np.random.default_rng(4), layers(3), heads=8, d_head=4, d_model=16))
    shares = 100 * tree["heads"]["moved_share"].values
    assert np.median(shares) > 4.0
    steps = strongest(mesh_of(moved_share_heatmap(tree)), tuple(LIGHT.sequential))
    assert (steps == 0).mean() > 0.9
