"""The picture of learned directions: each of them is drawn where the file says it is."""

import numpy as np
import pytest

from rmtbase.errors import ParameterError
from rmtbase.plots import figure_names, learned_directions
from rmtbase.scoring import signal


@pytest.fixture(scope="module")
def tree():
    return signal("demo", "step-200", circuits=("value",), matrices="none", proof=False)


def test_each_direction_is_a_mark_at_its_strength(tree):
    assert figure_names(tree) == {"directions-qk": True, "directions-value": True}
    ax = learned_directions(tree, "value")
    group = tree["circuits/value/heads"].to_dataset()
    height = (group["strength"] / group["threshold"]).values
    drawn = np.concatenate([line.get_ydata() for line in ax.lines if line.get_marker() == "o"])
    np.testing.assert_allclose(np.sort(drawn), np.sort(height[np.isfinite(height)]))
    found = int((group["n_directions"] > 0).sum())
    assert f"learned directions in {found} of 16 key heads" in ax.get_title()
    assert ax.get_xlim() == (-0.5, 3.5)


def test_what_it_is_not_of_is_named(tree):
    with pytest.raises(ParameterError, match="one of qk, value"):
        learned_directions(tree, "matrices")
