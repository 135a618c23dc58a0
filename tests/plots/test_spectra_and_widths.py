"""Spectra of single heads, widths by layer, statistics against width: what is drawn is what the file holds."""

import numpy as np
import pytest
from drawn_parts import line
from matplotlib.collections import PathCollection
from scored_model import D_HEAD, D_MODEL, HEADS, LAYERS, ZERO

from rmtbase.drawing.layout import figure_style
from rmtbase.results.figures import figure_names, figures
from rmtbase.results.scores.figures._eigenvalues import head_eigenvalue_density, head_eigenvalues
from rmtbase.results.scores.figures._element_histograms import head_density
from rmtbase.results.scores.figures._statistic_by_layer import statistic_by_layer, width_by_layer
from rmtbase.results.scores.figures._statistic_scatter import spectrum_and_width, statistic_scatter

STYLE = figure_style("light", None)
UNIT = 0.5 * np.log(2 * np.pi * np.e)


@pytest.fixture
def tree(with_elements):
    return with_elements["learned"]


def test_eigenvalues_of_a_head_stand_at_their_ranks_on_axes_that_the_layer_shares(tree):
    drawn = [head_eigenvalues(tree, 1, head) for head in range(HEADS)]
    for head, ax in enumerate(drawn):
        own = line(ax, "eigenvalues")
        np.testing.assert_allclose(own.get_ydata(), tree["heads/eigenvalue"].sel(layer=1, head=head))
        np.testing.assert_array_equal(own.get_xdata(), np.arange(1, D_HEAD + 1))
    assert len({ax.get_ylim() for ax in drawn}) == 1


def test_the_null_of_a_head_is_at_its_own_scale(tree):
    heads, null = tree["heads"].to_dataset(), tree["null"].to_dataset()
    scale = float((heads["sigma_q"] * heads["sigma_k"]).sel(layer=2, head=1)) ** 2
    (band,) = head_eigenvalues(tree, 2, 1).collections
    low, high = (null["eigenvalue_quantile"].sel(probability=level).values * scale for level in (0.01, 0.99))
    heights = band.get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == pytest.approx((low.min(), high.max()))


def test_the_density_of_a_head_and_of_its_null_hold_all_eigenvalues_in_the_same_bins(tree):
    for layer, head in ((1, 0), (2, 2)):
        observed, null = (one.get_data() for one in head_eigenvalue_density(tree, layer, head).patches)
        np.testing.assert_array_equal(observed.edges, null.edges)
        width = np.diff(np.log(observed.edges))
        assert observed.values @ width == pytest.approx(1.0)
        assert null.values @ width == pytest.approx(1.0)


def test_a_head_of_zeros_has_nothing_to_be_drawn(tree):
    drawn = line(head_eigenvalues(tree, *ZERO), "eigenvalues").get_ydata()
    assert np.isnan(drawn).all()


def test_width_and_entropy_are_one_axis_in_two_units(tree):
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


def test_width_and_divergence_have_an_axis_each(tree):
    ax = width_by_layer(tree, "kl_matched_normal", "W_QK")
    elements = tree["heads/elements"].to_dataset().sel(component="W_QK")
    of = {name: elements["observed"].sel(element_statistic=name).values for name in ("core_sigma", "kl_matched_normal")}
    np.testing.assert_allclose(line(ax, "core").get_ydata(), (of["core_sigma"] * elements["sigma"].values).ravel())
    right = ax.figure.axes[-1]
    assert right is not ax
    np.testing.assert_allclose(right.lines[0].get_ydata(), of["kl_matched_normal"].ravel())


@pytest.mark.parametrize(("convention", "identity", "power"), [("eigenvalue", 1, 2), ("singular value", 2, 2)])
def test_the_sum_that_is_an_identity_lies_on_its_line(tree, convention, identity, power):
    ax = spectrum_and_width(tree, convention, STYLE).axes[identity]
    heads = line(ax, "heads")
    np.testing.assert_allclose(heads.get_ydata(), (D_MODEL * np.asarray(heads.get_xdata())) ** power)
    assert np.asarray(heads.get_xdata()).size == LAYERS * HEADS - 1  # but for the one of zeros


def test_a_head_is_in_the_band_of_its_width_where_it_is_in_that_of_its_shape(with_elements):
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


def test_a_statistic_over_nothing_is_drawn_as_it_is(tree):
    ax = statistic_by_layer(tree, "largest_eigenvalue", over="nothing")
    of_one = tree["heads"].to_dataset().sel(statistic="largest_eigenvalue")
    value = of_one["observed"].values[of_one["q_value"].notnull().values]
    drawn = np.concatenate([one.get_ydata() for one in ax.lines if "head, q" in str(one.get_label())])
    np.testing.assert_allclose(np.sort(drawn), np.sort(value))
    assert "null mean" not in ax.get_ylabel()


def test_marks_have_the_colour_of_their_layer(tree):
    (figure,) = figures(tree, names=["scatter-participation-entropy"]).values()
    ax = figure.axes[0]
    (marks,) = [one for one in ax.collections if isinstance(one, PathCollection)]
    colours = marks.get_facecolors().reshape(LAYERS, HEADS, 4)
    assert (colours == colours[:, :1]).all()
    assert len({tuple(one) for one in colours[:, 0]}) == LAYERS
    assert figure.axes[-1].get_ylabel() == "layer"


def test_entropy_against_width_lies_under_the_normal_law(tree):
    drawn = line(statistic_scatter(tree, "sigma", "entropy", component="W_Q"), "observed")
    x, y = (np.asarray(one) for one in drawn.get_data())
    elements = tree["heads/elements"].to_dataset().sel(component="W_Q", element_statistic="entropy_residual")
    residual = elements["observed"].values.ravel()
    np.testing.assert_allclose(y[x > 0] - np.log(x[x > 0]) - UNIT, residual[x > 0], atol=1e-12)
    assert np.isnan(y[x == 0]).all()


def test_elements_in_their_own_unit_are_as_wide_as_sigma(tree):
    elements = tree["heads/elements"].to_dataset().sel(component="W_Q", layer=1)
    for head in range(2):
        ax = head_density(tree, 1, head, "W_Q", "weights")
        heights, edges, _ = ax.patches[0].get_data()
        sigma = float(elements["sigma"].sel(head=head))
        centre, mass = 0.5 * (edges[1:] + edges[:-1]), heights * np.diff(edges)
        assert mass.sum() == pytest.approx(1.0, abs=1e-3)
        assert np.sqrt(mass @ centre**2 - (mass @ centre) ** 2) == pytest.approx(sigma, rel=0.02)


def test_a_file_has_a_figure_of_each_layer_and_of_each_statistic(tree):
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
