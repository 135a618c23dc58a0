"""How the heads of each layer share keys is said by the scores, whatever they were scored against."""

import json

import numpy as np
import pytest
from element_models import NEOX_CONFIG, gpt_neox

import rmtbase
from rmtbase.errors import ParameterError
from rmtbase.models import Place, Site, Tensor, open_model
from rmtbase.nulls import Axes
from rmtbase.results import open_table
from rmtbase.results.comparison import attention_classes
from rmtbase.tables import write_table


@pytest.fixture(scope="module")
def neox():
    tensors = gpt_neox(2, 0.02, 0.02, np.random.default_rng(1))
    beside = {f"gpt_neox.layers.{layer}.mixer.{layer}.weight": np.ones((3, 4), np.float32) for layer in range(2)}
    beside |= {"gpt_neox.pooler.kernel": np.ones((4, 3, 2, 2), np.float32), "gpt_neox.mask": np.ones((1, 1, 9, 9))}
    return open_model(tensors | beside, family="gpt_neox", config=NEOX_CONFIG)


def test_fused_attention_is_told_without_a_score_of_the_fused_matrix(neox):
    scores = rmtbase.score(neox, Axes(draws=10), matrices="none")
    assert scores.attrs["attention"] == "MHA, fused"
    assert attention_classes(scores) == {"layer 0": "MHA, fused", "layer 1": "MHA, fused"}


def test_attention_of_layers_that_differ_is_a_coordinate_of_the_heads(tmp_path):
    draw, key_heads = np.random.default_rng(2).standard_normal, (4, 2, 1)
    tensors = {f"{layer}.q": draw((4 * 8, 32)) for layer in range(3)}
    tensors |= {f"{layer}.k": draw((n * 8, 32)) for layer, n in enumerate(key_heads)}
    shape = {"n_heads": 4, "d_head": 8, "d_query": 32, "d_key": 32}
    sites = [
        Site(place=Place("", layer), n_key_heads=n, query=Tensor(f"{layer}.q"), key=Tensor(f"{layer}.k"), **shape)
        for layer, n in enumerate(key_heads)
    ]
    scores = rmtbase.score(open_model(tensors, sites=sites), "analytic")
    assert scores["heads"]["attention"].values.tolist() == ["MHA", "GQA", "MQA"]
    assert "attention" not in scores.attrs
    again = open_table(write_table(scores, tmp_path / "scores.nc"), "scores")
    assert again.identical(scores)
    assert attention_classes(again) == {"layer 0": "MHA", "layer 1": "GQA", "layer 2": "MQA"}


def test_only_matrices_that_are_neither_scored_nor_noted_elsewhere_are_named(neox):
    (line,) = neox.part_notes("layers")
    assert line.startswith("not scored, because outside attention, MLPs and embeddings that are read: ")
    assert "2 'gpt_neox.layers.{}.mixer.{}.weight' (3, 4)" in line
    assert "'gpt_neox.pooler.kernel' (4, 3, 2, 2)" in line
    assert "mask" not in line
    assert line in json.loads(rmtbase.score(neox, "analytic").attrs["notes"])
    tensors = gpt_neox(1, 0.02, 0.02, np.random.default_rng(1))
    assert open_model(tensors, family="gpt_neox", config=NEOX_CONFIG).part_notes("layers") == ()


def test_components_where_no_matrix_is_scored_are_refused(neox):
    with pytest.raises(ParameterError, match="with matrices = 'none' no whole matrix is scored"):
        rmtbase.score(neox, "analytic", matrices="none", components=["embeddings"])
