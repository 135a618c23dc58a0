"""Pictures of changes: a cell for each matrix, or each head, with its z."""

import numpy as np
import pytest
from matplotlib.collections import QuadMesh

from rmtbase.errors import ParameterError
from rmtbase.models import open_model
from rmtbase.results.diff import diff
from rmtbase.results.diff.figures import change_heatmap
from rmtbase.results.figures import figure_names


@pytest.fixture(scope="module")
def tree():
    return diff(
        open_model("demo", "step-0"), open_model("demo", "step-200"), components=["attention_key", "attention_value"]
    )


def cells(ax):
    (mesh,) = [one for one in ax.collections if isinstance(one, QuadMesh)]
    return np.ma.filled(mesh.get_array(), np.nan)


def test_the_map_of_matrices_and_that_of_heads_hold_z(tree):
    np.testing.assert_array_equal(cells(change_heatmap(tree, "out")), tree["matrices"]["z_score_out"])
    of_heads = tree["heads"]["z_score_in"].sel(component="attention_key")
    ax = change_heatmap(tree, "in", "attention_key")
    np.testing.assert_array_equal(cells(ax), of_heads)
    assert ax.get_title().startswith("attention key, old directions of the inputs")
    assert figure_names(tree) == {"changes": True, "changes-of-heads": True}


def test_what_is_not_there_is_refused(tree):
    for bad in (None, tree["matrices"].to_dataset()):
        with pytest.raises(ParameterError, match="changes"):
            change_heatmap(bad)
    with pytest.raises(ParameterError, match="side = 'up'"):
        change_heatmap(tree, "up")
    with pytest.raises(ParameterError, match="component = 'mlp_in'"):
        change_heatmap(tree, component="mlp_in")
