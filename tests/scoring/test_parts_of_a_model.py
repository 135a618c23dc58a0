"""Embeddings and experts in the scores, and how the heads of each layer share keys; memory stays bounded."""

import csv
import io
import json
import tracemalloc
from functools import reduce

import numpy as np
import pytest
from element_models import NEOX_CONFIG, gpt_neox
from safetensors.numpy import save_file
from scipy.stats import kurtosis

import rmtbase
from rmtbase.errors import ParameterError
from rmtbase.linalg import appended_rows, singular_values
from rmtbase.models import MatrixName, Place, Site, Tensor, difference, open_model
from rmtbase.nulls import Axes
from rmtbase.results import open_table
from rmtbase.results.comparison import attention_classes
from rmtbase.results.figures import figures
from rmtbase.results.scores import render
from rmtbase.results.scores.figures._heatmaps import expert_z_heatmap
from rmtbase.statistics import ELEMENT_STATISTICS, MOMENT_STATISTICS, element_sketch
from rmtbase.tables import to_pandas, write_table

D_MODEL, N_HEADS, D_HEAD, D_FF, N_EXPERTS, N_LAYERS, TOKENS = 32, 2, 16, 24, 5, 2, 70


def write_mixture(folder, vocabulary=TOKENS, tied=False):
    """A Mixtral by hand, with a token of zeros and one that is a copy."""
    rng = np.random.default_rng(4)
    folder.mkdir(exist_ok=True)

    def drawn(*shape):
        return rng.standard_normal(shape, np.float32) / np.float32(np.sqrt(shape[-1]))

    tokens = drawn(vocabulary, D_MODEL)
    tokens[3], tokens[5] = 0.0, tokens[4]
    tensors = {"model.embed_tokens.weight": tokens, "lm_head.weight": tokens if tied else drawn(vocabulary, D_MODEL)}
    for layer in range(N_LAYERS):
        at = f"model.layers.{layer}."
        tensors |= {f"{at}self_attn.{one}_proj.weight": drawn(N_HEADS * D_HEAD, D_MODEL) for one in "qkvo"}
        tensors[f"{at}block_sparse_moe.gate.weight"] = drawn(N_EXPERTS, D_MODEL)
        for expert in range(N_EXPERTS):
            of = f"{at}block_sparse_moe.experts.{expert}."
            shapes = {"w1": (D_FF, D_MODEL), "w2": (D_MODEL, D_FF), "w3": (D_FF, D_MODEL)}
            tensors |= {f"{of}{one}.weight": drawn(*shape) for one, shape in shapes.items()}
    tensors[f"model.layers.1.block_sparse_moe.experts.{N_EXPERTS - 1}.w2.weight"] **= 3  # one that has learned
    save_file(tensors, folder / "model.safetensors")
    sizes = {"hidden_size": D_MODEL, "num_attention_heads": N_HEADS, "num_key_value_heads": N_HEADS}
    sizes |= {"num_hidden_layers": N_LAYERS, "num_local_experts": N_EXPERTS, "vocab_size": vocabulary}
    (folder / "config.json").write_text(json.dumps({"model_type": "mixtral", **sizes}))
    return folder, tensors


@pytest.fixture(scope="module")
def mixture(tmp_path_factory):
    return write_mixture(tmp_path_factory.mktemp("mixture"))


@pytest.fixture(scope="module")
def scored(mixture):
    return rmtbase.score(open_model(mixture[0], proof=False), "analytic", components=["all"])


@pytest.mark.exhaustive
def test_what_is_not_asked_for_changes_nothing(mixture, scored):
    plain = rmtbase.score(open_model(mixture[0], proof=False), "analytic")
    named = rmtbase.score(open_model(mixture[0], proof=False), "analytic", components=["layers", "experts"])
    assert "experts" not in plain.children
    assert plain["matrices"].to_dataset().identical(named["matrices"].to_dataset())
    assert "embedding" not in plain["matrices"]["component"]
    assert plain["matrices"]["layer"].values.tolist() == [0, 1]
    assert plain.attrs["n_layers"] == scored.attrs["n_layers"] == N_LAYERS
    assert "10 experts, 30 matrices: not scored, unless asked for" in json.loads(plain.attrs["notes"])


def test_experts_have_a_group_with_a_dimension_of_their_own(mixture, scored):
    experts, (_, tensors) = scored["experts"].to_dataset(), mixture
    axes = {"layer": 2, "expert": N_EXPERTS, "component": 3}
    assert dict(experts.sizes) == axes | {"statistic": len(ELEMENT_STATISTICS), "bin": 160, "magnitude_bin": 160}
    one = experts.sel(layer=1, expert=2, component="expert_out")
    weights = tensors["model.layers.1.block_sparse_moe.experts.2.w2.weight"].astype(np.float64)
    assert (one["n_rows"], one["n_columns"]) == (D_MODEL, D_FF)
    np.testing.assert_allclose(one["observed"].sel(statistic="excess_kurtosis"), kurtosis(weights, axis=None))
    flagged = (experts["q_value"].sel(statistic=list(MOMENT_STATISTICS)) < 0.01).any("statistic")
    assert np.argwhere(flagged.transpose("layer", "expert", "component").values).tolist() == [[1, N_EXPERTS - 1, 2]]


def test_spectra_of_experts_are_those_of_their_matrices(mixture):
    folder, tensors = mixture
    tree = rmtbase.score(open_model(folder, proof=False), "analytic", components=["experts"], matrices="spectra")
    values = np.linalg.svd(tensors["model.layers.0.block_sparse_moe.experts.1.w3.weight"], compute_uv=False) ** 2
    one = tree["experts"].to_dataset().sel(layer=0, expert=1, component="expert_in")
    np.testing.assert_allclose(one["observed"].sel(statistic="condition_number"), values[0] / values[-1], rtol=1e-4)
    assert one["marchenko_pastur_distance"] < 0.2


def test_embeddings_are_at_layer_minus_one(mixture, scored):
    outside, tokens = scored["matrices"].to_dataset().sel(layer=-1), mixture[1]["model.embed_tokens.weight"]
    held = outside["component"].values[outside["n_rows"].notnull().values].tolist()
    assert held == ["embedding", "unembedding"]
    assert outside["n_rows"].sel(component=held).values.tolist() == [D_MODEL, TOKENS]
    found = outside["observed"].sel(component="embedding", statistic="skewness")
    np.testing.assert_allclose(found, ((tokens - tokens.mean()) ** 3).mean() / tokens.var() ** 1.5, rtol=1e-4)
    notes = json.loads(scored.attrs["notes"])
    rows = "outside the layers embedding: 1 of 70 stored rows are"
    assert f"{rows} exactly zero; they are scored with the others" in notes
    assert any(note.startswith(f"{rows} copies of another row") for note in notes)


def test_an_unembedding_that_is_the_embedding_is_scored_once(tmp_path):
    folder, _ = write_mixture(tmp_path, tied=True)
    tree = rmtbase.score(open_model(folder, proof=False), "analytic", components=["embeddings"])
    assert tree["matrices"]["component"].values.tolist() == ["embedding"]
    line = "outside the layers unembedding: the same to the byte as outside the layers embedding, and scored as that"
    assert line in json.loads(tree.attrs["notes"])


def test_the_difference_of_two_models_has_the_parts_that_both_have(mixture, tmp_path):
    folder, tensors = mixture
    other, others = write_mixture(tmp_path)
    name = "model.layers.0.block_sparse_moe.experts.1.w1.weight"
    save_file(others | {name: others[name] + np.float32(0.5)}, other / "model.safetensors")
    between = difference(open_model(folder), open_model(other))
    assert between.parts == open_model(folder).parts
    (expert,), (embedding,) = (
        between.blocks(at)
        for at in (MatrixName(Place("", 0), "expert_gate", 1), MatrixName(Place("", -1), "embedding"))
    )
    np.testing.assert_allclose(expert, -0.5, atol=1e-6)
    assert embedding.shape == tensors["model.embed_tokens.weight"].shape and not embedding.any()


def test_a_file_keeps_them_and_every_matrix_has_a_row_of_a_frame(scored, tmp_path, mixture):
    opened = open_table(write_table(scored, tmp_path / "scores.nc"), "scores")
    matrices, experts = (scored[name].to_dataset() for name in ("matrices", "experts"))
    assert opened["experts"].to_dataset().equals(experts)
    frame = to_pandas(opened, "experts")
    assert len(frame) == N_LAYERS * N_EXPERTS * 3 * len(ELEMENT_STATISTICS)
    assert frame.columns[:4].tolist() == ["layer", "expert", "component", "statistic"]
    rows = {}
    for group in ("matrices", "experts"):
        exported = rmtbase.export(scored, group=group, statistics=["excess_kurtosis"]).decode()
        rows[group] = list(csv.DictReader(io.StringIO(exported)))
    assert len(rows["matrices"]) == int(matrices["n_rows"].count())
    assert {row["layer"] for row in rows["matrices"] if row["component"] == "embedding"} == {"-1"}
    assert len(rows["experts"]) == N_LAYERS * N_EXPERTS * 3
    at = {"layer": "1", "component": "expert_out", "expert": "4"}
    (one,) = (row for row in rows["experts"] if row.items() >= at.items())
    there = experts.sel(layer=1, component="expert_out", expert=4)
    assert (float(one["n_rows"]), float(one["n_columns"])) == (D_MODEL, D_FF)
    assert float(one["q_value"]) == there["q_value"].sel(statistic="excess_kurtosis")
    heads = rmtbase.score(open_model(mixture[0], proof=False), "analytic", matrices="none")
    with pytest.raises(ParameterError, match="group = 'matrices'"):
        rmtbase.export(heads, group="matrices")


def test_the_page_has_a_row_for_each_layer_and_component_and_the_picture_a_cell_for_each_expert(scored):
    page = render(scored, pictures=False)
    table = page[page.index('id="experts-table"') :]
    assert table[: table.index("</table>")].count("<tr") == 2 + N_LAYERS * 3
    ax = expert_z_heatmap(scored, "expert_out", legend=False)
    assert ax.collections[0].get_array().shape == (N_LAYERS, N_EXPERTS)
    assert "expert out" in ax.get_title()
    assert list(figures(scored, names=["expert-z-heat-map"])) == ["expert-z-heat-map"]


def test_what_no_model_has_is_refused(mixture):
    model = open_model(mixture[0], proof=False)
    for components, matrices, message in (
        (["expert"], "elements", "layers, embeddings, experts, or all"),
        ([], "elements", "nothing"),
        (["embeddings"], "none", "with matrices = 'none' no whole matrix is scored"),
    ):
        with pytest.raises(ParameterError, match=message):
            rmtbase.score(model, "analytic", components=components, matrices=matrices)


def test_rows_appended_block_by_block_have_the_singular_values_of_the_whole():
    """Of a condition number of 1e9, which no Gram matrix in float64 resolves."""
    whole = np.random.default_rng(6).standard_normal((500, 30)) * np.geomspace(1.0, 1e-9, 30)
    triangle = reduce(appended_rows, np.array_split(whole, 7), None)
    assert triangle.shape == (30, 30)
    np.testing.assert_allclose(singular_values(triangle), singular_values(whole), rtol=1e-6)


@pytest.mark.exhaustive
def test_memory_is_that_of_a_few_blocks_whatever_the_vocabulary(tmp_path):
    """An embedding of 128 MiB in float32 is reduced to its triangle and its moments in less than that."""
    vocabulary, width = 131_072, 256
    folder, tensors = write_mixture(tmp_path, vocabulary=8)
    config = json.loads((folder / "config.json").read_text()) | {"vocab_size": vocabulary, "embedding_size": width}
    (folder / "config.json").write_text(json.dumps(config))
    block = np.random.default_rng(1).standard_normal((1024, width), np.float32).astype(np.float16)
    tensors["model.embed_tokens.weight"] = np.tile(block, (vocabulary // 1024, 1))
    save_file(tensors, folder / "model.safetensors")
    del tensors
    model, rows, squares, triangle = open_model(folder), 0, 0.0, None
    tracemalloc.start()
    for one in model.blocks(MatrixName(Place("", -1), "embedding")):
        rows, squares = rows + len(one), squares + element_sketch([one]).sums.square
        triangle = appended_rows(triangle, one)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (rows, triangle.shape) == (vocabulary, (width, width)) and peak < 128 * 2**20
    np.testing.assert_allclose((triangle**2).sum(), squares, rtol=1e-3)


def test_attention_of_layers_that_differ_is_a_coordinate_of_the_heads(tmp_path):
    rng, shape = np.random.default_rng(2), {"n_heads": 4, "d_head": 8, "d_query": 32, "d_key": 32}
    tensors, sites = {}, []
    for layer, n in enumerate((4, 2, 1)):
        tensors |= {f"{layer}.q": rng.standard_normal((32, 32)), f"{layer}.k": rng.standard_normal((n * 8, 32))}
        parts = {"query": Tensor(f"{layer}.q"), "key": Tensor(f"{layer}.k")}
        sites.append(Site(place=Place("", layer), n_key_heads=n, **parts, **shape))
    scores = rmtbase.score(open_model(tensors, sites=sites), "analytic")
    assert scores["heads"]["attention"].values.tolist() == ["MHA", "GQA", "MQA"] and "attention" not in scores.attrs
    again = open_table(write_table(scores, tmp_path / "scores.nc"), "scores")
    assert again.identical(scores)
    assert attention_classes(again) == {"layer 0": "MHA", "layer 1": "GQA", "layer 2": "MQA"}


def test_fused_attention_is_told_and_only_matrices_that_are_neither_scored_nor_noted_elsewhere_are_named():
    tensors = gpt_neox(2, 0.02, 0.02, np.random.default_rng(1))
    opening = {"family": "gpt_neox", "config": NEOX_CONFIG}
    assert open_model(tensors, **opening).part_notes("layers") == ()
    tensors |= {f"gpt_neox.layers.{layer}.mixer.{layer}.weight": np.ones((3, 4), np.float32) for layer in range(2)}
    tensors |= {"gpt_neox.pooler.kernel": np.ones((4, 3, 2, 2), np.float32), "gpt_neox.mask": np.ones((1, 1, 9, 9))}
    neox = open_model(tensors, **opening)
    (line,) = neox.part_notes("layers")
    assert line.startswith("not scored, because outside attention, MLPs and embeddings that are read: ")
    assert "2 'gpt_neox.layers.{}.mixer.{}.weight' (3, 4)" in line and "'gpt_neox.pooler.kernel' (4, 3, 2, 2)" in line
    assert "mask" not in line and line in json.loads(rmtbase.score(neox, "analytic").attrs["notes"])
    scores = rmtbase.score(neox, Axes(draws=10), matrices="none")
    assert scores.attrs["attention"] == "MHA, fused"
    assert attention_classes(scores) == {"layer 0": "MHA, fused", "layer 1": "MHA, fused"}
