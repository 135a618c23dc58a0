"""``rmtbase inspect``, and the circuits of ``rmtbase score``."""

import csv
import io
import json
from dataclasses import asdict

import pytest

import rmtbase
from rmtbase.models import Gained, Product, Scaled, Stacked, Tensor, inspect_model, open_model, take_rows
from rmtbase.models._inspection import in_words
from rmtbase.models.layouts._expressions import Biased, Column, Sum
from rmtbase.results import open_table
from rmtbase.results.scores import circuit_scores, summarize_scores


def test_inspect_tells_layers_that_look_alike_together(run):
    ran = run("inspect", "demo")
    assert ran.status == 0
    lines = ran.out.splitlines()
    assert lines[:2] == ["demo, revision final", "family llama; 4 attention sites in 4 layers"]
    assert lines[2].startswith("layers 0-3: 8 heads on 4 key heads of 16, width 128")
    assert "  attention_key (64 × 128): model.layers.{}.self_attn.k_proj.weight" in lines
    assert "29 stored tensors are read; 9 are left out:" in lines
    embedding = "  embedding (128 × 256): model.embed_tokens.weight transposed"
    assert lines[lines.index("outside the layers:") + 1] == embedding
    assert "  model.layers.{}.input_layernorm.weight (4 of them)" in lines
    assert "note: rotary: W_QK is the content part at zero relative position" in lines


def test_inspect_as_json_is_the_library_call(run):
    printed = json.loads(run("inspect", "demo", "--json").out)
    found = inspect_model(open_model("demo"))
    assert printed == json.loads(json.dumps(asdict(found)))
    layers, outside = printed["layers"]
    assert outside["layers"] == [-1]
    assert layers["layers"] == [0, 1, 2, 3]
    assert layers["sizes"]["n_key_heads"] == 4
    assert layers["shapes"]["mlp_out"] == [128, 320]


def test_inspect_reads_no_weight(model_folder, run):
    """A header that is there and numbers that are not: whoever reads one fails."""
    weights = next(model_folder.glob("*.safetensors"))
    content = weights.read_bytes()
    length = 8 + int.from_bytes(content[:8], "little")
    weights.write_bytes(content[:length] + b"\xff" * (len(content) - length))  # NaN, every one
    assert run("inspect", model_folder).status == 0
    assert run("score", model_folder, "--null", "analytic").status == 2


A, B = Tensor("h.0.attn.weight", transposed=True), Tensor("down.weight")


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        (A, "h.0.attn.weight transposed"),
        (Tensor("experts.weight", index=3), "experts.weight[3]"),
        (take_rows(B, [*range(4), *range(12, 16)]), "rows 0-3, 12-15 of down.weight"),
        (take_rows(B, [k for k in range(40) if k % 8 < 2]), "rows 0-1, 8-9, 16-17 and 2 more runs of down.weight"),
        (take_rows(B, range(0, 12, 3)), "rows 0-9 by 3 of down.weight"),
        (Scaled(B, 0.125), "0.125 × down.weight"),
        (Gained(B, "norm.weight"), "down.weight · diag(norm.weight)"),
        (Gained(B, "q_norm.weight", offset=1.0, rows=True), "diag(1 + q_norm.weight) · down.weight"),
        (Biased(B, Column("down.bias")), "[down.weight, down.bias]"),
        (Sum((B, Product((A, B)))), "down.weight + (h.0.attn.weight transposed · down.weight)"),
        (Stacked((A, B)), "h.0.attn.weight transposed above down.weight"),
    ],
)
def test_expressions_in_words(expression, words):
    assert in_words(expression) == words


def test_score_of_several_circuits_prints_and_writes_each(run, tmp_path):
    nc = tmp_path / "scores.nc"
    ran = run("score", "demo", "--null", "analytic", "--matrices", "none", "--circuits", "ov, key", "-o", nc)
    assert ran.status == 0
    for symbol in ("W_QK", "W_OV", "W_K"):
        assert f"\n{symbol}\n" in ran.out
    assert "16 of 16 key heads differ from random key heads" in ran.out
    assert open_table(nc, "scores").identical(
        rmtbase.score("demo", "analytic", matrices="none", circuits=("ov", "key"))
    )
    rows = csv.DictReader(io.StringIO(run("export", nc, "--group", "key", "--statistic", "trace").out))
    assert len(list(rows)) == 16


def test_score_of_several_circuits_as_json(run):
    options = ("--null", "analytic", "--matrices", "none", "--json")
    printed = json.loads(run("score", "demo", *options, "--circuits", "output").out)
    tree = rmtbase.score("demo", "analytic", matrices="none", circuits=("output",))
    assert printed["sentences"] == summarize_scores(tree).sentences()
    assert list(printed["circuits"]) == ["output"]
    assert printed["circuits"]["output"]["sentences"] == summarize_scores(circuit_scores(tree, "output")).sentences()
    assert "stack" not in printed["findings"][0]
