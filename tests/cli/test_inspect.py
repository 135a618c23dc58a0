"""``rmtbase inspect``, the circuits of ``rmtbase score``, and the next commands that are printed to be pasted."""

import csv
import io
import json
import re
import shlex
from dataclasses import asdict

import pytest
from strict import strict_json

import rmtbase
from rmtbase.models import Gained, Product, Scaled, Stacked, Tensor, inspect_model, open_model, take_rows
from rmtbase.models._inspection import in_words
from rmtbase.models.layouts._expressions import Biased, Column, Sum
from rmtbase.results import open_table
from rmtbase.results.scores import circuit_scores, render, summarize_scores


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
    printed = json.loads(run("inspect", "demo", "--json").out)
    assert printed == json.loads(json.dumps(asdict(inspect_model(open_model("demo")))))
    layers, outside = printed["layers"]
    assert (layers["layers"], outside["layers"]) == ([0, 1, 2, 3], [-1])
    assert layers["sizes"]["n_key_heads"] == 4 and layers["shapes"]["mlp_out"] == [128, 320]


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
    options = ("--null", "analytic", "--matrices", "none", "--json")
    printed = strict_json(run("score", "demo", *options, "--circuits", "output").out)
    tree = rmtbase.score("demo", "analytic", matrices="none", circuits=("output",))
    assert printed["sentences"] == summarize_scores(tree).sentences()
    assert list(printed["circuits"]) == ["output"]
    assert printed["circuits"]["output"]["sentences"] == summarize_scores(circuit_scores(tree, "output")).sentences()
    assert "stack" not in printed["findings"][0]


def commands_in(text):
    return [shlex.split(found) for found in re.findall(r"rmtbase (?:score|signal|law|baseline|constants)[^<\n]*", text)]


@pytest.fixture
def awkward(weights, tmp_path):
    return weights.save(tmp_path / "my model's folder")


@pytest.mark.exhaustive
def test_the_command_for_the_cause_names_the_model_and_runs(awkward, run):
    page = awkward.parent / "page.html"
    ran = run("score", awkward, "--matrices", "none", "-o", page)
    html = page.read_text().replace("&#39;", "'").replace("&#34;", '"')
    score, signal = (found for found in commands_in(html) if found[1] in ("score", "signal"))
    assert score == ["rmtbase", "score", str(awkward), "--matrices", "none", "-o", str(page), "--why", "all"]
    assert signal == ["rmtbase", "signal", str(awkward), "--directions", "2"]
    assert ran.status == run(*score[1:]).status == 0
    run("score", "demo@final", "--minus", "demo@step-0", "--matrices", "none", "-o", page)
    (signal,) = (found for found in commands_in(page.read_text()) if found[1] == "signal")
    assert signal == ["rmtbase", "signal", "demo@final", "--minus=demo@step-0", "--directions", "2"]


def test_python_names_the_folder_or_the_name_with_its_revision(awkward):
    model = open_model(awkward)
    tree = rmtbase.score(model, "analytic", matrices="none")
    html = render(tree, pictures=False, model=model).replace("&#39;", "'").replace("&#34;", '"')
    assert ["rmtbase", "score", str(awkward), "--why", "all"] in commands_in(html)
    demo = rmtbase.score("demo", "analytic", matrices="none")
    assert "rmtbase signal demo@final --directions 2" in render(demo, pictures=False)
    model = open_model("demo")
    heads = [model.by_head(0, name, model.matrix(0, f"attention_{name}")) for name in ("query", "key")]
    page = render(rmtbase.score_heads(*heads, "analytic"), pictures=False)
    assert "rmtbase.score(…, why=&#34;all&#34;)" in page and not commands_in(page)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (["score", "demo@step-200", "--matrices", "none", "--null", "analytic"], "score"),
        (["law", "--d-model", "64", "--d-head", "4"], "baseline"),
        (["constants", "--d-model", "768", "--d-head", "64"], "constants"),
    ],
)
def test_siblings_print_the_whole_command(given, name, run):
    ran = run(*given)
    assert ran.status == 0
    (command,) = (found for found in commands_in(ran.out) if found[1] == name)
    assert command[2 : 1 + len(given)] == given[1:]


@pytest.mark.parametrize("given", [["composition", "demo", "--kinds", "k"], ["diff", "demo@step-0", "demo@step-0"]])
def test_more_is_offered_by_a_whole_command_on_stderr_but_not_with_quiet(given, run):
    assert f"more, and what the words mean: rmtbase {shlex.join(given)} --verbose" in run(*given).err
    assert "--verbose" not in run("-q", *given).err
