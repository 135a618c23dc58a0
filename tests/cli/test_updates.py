"""Scoring what training added: differences of checkpoints, and low-rank adapters."""

import json

import numpy as np
from safetensors.numpy import save_file

from rmtbase.models import open_model
from rmtbase.results import open_table

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


def test_an_adapter_is_scored_by_itself_and_merged_into_the_bundled_model(run, tmp_path):
    rng, demo = np.random.default_rng(1), open_model("demo")
    module, folder = "model.layers.1.self_attn.q_proj", tmp_path / "adapter"
    shapes = {"A": (8, demo.d_model), "B": (demo.n_heads * demo.d_head, 8)}
    tensors = {
        f"base_model.model.{module}.lora_{side}.weight": rng.standard_normal(shape).astype(np.float32)
        for side, shape in shapes.items()
    }
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    settings = {"peft_type": "LORA", "r": 8, "lora_alpha": 8}
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    alone = run("-v", "score", folder, *QUICKLY, "--json")
    assert alone.status == 0, alone.err
    assert "updates of an adapter, without its base" in alone.err
    merged = run("score", folder, "--adapter", "merged", "--base", "demo", *QUICKLY, "-o", tmp_path / "merged.nc")
    assert merged.status == 0, merged.err
    plain = run("score", "demo", *QUICKLY, "-o", tmp_path / "plain.nc")
    assert plain.status == 0
    one, other = (
        open_table(tmp_path / f"{name}.nc", "scores")["heads"]["eigenvalue"].values for name in ("merged", "plain")
    )
    assert (one[1] != other[1]).all()
    np.testing.assert_array_equal(np.delete(one, 1, axis=0), np.delete(other, 1, axis=0))
