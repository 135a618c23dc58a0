"""The bundled model is what its study says it is: real, small, trained, and still random at step 0."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from study_files import study_module
from transformers import AutoModelForCausalLM

ROOT = Path(__file__).resolve().parents[2]
STUDY = ROOT / "studies" / "demo_model"
MODELS = ROOT / "src" / "rmtbase" / "models" / "demo"
INDEX = json.loads((MODELS / "index.json").read_text(encoding="utf-8"))
NAMES = [revision["name"] for revision in INDEX["revisions"]]
INITIAL_STD = 0.02

# Held out by the study's rule, in every Python from 3.11 on; the rule itself is checked below.
HELD_OUT_FILE = "enum.py"
TRAINING_FILES = (
    "argparse.py",
    "ast.py",
    "inspect.py",
    "typing.py",
    "tarfile.py",
    "pydoc.py",
    "doctest.py",
    "_pydecimal.py",
)


corpus, heads, ngram, held_out = (study_module("demo_model", name) for name in ("corpus", "heads", "ngram", "held_out"))


def open_model(name: str) -> torch.nn.Module:
    return AutoModelForCausalLM.from_pretrained(MODELS / name, dtype=torch.float32).eval()


def library_text(path: str) -> np.ndarray:
    return np.frombuffer((corpus.standard_library() / path).read_bytes(), dtype=np.uint8)


@pytest.fixture(scope="module")
def held_out_text() -> np.ndarray:
    assert corpus.belongs(HELD_OUT_FILE)
    assert corpus.is_held_out(HELD_OUT_FILE)
    return library_text(HELD_OUT_FILE)[:16_384]


@pytest.fixture(scope="module")
def bits(held_out_text: np.ndarray) -> dict[str, float]:
    """Bits per byte of the first and last checkpoint on the held-out text."""
    return {name: held_out.bits_per_byte(open_model(name), [held_out_text])[0] for name in ("step-0", "final")}


@pytest.fixture(scope="module")
def null() -> np.ndarray:
    return heads.null_npr(d_model=128, d_head=16, draws=5000)


def test_what_is_shipped_is_small_and_the_index_and_recorded_results_agree():
    assert sum(path.stat().st_size for path in MODELS.rglob("*") if path.is_file()) <= 6_000_000
    assert sorted(NAMES) == sorted(path.name for path in MODELS.iterdir() if path.is_dir())
    assert INDEX["default"] in NAMES
    assert INDEX["tokenizer"] == "bytes"
    steps = [revision["step"] for revision in INDEX["revisions"]]
    assert steps == sorted(steps)
    assert steps[0] == 0
    assert all(name in (f"step-{step}", "final") for name, step in zip(NAMES, steps, strict=True))
    results = json.loads((STUDY / "results.json").read_text(encoding="utf-8"))
    scores = results["revisions"]
    assert list(scores) == NAMES
    for revision in INDEX["revisions"]:
        score = scores[revision["name"]]
        assert score["held_out_bits_per_byte"] == revision["held_out_bits_per_byte"]
        assert score["bytes_scored"] == results["ngram"]["bytes_scored"]


@pytest.mark.parametrize("revision", INDEX["revisions"], ids=NAMES)
def test_index_identifies_the_weights(revision: dict[str, object]):
    weights = MODELS / str(revision["name"]) / "model.safetensors"
    assert hashlib.sha256(weights.read_bytes()).hexdigest() == revision["sha256"]


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_half_precision_in_the_hugging_face_layout(name: str):
    config = json.loads((MODELS / name / "config.json").read_text(encoding="utf-8"))
    assert config["model_type"] == "llama"
    assert config["architectures"] == ["LlamaForCausalLM"]
    with safe_open(MODELS / name / "model.safetensors", "np") as file:
        assert file.metadata() == {"format": "pt"}
        shapes = {key: file.get_slice(key).get_shape() for key in file.keys()}  # noqa: SIM118
        assert {file.get_slice(key).get_dtype() for key in shapes} == {"F16"}
    d_model, d_head = config["hidden_size"], config["head_dim"]
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}.self_attn"
        assert shapes[f"{at}.q_proj.weight"] == [config["num_attention_heads"] * d_head, d_model]
        assert shapes[f"{at}.k_proj.weight"] == [config["num_key_value_heads"] * d_head, d_model]


@pytest.mark.parametrize("name", NAMES)
def test_revision_loads_with_transformers_and_gives_finite_logits(name: str):
    logits = open_model(name)(input_ids=torch.tensor([list(b"import os\n")])).logits
    assert logits.shape == (1, 10, 256)
    assert torch.isfinite(logits).all()


@pytest.mark.exhaustive
def test_training_and_held_out_files_are_disjoint_and_both_sides_are_populated():
    paths = corpus.source_paths(corpus.standard_library())
    kept_out = {path for path in paths if corpus.is_held_out(path)}
    tuning = {path for path in paths if corpus.is_tuning(path)}
    assert not kept_out & tuning
    assert not kept_out.intersection(TRAINING_FILES)
    assert 0.05 < len(kept_out) / len(paths) < 0.2
    assert not any("/test" in f"/{path}" for path in paths)


def test_every_byte_is_scored_once_and_ngram_probabilities_sum_to_one():
    for size in (1, 2, 255, 256, 257, 300, 1000):
        scored = []
        for start, stop, first in held_out.windows(np.zeros(size, dtype=np.uint8)):
            assert stop - start <= held_out.CONTEXT
            assert first == 1 or first - start > held_out.CONTEXT - held_out.STRIDE
            scored += range(first, stop + 1)
        assert scored == list(range(1, size))
    model = ngram.fit(ngram.join([library_text("ast.py")[:20_000]]), 3, (0.5, 1.0, 2.0))
    total = np.zeros(3)
    for byte in range(256):
        text = ngram.join([np.frombuffer(b"se", dtype=np.uint8), np.array([*b"se", byte], dtype=np.uint8)])
        total += [p[-1] for p in ngram.probabilities(model, text)]
    np.testing.assert_allclose(total, 1, rtol=1e-12)
    with pytest.raises(ValueError, match="order = 8: expected 1 to 7"):
        ngram.count(ngram.join([np.zeros(20, dtype=np.uint8)]), 8)


@pytest.mark.exhaustive
def test_step_0_knows_nothing_about_text(bits: dict[str, float]):
    # Its logits are small, so that it is near the uniform law's 8 bits.
    assert 7.5 < bits["step-0"] < 8.5


@pytest.mark.exhaustive
def test_final_model_clearly_beats_a_byte_3_gram_on_held_out_text(bits: dict[str, float], held_out_text: np.ndarray):
    # The 3-gram of the study has seen 9 MB; this one 1 MB, hence the margin of a whole bit.
    train = ngram.join([library_text(path) for path in TRAINING_FILES])
    model = ngram.fit(train, 3)
    text = ngram.join([held_out_text])
    three_gram = ngram.mean_bits(ngram.probabilities(model, text)[-1], text)
    assert bits["final"] < three_gram - 1.0
    assert bits["final"] < bits["step-0"] - 5.0
    recorded = INDEX["revisions"][-1]["held_out_bits_per_byte"]
    assert recorded < INDEX["baseline_held_out_bits_per_byte"]["3_gram"] - 0.8


def test_heads_are_the_initialisers_draws_at_step_0_and_leave_the_null_in_training(null):
    # 32 + 16 blocks of 2048 weights; the relative sd of each block's std is 1/64, so the bound is 5 sd:
    # false-failure rate 48 * 6e-7 = 3e-5 over seeds.
    w_q, w_k = heads.head_matrices(MODELS / "step-0")
    for w in (w_q, w_k):
        np.testing.assert_allclose(w.std(axis=(-2, -1)) / INITIAL_STD, 1, atol=5 / 64)
    # Two-sided Monte Carlo p-values of 32 heads, Bonferroni: false-failure rate at most 1e-2 over seeds.
    p = heads.two_sided_p(heads.head_npr(MODELS / "step-0"), null)
    assert p.min() > 1e-2 / p.size
    p = heads.two_sided_p(heads.head_npr(MODELS / "final"), null)
    assert (p < 1e-3).mean() > 0.5
