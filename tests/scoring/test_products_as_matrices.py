"""Heads whose matrices are products of stored ones are scored against the chain of all of these."""

import numpy as np
import pytest

import rmtbase
from rmtbase.models import Place, Product, Site, Stacked, Tensor, open_model, take_rows
from rmtbase.nulls import Axes, Gaussian
from rmtbase.results import open_table
from rmtbase.results.scores import circuit_scores
from rmtbase.results.signal import signal, signal_rows, spectral_signal
from rmtbase.tables import write_table

HEADS, D_MODEL, Q_RANK, KV_RANK, D_NOPE, D_ROPE = 12, 96, 48, 24, 12, 8
NAMES = ("attention_query", "attention_key", "attention_value", "attention_output")


def latent_model(d_rope=D_ROPE, layers=2):
    """A model of random weights of latent attention, and its tensors; the heads of a layer share down-projections."""
    rng, tensors, sites = np.random.default_rng(5), {}, []
    d_head = D_NOPE + d_rope
    for layer in range(layers):
        for name, shape, scale in (
            ("q_b", (HEADS * d_head, Q_RANK), 0.02),
            ("q_a", (Q_RANK, D_MODEL), 0.5),
            ("kv_b", (HEADS * 2 * D_NOPE, KV_RANK), 1.0),
            ("kv_a", (KV_RANK + d_rope, D_MODEL), 3.0),
            ("o", (D_MODEL, HEADS * D_NOPE), 0.1),
        ):
            tensors[f"{layer}.{name}"] = scale * rng.standard_normal(shape)
        q_b, q_a, kv_b, kv_a, o = (Tensor(f"{layer}.{name}") for name in ("q_b", "q_a", "kv_b", "kv_a", "o"))
        down, rotated = take_rows(kv_a, range(KV_RANK)), take_rows(kv_a, range(KV_RANK, KV_RANK + d_rope))
        rows = np.arange(HEADS * 2 * D_NOPE).reshape(HEADS, 2, D_NOPE)
        up_keys = [take_rows(kv_b, one.tolist()) for one in rows[:, 0]]
        latent = Stacked(tuple(part for one in up_keys for part in (Product((one, down)), rotated)))
        plain = Product((take_rows(kv_b, rows[:, 0].ravel().tolist()), down))
        sites.append(
            Site(
                place=Place("", layer), n_heads=HEADS, n_key_heads=HEADS, d_head=d_head, d_query=D_MODEL, d_key=D_MODEL,
                d_value=D_NOPE, d_output=D_MODEL, query=Product((q_b, q_a)), key=latent if d_rope else plain,
                value=Product((take_rows(kv_b, rows[:, 1].ravel().tolist()), down)), output=o,
            )
        )  # fmt: skip
    return open_model(tensors, sites=sites, name="latent"), tensors


@pytest.fixture(scope="module")
def scores():
    return rmtbase.score(latent_model()[0], Gaussian(draws=2000), circuits=("ov", "query"), matrices="none")


def test_random_heads_of_latent_attention_are_not_flagged(scores):
    """Of 24 independent heads eight or more would be under 0.05 for one seed in 20 000."""
    for circuit in ("qk", "ov", "query"):
        p = circuit_scores(scores, circuit)["heads"]["omnibus_p_value"].values
        assert np.isfinite(p).all() and (p < 0.05).sum() < 8, circuit


def test_attention_is_latent_and_whole_matrices_that_are_products_have_statistics_and_no_null(scores):
    """Their elements share rows and columns of the factors: against independent ones all are far out."""
    tree = rmtbase.score(latent_model()[0], Axes(draws=10))
    assert scores.attrs["attention"] == tree.attrs["attention"] == "latent"  # whatever the null
    matrices = tree["matrices"].to_dataset().isel(layer=0)
    made, stored = (matrices.sel(component=names) for names in (["attention_query", "attention_key"], NAMES[-1]))
    assert np.isfinite(made["observed"]).all() and made["p_value"].isnull().all() and made["null_mean"].isnull().all()
    assert set(made["reason"].values.tolist()) == {"product_of_matrices"}
    assert np.isfinite(stored["p_value"]).all() and stored["reason"].item() == ""


def test_heads_given_as_plain_arrays_are_flagged_and_without_rotated_keys_they_are_a_plain_chain():
    model, _ = latent_model()
    queries, keys = (np.stack([read(site) for site in range(2)]) for read in (model.queries, model.keys))
    p = rmtbase.score_heads(queries, keys, "analytic")["heads"]["omnibus_p_value"].values
    assert (p < 0.001).all()
    p = rmtbase.score(latent_model(d_rope=0)[0], "analytic", matrices="none")["heads"]["omnibus_p_value"].values
    assert (p < 0.05).sum() < 8


def test_scales_are_those_of_the_matrices_and_the_nulls_of_its_factors(scores, tmp_path):
    (model, tensors), heads = latent_model(), scores["heads"].to_dataset()
    np.testing.assert_allclose(heads["sigma_k"][1], np.sqrt(np.mean(model.keys(1) ** 2, axis=(1, 2))))
    query = circuit_scores(scores, "query")["heads"].to_dataset()
    down = np.mean(tensors["1.q_a"] ** 2)
    up = np.mean(tensors["1.q_b"].reshape(HEADS, -1) ** 2, axis=1)
    np.testing.assert_allclose(query["null_scale"][1], up * down)
    assert open_table(write_table(scores, tmp_path / "scores.nc"), "scores").identical(scores)


@pytest.mark.parametrize("d_rope", [D_ROPE, 0])
def test_signal_of_latent_heads_is_looked_for_in_their_own_chain(d_rope):
    model, _ = latent_model(d_rope)
    rows = signal_rows(signal(model))
    of = {what: [row for row in rows if row.what == what] for what in ("qk", "ov", "key", "attention_query")}
    dims = (D_MODEL, D_NOPE, KV_RANK, D_MODEL)  # of W_OV, the values through their latent
    values = np.linalg.svd(model.outputs(0)[3].T @ model.values(0)[3], compute_uv=False)[:D_NOPE]
    alone = spectral_signal(values**2, dims)
    assert of["ov"][3].numbers["rest_p_value"] == pytest.approx(float(alone.rest_p_value), rel=1e-6)
    assert of["ov"][3].numbers["noise_scale"] == pytest.approx(float(alone.noise_scale), rel=1e-9)
    assert {row.reason.code for row in of["attention_query"]} == {"stored_product"}
    for what, code in {"qk": "rotated_keys", "key": "several_sources"}.items():
        assert sum(row.reason.code == code for row in of[what]) == (2 * HEADS if d_rope else 0)
    # 48 heads that share down-projections: fewer than 10 at 5 % but in 1e-3 of seeds, were they independent.
    assert sum(bool(row.directions) for row in of["ov"]) < 10
