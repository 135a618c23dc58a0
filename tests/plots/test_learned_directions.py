"""The picture of learned directions: each of them is drawn where the file says it is."""

import numpy as np
import pytest
from drawn_parts import line

from rmtbase.models import open_model
from rmtbase.results.figures import figure_names
from rmtbase.results.signal import signal
from rmtbase.results.signal.figures import learned_directions


@pytest.fixture(scope="module")
def tree():
    return signal(open_model("demo", "step-200", proof=False), circuits=("value",), matrices="none")


def test_each_direction_is_a_mark_at_its_strength(tree):
    assert figure_names(tree) == {"directions-qk": True, "directions-value": True}
    ax = learned_directions(tree, "value")
    group = tree["circuits/value/heads"].to_dataset()
    height = (group["strength"] / group["threshold"]).values
    drawn = np.concatenate([one.get_ydata() for one in ax.lines if one.get_marker() == "o"])
    np.testing.assert_allclose(np.sort(drawn), np.sort(height[np.isfinite(height)]))
    found = int((group["n_directions"] > 0).sum())
    assert f"learned directions in {found} of 16 key heads" in ax.get_title()
    assert ax.get_xlim() == (-0.6, 3.6)


def test_spectra_that_cannot_be_tested_have_a_cross_and_are_not_counted(tree):
    changed = tree.copy(deep=True)
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


def test_heads_without_a_number_have_a_triangle_and_are_counted_apart(tree):
    changed = tree.copy(deep=True)
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
