"""Scoring what training added: differences of checkpoints, and low-rank adapters."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

import rmtbase
from rmtbase.models import open_model
from rmtbase.results import open_table

MODULES = ("self_attn.q_proj", "self_attn.v_proj")
QUICKLY = ("--matrices", "none", "--null", "analytic")


def test_the_difference_of_two_checkpoints_is_scored(run, tmp_path):
    ran = run("score", "demo", "--minus", "demo@step-0", *QUICKLY, "-o", tmp_path / "scores.nc")
    assert ran.status == 0
    assert "demo (final) - demo (step-0)" in ran.out
    tree = open_table(tmp_path / "scores.nc", "scores")
    (w_q, w_k), (w_q0, w_k0) = (
        [part.astype(float) for part in (one.queries(1)[3], one.keys(1)[one.key_head(3)])]
        for one in (open_model("demo"), open_model("demo", "step-0"))
    )
    expected = np.linalg.svd((w_q - w_q0).T @ (w_k - w_k0), compute_uv=False)[: len(w_q)] ** 2
    np.testing.assert_allclose(tree["heads"]["eigenvalue"].values[1, 3], expected, rtol=1e-9)
    assert "not the difference of the two W_QK" in tree.attrs["notes"]


@pytest.fixture
def adapter(tmp_path):
    """The folder of an adapter of the bundled model, whose update of the first layer's v_proj has one direction."""
    rng, demo, tensors = np.random.default_rng(4), open_model("demo"), {}
    rows = dict(zip(MODULES, (demo.n_heads * demo.d_head, demo.n_key_heads * demo.d_head), strict=True))
    for layer in range(4):
        for module in MODULES:
            shapes = {"A": (8, demo.d_model), "B": (rows[module], 8)}
            parts = {side: rng.standard_normal(shape) for side, shape in shapes.items()}
            if (layer, module) == (0, MODULES[1]):
                parts["A"][0] *= 20.0
            named = f"base_model.model.model.layers.{layer}.{module}.lora_"
            tensors |= {f"{named}{side}.weight": part.astype(np.float32) for side, part in parts.items()}
    folder = tmp_path / "lora"
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 8, "lora_alpha": 8}))
    return folder


@pytest.mark.exhaustive
def test_the_first_line_says_that_the_update_was_scored_and_of_which_matrices(run, adapter, tmp_path):
    ran = run("score", adapter, "--null", "analytic", "-o", tmp_path / "scores.nc", "-o", tmp_path / "page.html")
    said = " ".join(ran.out.split())
    assert said.startswith(
        "lora: the update ΔW = s B A, without its base, of self_attn.q_proj, self_attn.v_proj: 8 updates (of several "
        "shapes) against the law of random updates with normal entries 2 of 8 updates differ from random updates "
        "(false discovery rate 5%)."
    )
    assert "‖ΔW‖²: self_attn.v_proj layer 0 update 0" in said
    assert not any(words in said for words in ("W_QK", " head", "queries", "axes are unequal"))
    assert "Elements: in 1 of 16 factors of updates they differ from independent normal draws" in said
    tree = open_table(tmp_path / "scores.nc", "scores")
    assert json.loads(tree.attrs["updates"]) == list(MODULES)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "the update ΔW = s B A, without its base" in page and "4 layers, 64 × 128 of rank 8" in page
    assert "The update ΔW = s B A of each module by lora, without its base, was compared with" in page


def test_by_the_heads_of_its_base_an_update_is_said_to_be_without_it_and_can_be_merged(run, adapter, tmp_path):
    said = " ".join(run("score", adapter, "--adapter", "delta", "--base", "demo", *QUICKLY).out.split())
    assert said.startswith(
        "lora: the update ΔW = s B A, without its base, of self_attn.q_proj, self_attn.v_proj: 48 heads (s Bᵀ and A "
        "8 × 16 and 8 × 128) against"
    )
    assert "W_QK" not in said and "heads differ" in said
    alone = run("-v", "score", adapter, *QUICKLY, "--json")
    assert alone.status == 0 and "updates of an adapter, without its base" in alone.err
    merged = run("score", adapter, "--adapter", "merged", "--base", "demo", *QUICKLY, "-o", tmp_path / "merged.nc")
    assert "update" not in merged.out.splitlines()[0] and "W_QK" in merged.out
    of_merged = open_table(tmp_path / "merged.nc", "scores")["heads"]["eigenvalue"].values
    demo = rmtbase.score("demo", "analytic", matrices="none")["heads"]["eigenvalue"].values
    assert (of_merged != demo).any(axis=-1).all()
