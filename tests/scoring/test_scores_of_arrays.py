"""Arrays in, the tree of a scores file out; arrays that are no heads are refused by name."""

import json
import tracemalloc

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch
import xarray as xr

import rmtbase
from rmtbase.errors import ParameterError
from rmtbase.nulls import Axes, Gaussian, Table
from rmtbase.results import open_table
from rmtbase.results.figures import figures
from rmtbase.results.scores import render, summarize_scores
from rmtbase.tables import to_pandas, write_table

N_LAYERS, N_HEADS, N_KEY_HEADS, D_HEAD, D_MODEL = 3, 4, 2, 8, 32


@pytest.fixture
def layers():
    """Factors of three layers, (layer, head, d_head, d_model), with one head that has learned."""
    rng = np.random.default_rng(5)
    w_q = rng.standard_normal((N_LAYERS, N_HEADS, D_HEAD, D_MODEL))
    w_q[1, 2] += 2.0 * np.outer(rng.standard_normal(D_HEAD), rng.standard_normal(D_MODEL))
    return w_q, rng.standard_normal((N_LAYERS, N_KEY_HEADS, D_HEAD, D_MODEL))


@pytest.fixture
def tree(layers, null_table):
    return rmtbase.score_heads(*layers, Table(null_table), model="my model", revision="step 7")


def test_the_tree_is_that_of_a_scores_file(tree, weights, model_folder, null_table, tmp_path):
    of_model = rmtbase.score(model_folder, Table(null_table), matrices="none")
    assert set(tree.children) == set(of_model.children) == {"heads", "null"}
    for group in tree.children:
        here, there = tree[group].to_dataset(), of_model[group].to_dataset()
        assert {name: one.dims for name, one in here.items()} == {name: one.dims for name, one in there.items()}
    assert tree.attrs.keys() == of_model.attrs.keys()
    sizes = {name: tree.attrs[name] for name in ("n_layers", "n_heads", "n_key_heads", "d_model", "d_head")}
    assert tuple(sizes.values()) == (N_LAYERS, N_HEADS, N_KEY_HEADS, D_MODEL, D_HEAD)
    assert (tree.attrs["model"], tree.attrs["revision"]) == ("my model", "step 7")
    record = json.loads(tree.attrs["provenance"])
    assert record["call"]["function"] == "rmtbase.score_heads"
    assert len(record["weights"]["query_key_sha256"]) == 64
    xr.testing.assert_identical(open_table(write_table(tree, tmp_path / "scores.nc"), "scores"), tree)


@pytest.mark.parametrize("null", ["gaussian", "analytic", "axes"])
def test_page_pictures_table_and_words_are_made_of_it(null, layers, null_table):
    against = {"axes": Axes(draws=99), "gaussian": Table(null_table), "analytic": "analytic"}[null]
    tree = rmtbase.score_heads(*layers, against, model="<my> model")
    assert "&lt;my&gt; model" in render(tree, pictures=False)
    assert len(figures(tree)) == {"gaussian": 7, "analytic": 8, "axes": 6}[null]  # bars of equal length are left out
    assert summarize_scores(tree).n_heads == N_LAYERS * N_HEADS


def test_q_values_are_over_the_heads_of_all_layers(tree, layers, null_table):
    heads, (w_q, w_k) = tree["heads"].to_dataset(), layers
    alone = [rmtbase.score_heads(*pair, Table(null_table))["heads"].to_dataset() for pair in zip(w_q, w_k, strict=True)]
    there = xr.concat(alone, dim="layer").assign_coords(layer=np.arange(N_LAYERS))
    flat = rmtbase.score_heads(*(w.reshape(-1, D_HEAD, D_MODEL) for w in layers), Table(null_table))["heads"]
    for name in heads.data_vars:
        if name.endswith("q_value") and not name.startswith("relation"):
            np.testing.assert_array_equal(heads[name].values.ravel(), flat[name].values.ravel(), err_msg=name)
        elif not name.endswith("q_value"):
            np.testing.assert_array_equal(heads[name], there[name], err_msg=name)
    assert [(one.layer, one.head) for one in summarize_scores(tree).findings] == [(1, 2)]


def test_layers_are_an_axis_or_a_list_or_come_one_by_one(tree, layers, null_table):
    parameters = [torch.nn.ParameterList(torch.nn.Parameter(torch.from_numpy(w)) for w in side) for side in layers]
    named = ({f"layer.{place}": w for place, w in enumerate(side)}.values() for side in layers)
    generated = ((w for w in side) for side in layers)
    for given in (map(list, layers), map(tuple, layers), (w.tolist() for w in layers), parameters, named, generated):
        assert rmtbase.score_heads(*given, Table(null_table), model="my model", revision="step 7").identical(tree)
    one = [w[1] for w in layers]
    alone = rmtbase.score_heads(*one, Table(null_table))
    tensors = [[torch.from_numpy(head).requires_grad_() for head in w] for w in one]
    for given in ([w[None] for w in one], [list(w) for w in one], tensors):  # lists of single heads (d_head, d_model)
        assert rmtbase.score_heads(*given, Table(null_table)).identical(alone)


@pytest.mark.parametrize("take", [summarize_scores, figures, render, to_pandas])
def test_what_is_no_scores_tree_is_refused(take, tree, tmp_path):
    path = write_table(tree, tmp_path / "scores.nc")
    for wrong in (path, str(path), tree["heads"], tree["null"].to_dataset(), None):
        with pytest.raises(ParameterError, match=r"scores tree|a dimension among|as rmtbase.open_table opens it"):
            take(wrong)


NARROW = {
    "torch float64": (torch.from_numpy, np.float64),
    "torch float32": (lambda w: torch.from_numpy(w).float(), np.float32),
    "torch float16": (lambda w: torch.from_numpy(w).half(), np.float16),
    "parameters in bfloat16": (
        lambda w: [torch.nn.Parameter(torch.from_numpy(layer).bfloat16()) for layer in w], ml_dtypes.bfloat16,
    ),
    "JAX bfloat16": (lambda w: jnp.asarray(w, jnp.bfloat16), ml_dtypes.bfloat16),
    "lists of JAX float32": (lambda w: [jnp.asarray(layer, jnp.float32) for layer in w], np.float32),
    "transposed views": (lambda w: torch.from_numpy(w.swapaxes(2, 3).copy()).bfloat16().mT, ml_dtypes.bfloat16),
}  # fmt: skip


@pytest.mark.parametrize("kind", NARROW)
def test_arrays_of_other_libraries_go_in_as_they_are(kind, layers, null_table):
    make, dtype = NARROW[kind]
    expected = rmtbase.score_heads(*(w.astype(dtype) for w in layers), Table(null_table))
    assert rmtbase.score_heads(*map(make, layers), Table(null_table)).identical(expected)


def test_tensors_without_real_values_are_refused(layers):
    tensor = torch.ones(4, 8, 32)
    for w_q, fragment in (
        (tensor.to(torch.complex64), "complex64"), (tensor.bool(), "bool"), (tensor.to("meta"), "Tensor"),
        (tensor.to_sparse(), "Tensor"),
    ):  # fmt: skip
        with pytest.raises(ParameterError, match=fragment) as caught:
            rmtbase.score_heads(w_q, layers[1][0])
        assert caught.value.name == "w_q" and "tensor(" not in str(caught.value)


def test_layers_that_do_not_fit_are_refused_and_a_bad_head_is_named_with_its_layer(layers):
    w_q, w_k = layers
    for arguments, name, fragments in (
        ((w_q, w_k[0]), "w_k", ["(2, 8, 32)", "3 layers of shape (4, 8, 32)"]),
        ((w_q[0], w_k), "w_k", ["3 layers", "as many layers as w_q"]),
        ((w_q, w_k[:2]), "w_k", ["2 layers", "3 layers"]),
        (([*w_q[:2], w_q[2, :3]], list(w_k)), "w_q[2]", ["(3, 8, 32)", "the shape of w_q[0], (4, 8, 32)"]),
        ((w_q, w_k[:, :, :, :16]), "w_k", ["(2, 8, 16)", "(key heads, 8, 32)"]),
        ((w_q.swapaxes(2, 3), w_k), "w_q", ["(3, 4, 32, 8)", "transpose each head"]),
    ):
        refused(name, fragments, lambda arguments=arguments: rmtbase.score_heads(*arguments))
    w_k[2, 1, 3, 4] = np.nan
    refused("w_k", ["NaN or infinity in layer 2 head 1"], lambda: rmtbase.score_heads(w_q, w_k))
    w_q[1, 3] = 0
    refused("w_q", ["layer 1 head 3 is all zeros"], lambda: rmtbase.score_heads(w_q, w_k))


def test_queries_and_keys_are_scored_as_matrices_where_asked_for(layers, null_table, tmp_path):
    tree = rmtbase.score_heads(*layers, Table(null_table), matrices="elements")
    matrices = tree["matrices"].to_dataset()
    assert matrices["component"].values.tolist() == ["attention_query", "attention_key"]
    assert matrices["n_rows"].values.tolist() == [[N_HEADS * D_HEAD, N_KEY_HEADS * D_HEAD]] * N_LAYERS
    np.testing.assert_allclose(matrices["sigma"][1, 1], layers[1][1].std(ddof=1), rtol=1e-12)
    assert "matrix-z-heat-map" in figures(tree)
    write_table(tree, tmp_path / "scores.nc")
    with pytest.raises(ParameterError, match="matrices = 'all'"):
        rmtbase.score_heads(*layers, Table(null_table), matrices="all")


def test_equal_layers_are_a_warning_and_how_many_factors_were_factorised_orthogonally_is_recorded(layers, null_table):
    w_q, w_k = layers
    w_q[0, 1, 3] = w_q[0, 1, 2] + 1e-6 * w_q[0, 1, 3]  # of the twelve query factors and six key factors, two
    w_k[2, 0] *= np.where(np.arange(D_MODEL) < 1, 1.0, 1e-4)
    tree = rmtbase.score_heads(w_q, w_k, Table(null_table))
    assert json.loads(tree.attrs["provenance"])["weights"]["factorised"] == {"gram_matrix": 16, "orthogonal": 2}
    w_q[2], w_k[2] = w_q[0], w_k[0]
    (warning,) = summarize_scores(rmtbase.score_heads(w_q, w_k, Table(null_table))).warnings
    assert warning.startswith("layers 0, 2 hold byte-identical query and key weights")


def test_one_layer_at_a_time_is_held_in_float64():
    rng = np.random.default_rng(6)
    w_q, w_k = ([rng.standard_normal((16, 16, 256), np.float32) for _ in range(24)] for _ in range(2))
    rmtbase.score_heads(w_q[:1], w_k[:1], "analytic")  # what is imported and cached once
    tracemalloc.start()
    try:
        rmtbase.score_heads(w_q, w_k, "analytic")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 12 * w_q[0].size * 8  # of 48 such arrays


def refused(name, fragments, call):
    with pytest.raises(ParameterError) as caught:
        call()
    assert caught.value.name == name
    for fragment in fragments:
        assert fragment in str(caught.value)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_value_that_is_not_finite_is_named_with_its_head(bad, arrays, score_arrays):
    for place, name in enumerate(("w_q", "w_k")):
        damaged = [w.copy() for w in arrays]
        damaged[place][1, 2, 3] = bad
        refused(name, ["NaN or infinity in head 1", "finite"], lambda damaged=damaged: score_arrays(*damaged))


def test_shapes_that_are_no_heads_or_do_not_fit_and_heads_of_one_dimension_are_refused(arrays, score_arrays):
    for shape in ((8, 32), (1, 1, 4, 8, 32), (0, 8, 32), (4, 0, 32), ()):
        of_queries, of_keys = (np.ones(shape), arrays[1]), (arrays[0], np.ones(shape))
        for name, given in (("w_q", of_queries), ("w_k", of_keys)):
            refused(name, [str(shape), "(head, d_head, d_model)"], lambda given=given: score_arrays(*given))
    for shape in ((2, 8, 31), (2, 7, 32), (3, 8, 32), (8, 8, 32)):
        fragments = [str(shape), "8, 32", "divisor of 4"]
        refused("w_k", fragments, lambda shape=shape: score_arrays(arrays[0], np.ones(shape)))
    thin = [w[:, :1] for w in arrays]
    for null in (Gaussian(draws=100), "analytic", "signs", "axes"):
        refused("d_head", ["d_head = 1", "at least 2"], lambda null=null: rmtbase.score_heads(*thin, null))


def test_a_null_that_is_not_offered_is_refused_and_the_callers_arrays_are_left_as_they_are(arrays, score_arrays):
    offered = "'gaussian', 'analytic', 'kurtosis', 'signs', 'axes', a baseline table"
    for null in ("permutation", "Signs", ""):
        refused("null", [repr(null), offered], lambda null=null: score_arrays(*arrays, null=null))
    before = [w.copy() for w in arrays]
    score_arrays(*arrays)
    np.testing.assert_array_equal(np.concatenate(arrays), np.concatenate(before))
