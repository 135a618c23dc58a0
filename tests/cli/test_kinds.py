"""``rmtbase composition``, ``depth``, ``diff`` and the scores of updates: a table for the reader, JSON and a file."""

import csv
import io
import json
import re

import numpy as np
import pytest
from safetensors.numpy import save_file
from strict import strict_json

import rmtbase
from rmtbase.models import open_model
from rmtbase.results import open_table
from rmtbase.results.composition import composition
from rmtbase.results.composition.report import summarize_composition
from rmtbase.results.depth import depth
from rmtbase.results.diff import diff

MODULES = ("self_attn.q_proj", "self_attn.v_proj")
QUICKLY = ("--matrices", "none", "--null", "analytic")
QUICK = ("--max-depth", 6, "--draws", 39, "--component", "attention_query")


def test_the_strongest_pairs_are_printed_and_all_are_written(run, tmp_path):
    nc = tmp_path / "pairs.nc"
    ran = run("-v", "composition", "demo", "-o", nc)
    assert ran.status == 0
    expected = composition("demo")
    assert open_table(nc, "composition").identical(expected)
    surviving = summarize_composition(expected).surviving
    assert f"{len(surviving)} of 1152 pairs of heads compose beyond chance" in ran.out
    first = surviving[0]
    assert any(
        all(text in line for text in (first.earlier, first.later, f"{first.score:.4f}", f"{first.p_value:.1e}"))
        for line in ran.out.splitlines()
    )
    said = " ".join(ran.out.split())
    for words in ("family-wise sure, so that even one false pair", "reads less of what the earlier one writes"):
        assert words in said
    assert run("plot", nc, "-o", tmp_path / "figures").status == 0
    drawn = {path.name for path in (tmp_path / "figures").iterdir()}
    assert drawn == {f"pairs-composition{end}.png" for end in ("", "-by-layer", "-graph")}
    rows = list(csv.DictReader(io.StringIO(run("export", nc).out)))
    assert len(rows) == 1152
    one = rows[100]
    there = expected.sel(kind=one["kind"], earlier=one["earlier"], later=one["later"])
    assert float(one["score"]) == there["score"].item() and float(one["q_value"]) == there["q_value"].item()


def test_a_random_model_has_nothing_to_list(run):
    ran = run("composition", "demo@step-0", "--kinds", "k", "--json")
    printed = strict_json(ran.out)
    assert printed["surviving"] == []
    (kind,) = printed["kinds"]
    assert (kind["kind"], kind["pairs"], kind["surviving"]) == ("k", 384, 0)
    assert "0 of 384 pairs" in run("composition", "demo@step-0", "--kinds", "k").out


def test_a_layer_or_a_head_is_asked_for_and_every_pair_is_tested_and_written(run, tmp_path):
    nc, page = tmp_path / "pairs.nc", tmp_path / "pairs.html"
    ran = run("composition", "demo", "--layer", 2, "--head", 5, "--json", "-o", nc, "-o", page)
    printed, whole = strict_json(ran.out), composition("demo")
    assert open_table(nc, "composition").identical(whole)
    everything = summarize_composition(whole).surviving
    expected = [one for one in everything if "L2H5" in (one.earlier, one.later)]
    assert [(one["earlier"], one["later"], one["q_value"]) for one in printed["surviving"]] == [
        (one.earlier, one.later, one.q_value) for one in expected
    ]
    assert 0 < len(expected) < len(everything)
    assert f"{len(expected)} of 72 pairs with a head of layer 2 head 5" in printed["sentences"][0]
    assert "pairs with a" in page.read_text() and "L2H4" not in page.read_text().partition("<script")[0]


def test_depths_are_printed_written_and_drawn(run, model_folder, tmp_path):
    path = tmp_path / "depth.nc"
    ran = run("-v", "depth", model_folder, *QUICK, "-o", path)
    assert ran.status == 0
    assert f"rmtbase: wrote {path}" in ran.err
    assert "fits" in ran.out
    assert len([line for line in ran.out.splitlines() if "attention_query " in line and "×" in line]) == 2
    assert "Matrices of all 2 layers: attention_query; --component also takes attention_key." in ran.out
    expected = depth(str(model_folder), depths=range(1, 7), draws=39, components=["attention_query"])
    assert open_table(path).identical(expected)
    assert f"{expected['distance'].values[0, 0]:.4f}" in ran.out
    assert run("plot", path, "-o", tmp_path / "figures").status == 0
    assert [one.name for one in (tmp_path / "figures").iterdir()] == ["depth-effective-depth.png"]


def test_interval_of_a_matrix_that_no_depth_fits_is_there_and_said_to_be_none(run, model_folder):
    ran = run("-v", "depth", model_folder, "--max-depth", 2, "--draws", 39, "--component", "attention_query")
    rows = [line for line in ran.out.splitlines() if "no depth" in line and "×" in line]
    assert rows
    assert all(re.search(r"\(\d+–\d+\)", row) for row in rows)
    assert "no confidence interval" in ran.out
    printed = strict_json(run("depth", model_folder, "--max-depth", 2, "--draws", 39, "--json").out)
    assert "no confidence interval" in printed["interval"]
    ran = run("depth", model_folder, "--max-depth", 2, "--draws", 39)
    assert "Matrices of all 2 layers: attention_query, attention_key." in ran.out


def test_json_of_depths_holds_every_matrix(run, weights, tmp_path):
    weights.keys[0] = 0.0
    folder = weights.save(tmp_path / "model")
    ran = run("depth", folder, "--max-depth", 6, "--draws", 39, "--sigma", 0.5, "--sigma", 1, "--json")
    printed = strict_json(ran.out)
    assert printed["depths"] == [1, 2, 3, 4, 5, 6]
    assert [(one["layer"], one["component"]) for one in printed["matrices"]] == [
        (layer, component) for layer in range(2) for component in ("attention_query", "attention_key")
    ]
    assert printed["matrices"][1]["effective_depth"] is None
    assert "layer 0 attention_key" in printed["warnings"][0]
    first = printed["matrices"][0]
    assert first["sigma"] in (0.5, 1.0)
    assert isinstance(first["effective_depth"], int)
    assert isinstance(first["fits"], bool)
    assert np.isfinite(first["p_value"])


@pytest.mark.exhaustive
def test_depths_beyond_the_law_of_an_update_are_refused(run, model_folder):
    ran = run("depth", model_folder, "--part", "update", "--max-depth", 18)
    assert (ran.status, "at depth 18" in ran.err) == (2, True)


def test_changes_are_printed_written_and_drawn(run, weights, tmp_path):
    before = weights.save(tmp_path / "before")
    weights.keys[...] += 0.1 * np.random.default_rng(1).standard_normal(weights.keys.shape)
    after = weights.save(tmp_path / "after")
    path = tmp_path / "changes.nc"
    ran = run("-v", "diff", before, after, "-o", path)
    assert ran.status == 0
    expected = diff(str(before), str(after))
    assert open_table(path).identical(expected)
    median = expected["matrices"]["relative_change"].sel(component="attention_key").median().item()
    assert any("attention_key" in line and f"{median:.3g}" in line for line in ran.out.splitlines())
    assert "2 are the same in both" in ran.out
    change = expected["heads"]["relative_change_qk"]
    first = {name: int(place) for name, place in change.argmax(...).items()}
    assert ran.out.splitlines()[1].startswith(
        "Heads whose W_QK changed most, by the norm of its change over its norm before: "
        f"layer {first['layer']} head {first['head']} ({change.max().item():.2g})"
    )
    assert "W_OV" not in ran.out.partition("What the words mean")[0], "the model has no values"
    assert run("plot", path, "-o", tmp_path / "figures").status == 0
    drawn = {one.name for one in (tmp_path / "figures").iterdir()}
    assert drawn == {
        f"changes-{name}.png"
        for name in ("changes", "changes-of-heads", "old-directions", "old-directions-of-heads", "shares-of-heads")
    }


def test_json_of_changes_has_each_component(run):
    ran = run("diff", "demo@step-0", "demo@step-0", "--component", "attention_value", "--json")
    printed = strict_json(ran.out)
    (row,) = printed["matrices"]
    assert (row["component"], row["matrices"], row["unchanged"]) == ("attention_value", 4, 4)
    assert row["effective_rank"] is None and row["flagged_in"] is None


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
