"""Arrays in, the tree of a scores file out: whatever takes the scores of a checkpoint takes those of arrays."""

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
from rmtbase.nulls import Axes, Table
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
    of_own = null == "axes"
    against = Axes(draws=99) if of_own else Table(null_table) if null == "gaussian" else null
    tree = rmtbase.score_heads(*layers, against, model="<my> model")
    page = render(tree, pictures=False)
    assert "&lt;my&gt; model" in page
    assert len(figures(tree)) == {"gaussian": 7, "analytic": 8, "axes": 6}[null]  # bars of equal length are left out
    assert summarize_scores(tree).n_heads == N_LAYERS * N_HEADS


@pytest.mark.exhaustive
def test_rmtbase_plot_draws_its_file(tree, run, tmp_path):
    write_table(tree, tmp_path / "scores.nc")
    ended = run("plot", tmp_path / "scores.nc", "-o", tmp_path / "figures")
    assert ended.status == 0, ended.err
    assert len(list((tmp_path / "figures").iterdir())) >= 5


def test_q_values_are_over_the_heads_of_all_layers(tree, layers, null_table):
    heads = tree["heads"].to_dataset()
    one_by_one = [
        rmtbase.score_heads(w_q, w_k, Table(null_table))["heads"].to_dataset() for w_q, w_k in zip(*layers, strict=True)
    ]
    there = xr.concat(one_by_one, dim="layer").assign_coords(layer=np.arange(N_LAYERS))
    for name in heads.data_vars:
        if not name.endswith("q_value"):
            np.testing.assert_array_equal(heads[name], there[name], err_msg=name)
    flat = rmtbase.score_heads(
        layers[0].reshape(-1, D_HEAD, D_MODEL), layers[1].reshape(-1, D_HEAD, D_MODEL), Table(null_table)
    )["heads"]
    for name in ("q_value", "omnibus_q_value"):
        np.testing.assert_array_equal(heads[name].values.ravel(), flat[name].values.ravel())
    assert [(one.layer, one.head) for one in summarize_scores(tree).findings] == [(1, 2)]


def test_layers_are_an_axis_or_a_list_or_come_one_by_one(tree, layers, null_table):
    called = {"model": "my model", "revision": "step 7"}
    for given in (map(list, layers), map(tuple, layers), (w.tolist() for w in layers)):
        assert rmtbase.score_heads(*given, Table(null_table), **called).identical(tree)
    one = [w[1] for w in layers]
    alone = rmtbase.score_heads(*one, Table(null_table))
    assert rmtbase.score_heads(*(w[None] for w in one), Table(null_table)).identical(alone)
    heads = [list(w) for w in one]  # arrays (d_head, d_model) of single heads
    assert rmtbase.score_heads(*heads, Table(null_table)).identical(alone)
    parameters = [torch.nn.ParameterList(torch.nn.Parameter(torch.from_numpy(w)) for w in side) for side in layers]
    named = ({f"layer.{place}": w for place, w in enumerate(side)}.values() for side in layers)
    generated = ((w for w in side) for side in layers)
    for given in (parameters, named, generated):
        assert rmtbase.score_heads(*given, Table(null_table), **called).identical(tree)


@pytest.mark.parametrize("take", [summarize_scores, figures, render, to_pandas])
def test_what_is_no_scores_tree_is_refused(take, tree, tmp_path):
    path = write_table(tree, tmp_path / "scores.nc")
    for wrong in (path, str(path), tree["heads"], tree["null"].to_dataset(), None):
        with pytest.raises(ParameterError, match=r"scores tree|a dimension among|as rmtbase.open_table opens it"):
            take(wrong)


def of_torch(dtype):
    return lambda w: torch.from_numpy(w).to(dtype)


def parameters(w):
    return [torch.nn.Parameter(torch.from_numpy(layer).bfloat16()) for layer in w]


NARROW = {
    "torch float64": (of_torch(torch.float64), np.float64),
    "torch float32": (of_torch(torch.float32), np.float32),
    "torch float16": (of_torch(torch.float16), np.float16),
    "torch bfloat16": (of_torch(torch.bfloat16), ml_dtypes.bfloat16),
    "parameters in bfloat16": (parameters, ml_dtypes.bfloat16),
    "JAX bfloat16": (lambda w: jnp.asarray(w, jnp.bfloat16), ml_dtypes.bfloat16),
    "lists of JAX float32": (lambda w: [jnp.asarray(layer, jnp.float32) for layer in w], np.float32),
    "transposed views": (lambda w: torch.from_numpy(w.swapaxes(2, 3).copy()).bfloat16().mT, ml_dtypes.bfloat16),
}


@pytest.mark.parametrize("kind", NARROW)
def test_arrays_of_other_libraries_go_in_as_they_are(kind, layers, null_table):
    make, dtype = NARROW[kind]
    expected = rmtbase.score_heads(*(w.astype(dtype) for w in layers), Table(null_table))
    assert rmtbase.score_heads(*map(make, layers), Table(null_table)).identical(expected)


def test_nested_lists_of_tensors_are_arrays_too(layers, null_table):
    single = [w[0].astype(np.float32) for w in layers]
    nested = [[torch.from_numpy(head).requires_grad_() for head in w] for w in single]
    assert rmtbase.score_heads(*nested, Table(null_table)).identical(rmtbase.score_heads(*single, Table(null_table)))


@pytest.mark.parametrize(
    ("tensor", "fragment"),
    [
        (torch.ones(4, 8, 32, dtype=torch.complex64), "complex64"),
        (torch.ones(4, 8, 32, dtype=torch.bool), "bool"),
        (torch.ones(4, 8, 32, device="meta"), "Tensor"),
        (torch.ones(4, 8, 32).to_sparse(), "Tensor"),
    ],
)
def test_tensors_without_real_values_are_refused(tensor, fragment, layers):
    with pytest.raises(ParameterError, match=fragment) as caught:
        rmtbase.score_heads(tensor, layers[1][0])
    assert caught.value.name == "w_q"
    assert "tensor(" not in str(caught.value)


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
        with pytest.raises(ParameterError) as caught:
            rmtbase.score_heads(*arguments)
        assert caught.value.name == name
        for fragment in fragments:
            assert fragment in str(caught.value)
    w_q, w_k = layers
    w_k[2, 1, 3, 4] = np.nan
    with pytest.raises(ParameterError, match="w_k = 'NaN or infinity in layer 2 head 1'"):
        rmtbase.score_heads(w_q, w_k)
    w_q[1, 3] = 0
    with pytest.raises(ParameterError, match="w_q = 'layer 1 head 3 is all zeros'"):
        rmtbase.score_heads(w_q, w_k)


def test_layers_with_the_same_weights_are_a_warning(layers, null_table):
    w_q, w_k = layers
    w_q[2], w_k[2] = w_q[0], w_k[0]
    (warning,) = summarize_scores(rmtbase.score_heads(w_q, w_k, Table(null_table))).warnings
    assert warning.startswith("layers 0, 2 hold byte-identical query and key weights")


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


def test_how_many_factors_were_factorised_orthogonally_is_recorded(layers, null_table):
    w_q, w_k = layers
    w_q[0, 1, 3] = w_q[0, 1, 2] + 1e-6 * w_q[0, 1, 3]  # of the twelve query factors and six key factors, two
    w_k[2, 0] *= np.where(np.arange(D_MODEL) < 1, 1.0, 1e-4)
    tree = rmtbase.score_heads(w_q, w_k, Table(null_table))
    assert json.loads(tree.attrs["provenance"])["weights"]["factorised"] == {"gram_matrix": 16, "orthogonal": 2}


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
