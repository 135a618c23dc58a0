"""What cannot be tested is named with its reason, by every command and in every kind of file, and counted apart."""

import json
import re

import numpy as np
import pytest
from safetensors.numpy import save_file

from rmtbase.cli._app import app
from rmtbase.results import open_table
from rmtbase.tables import KINDS

D_MODEL, LAYERS = 32, 2
COMPONENTS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")

WITHOUT_TESTS = {"baseline", "cite", "constants", "demo", "doctor", "export", "inspect", "law", "plot"}
"""Commands that test nothing themselves; ``demo`` prints what ``score`` does."""


def write(folder, change=lambda tensors: None, d_head=8, n_heads=2, layers=LAYERS, d_model=D_MODEL):
    rng, wide, tensors = np.random.default_rng(0), n_heads * d_head, {}
    shapes = {
        **dict.fromkeys(COMPONENTS[:3], (wide, d_model)), "o_proj": (d_model, wide),
        **dict.fromkeys(COMPONENTS[4:6], (48, d_model)), "down_proj": (d_model, 48),
    }  # fmt: skip
    for layer in range(layers):
        for name, shape in shapes.items():
            part = "self_attn" if name[1:] == "_proj" else "mlp"
            drawn = 0.05 * rng.standard_normal(shape)
            tensors[f"model.layers.{layer}.{part}.{name}.weight"] = drawn.astype(np.float32)
    change(tensors)
    folder.mkdir(parents=True)
    settings = {
        "model_type": "llama", "hidden_size": d_model, "head_dim": d_head, "num_hidden_layers": layers,
        "num_attention_heads": n_heads, "num_key_value_heads": n_heads, "intermediate_size": 48,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(settings))
    save_file(tensors, folder / "model.safetensors")


def adapter(folder, rank=4):
    """A LoRA adapter of a rank below that of any law."""
    rng, tensors = np.random.default_rng(1), {}
    for layer in range(LAYERS):
        for name in ("q_proj", "v_proj"):
            place = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            tensors[f"{place}.lora_A.weight"] = rng.standard_normal((rank, D_MODEL)).astype(np.float32)
            tensors[f"{place}.lora_B.weight"] = rng.standard_normal((D_MODEL, rank)).astype(np.float32)
    folder.mkdir(parents=True)
    settings = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": ["q_proj", "v_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    save_file(tensors, folder / "adapter_model.safetensors")


def filled(value, *names, rows=slice(None)):
    """A change that fills matrices, or rows of them."""

    def change(tensors):
        for name, tensor in tensors.items():
            if any(f".{one}." in name for one in names):
                tensor[rows] = value

    return change


def first_head_of_zeros(tensors):
    tensors["model.layers.0.self_attn.q_proj.weight"][:8] = 0.0


def planted_queries(tensors):
    """Strong directions in the queries of layer 0: of 8 eigenvalues too few are left below them."""
    rng = np.random.default_rng(4)
    left, right = (np.linalg.qr(rng.standard_normal((size, 4)))[0] for size in (16, D_MODEL))
    tensors["model.layers.0.self_attn.q_proj.weight"] += ((left * [6.0, 2.0, 1.0, 0.5]) @ right.T).astype(np.float32)


def ternary(tensors):
    for tensor in tensors.values():
        tensor[:] = 0.05 * np.sign(np.round(tensor / 0.05))


def heavy(tensors):
    rng = np.random.default_rng(2)
    for tensor in tensors.values():
        tensor[:] = rng.standard_t(1.5, tensor.shape)


MADE = {
    "plain": {},
    "a head of zeros": {"change": first_head_of_zeros},
    "queries of zeros": {"change": filled(0.0, "q_proj")},
    "zeros": {"change": filled(0.0, *COMPONENTS)},
    "constant": {"change": filled(0.02, *COMPONENTS)},
    "planted": {"change": planted_queries},
    "ternary": {"change": ternary},
    "heavy": {"change": heavy},
    "d_head 1": {"d_head": 1, "n_heads": 4},
    "d_head 2": {"d_head": 2, "n_heads": 4},
    "d_head 4": {"d_head": 4, "n_heads": 4},
    "one layer": {"layers": 1},
    "one head": {"n_heads": 1},
    "all directions": {"n_heads": 1, "d_head": 16, "d_model": 16},
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    for name, options in MADE.items():
        write(folder / name, **options)
    adapter(folder / "adapter")
    return folder


ZEROS, SHORT = "zeros", "too short for any law (8 needed)"
CASES = [
    # command, model, options, tests, of which cannot be made, what the reason says
    ("score", "a head of zeros", ("--matrices", "none"), 4, 1, "W_Q is zeros"),
    ("score", "zeros", ("--matrices", "none"), 4, 4, "W_Q and W_K are zeros"),
    ("score", "heavy", ("--matrices", "none", "--null", "kurtosis"), 4, 4, "excess kurtosis"),
    ("score", "plain", ("--matrices", "none", "--null", "signs", "--draws", 19), 4, 4, "19 draws"),
    ("score", "one head", ("--matrices", "none", "--null", "signs", "--draws", 9), 2, 2, "(20 needed)"),
    ("signal", "adapter", (), 20, 20, SHORT),
    ("signal", "d_head 1", ("--matrices", "none"), 48, 48, "a spectrum of length 1 is " + SHORT),
    ("signal", "d_head 2", ("--matrices", "none", "--circuits", "qk"), 8, 8, "a spectrum of length 2 is " + SHORT),
    ("signal", "d_head 4", ("--circuits", "qk"), 22, 8, "a spectrum of length 4 is " + SHORT),
    ("signal", "a head of zeros", ("--matrices", "none", "--circuits", "qk"), 4, 1, ZEROS),
    ("signal", "zeros", (), 38, 38, ZEROS),
    ("composition", "queries of zeros", (), 12, 8, "reads nothing"),
    ("composition", "zeros", (), 12, 12, "writes nothing"),
    ("depth", "zeros", ("--draws", 19), 14, 14, ZEROS),
    ("depth", "queries of zeros", ("--draws", 19, "--component", "attention_query"), 2, 2, ZEROS),
]  # fmt: skip


@pytest.mark.parametrize(("command", "model", "options", "total", "untested", "reason"), CASES)
def test_what_cannot_be_tested_is_named_and_counted_apart(
    command, model, options, total, untested, reason, made, run, null_file
):
    if command == "score" and "--null" not in options:
        options = (*options, "--null", null_file)
    ran = run(command, made / model, *options)
    said = " ".join(ran.out.split())
    assert ran.status == 0
    assert f"{untested} of {total} " in said and "cannot be tested: " in said and reason in said
    assert not re.search(r"\b(None of|No|Something was learned)\b", said.partition("cannot be tested")[0]) or (
        untested < total and "testable" in said
    )
    tested, of_scores = total - untested, command == "score"
    if tested:
        assert ("testable" if of_scores else f" of {tested} testable ") in said
    else:
        assert (" cannot be told. Not tested: " if of_scores else f"{total} of {total} ") in said
    printed = json.loads(run(command, made / model, *options, "--json").out)
    assert len(printed["not_testable"]) == untested
    assert len({one["place"] for one in printed["not_testable"]}) == untested
    assert all(reason in one["reason"] for one in printed["not_testable"])
    assert any("cannot be tested" in line for line in printed["sentences"])


def test_overlaps_and_elements_without_a_test_are_no_finding_of_none(made, run, null_file):
    printed = json.loads(run("composition", made / "all directions", "--json").out)
    assert printed["sentences"][0].startswith("0 of 3 pairs of heads compose beyond chance")
    assert [one["overlapping"] for one in printed["kinds"]] == [None] * 3
    assert printed["not_testable"] == [] and len(printed["overlaps_not_testable"]) == 3
    assert "every rotation gives the same number" in printed["overlaps_not_testable"][0]["reason"]
    options = ("--null", null_file)
    said = " ".join(run("score", made / "constant", *options).out.split())
    assert "Elements: 14 of 14 weight matrices cannot be tested: constant" in said
    assert "whether single elements stand apart cannot be tested" in said
    assert "No element stands apart" not in said
    printed = json.loads(run("score", made / "constant", *options, "--json").out)["elements"]
    assert printed["n_differing"] is None and printed["flagged"] == {}
    assert len(printed["not_testable"]) == len(printed["without_tail"]) == 14
    printed = json.loads(run("score", made / "ternary", *options, "--json").out)["elements"]
    assert printed["n_matrices"] == 14 and printed["not_testable"] == []
    assert "weibull_shape" not in printed["flagged"] and printed["flagged"]["excess_kurtosis"] == 14
    assert all("ties" in one["reason"] for one in printed["without_tail"])


def test_heads_without_a_number_of_directions_say_why(made, run, tmp_path):
    options = ("signal", made / "planted", "--matrices", "none", "--circuits", "query")
    said = " ".join(run("-v", *options, "-o", tmp_path / "signal.nc").out.split())
    why = "too few eigenvalues are left below the directions"
    assert "4 of 8 spectra have a learned direction" in said
    assert f"4 of 8 spectra have no number of directions: {why}." in said
    assert "query no number (2 of 4 have none)" in said and "among the" not in said and "?" not in said
    assert f"4 spectra without a number of directions: {why}" in said
    bounds = open_table(tmp_path / "signal.nc", "signal")["circuits/query/heads"]["learned_share_bound"]
    assert np.isfinite(bounds.values).tolist() == [[True, True], [False, False]]
    assert "rows scaled to one norm: query cannot tell (2 of 4 have a bound). At most 5 % of the bounds exceed" in said
    plain = run("signal", made / "plain", "--matrices", "none", "--circuits", "query").out
    assert "Learned share of each matrix of a head: cannot tell (0 of 4 have a bound beyond chance)." in plain
    printed = json.loads(run(*options, "--json").out)
    without = [one for one in printed["heads"] if one["n_directions"] is None]
    places = [(one["layer"], one["what"], one["head"]) for one in without]
    assert places == [(0, "qk", 0), (0, "qk", 1), (0, "query", 0), (0, "query", 1)]
    assert {(one["testable"], one["reason"], one["no_number"]) for one in without} == {(True, why, "too_few_left")}
    assert {(one["reason"], one["no_number"]) for one in printed["heads"] if one not in without} == {("", "")}
    table = open_table(tmp_path / "signal.nc", "signal")["circuits/query/heads"]
    assert table["reason"].values.tolist() == table["no_number"].values.tolist() == [["too_few_left"] * 2, [""] * 2]
    assert (np.isnan(table["n_directions"].values) == (table["no_number"].values != "")).all()


@pytest.mark.parametrize(
    ("condition", "status", "words"),
    [
        ("n_directions > 2", 4, "4 of 8 cannot be told to meet or not"),
        ("no_number != ''", 3, "4 of 8 meet"),
        ("what == 'query' and learned_share_bound > 0.3", 3, "2 of 8 meet"),
        ("what == 'query' and learned_share_bound > 0.95", 4, "2 of 8 cannot be told to meet or not"),
        ("what == 'query' and no_bound == '' and learned_share_bound > 0.95", 0, ""),
    ],
)
def test_the_gate_takes_unknown_numbers_and_bounds_for_unknown(condition, status, words, made, run):
    options = ("--matrices", "none", "--circuits", "query", "--fail-if", condition)
    ran = run("signal", made / "planted", *options)
    assert ran.status == status and words in ran.err


@pytest.mark.parametrize(
    ("before", "after", "reason"), [("plain", "plain", "the same in both"), ("zeros", "plain", "all zeros before")]
)
def test_changes_that_are_none_are_not_tested(before, after, reason, made, run):
    said = " ".join(run("-v", "diff", made / before, made / after).out.split())
    assert ("Cannot be told: how many directions" in said) == (before == "zeros")  # what is the same has been told
    assert f"14 of 14 matrices cannot be tested: {reason}" in said
    assert f"16 of 16 parts of heads cannot be tested: {reason}" in said
    printed = json.loads(run("diff", made / before, made / after, "--json").out)
    assert {row[f"flagged_{side}"] for row in printed["matrices"] for side in ("in", "out")} == {None}
    assert len(printed["not_testable"]) == 3 * (14 + 16) + 16 * (before == after)  # shares


def test_changes_that_sign_flips_cannot_judge_have_no_directions_but_other_tests(made, run, tmp_path):
    write(tmp_path / "moved", filled(0.01, "q_proj", rows=slice(0, 1)), d_head=4, n_heads=4)
    options = ("--component", "attention_query", "--json")
    printed = json.loads(run("diff", made / "d_head 4", tmp_path / "moved", *options).out)
    place = "layer 0 head 0 attention_query"
    lacking = {one["test"]: one["reason"] for one in printed["not_testable"] if one["place"] == place}
    assert lacking["directions"].startswith("sign flips leave the largest singular value as it is")
    assert "old directions of the inputs" not in lacking


@pytest.mark.exhaustive
def test_two_models_with_too_few_heads_cannot_be_told_apart_by_any_test(made, run, null_file, tmp_path):
    files = {name: tmp_path / f"{name.replace(' ', '-')}.nc" for name in ("plain", "heavy", "zeros")}
    for name, path in files.items():
        run("score", made / name, "--null", null_file, "-o", path)
    ran = run("-v", "compare", files["plain"], files["heavy"], files["zeros"])
    said = " ".join(ran.out.split())
    assert "RuntimeWarning" not in ran.err and "nan" not in said
    assert "plain and heavy: whether their heads differ cannot be tested: 8 ways to permute the heads" in said
    assert "plain and zeros: whether their heads differ cannot be tested: 0 key heads" in said
    assert "a common origin cannot be tested" in said and "no sign" not in said
    assert "? (4 not testable)" in said and "0 of 0" not in said
    printed = json.loads(run("compare", files["plain"], files["heavy"], files["zeros"], "--json").out)
    places = [one["place"] for one in printed["not_testable"]]
    assert "zeros: 4 heads" in places and "plain | heavy: heads" in places and "plain | zeros: common origin" in places
    models = {one["model"]: one for one in printed["models"]}
    assert models["zeros"]["untrained"] == 0  # without a tested head, that none differs says nothing


@pytest.mark.exhaustive
def test_two_seeds_of_each_recipe_give_no_p_value_below_the_level(made, run, null_file, tmp_path):
    files = [tmp_path / f"{k}.nc" for k in range(4)]
    for name, path in zip(("plain", "ternary", "heavy", "zeros"), files, strict=True):
        run("score", made / name, "--null", null_file, "-o", path)
    groups = ("--group", f"a={files[0]},{files[1]}", "--group", f"b={files[2]},{files[3]}")
    said = " ".join(run("compare", *groups).out.split())
    assert "nan" not in said
    assert "no measure can be tested" in said or "so few models cannot differ at 5 %" in said
    places = [one["place"] for one in json.loads(run("compare", *groups, "--json").out)["not_testable"]]
    assert "a | b: every measure by permutation" in places
    assert "a | b: largest_eigenvalue" in places  # of the model of zeros there is no value


def test_a_head_that_cannot_be_tested_at_the_last_step_has_not_stayed_at_the_null(made, run, null_file, tmp_path):
    folder = tmp_path / "run"
    write(folder / "step-0")
    write(folder / "step-10", lambda tensors: (heavy(tensors), first_head_of_zeros(tensors)))
    path = tmp_path / "traj.nc"
    ran = run("trajectory", folder, "--null", null_file, "--matrices", "none", "-o", path)
    said = " ".join(ran.out.split())
    assert " of 3 testable heads came to differ from random heads for good" in said
    assert "1 of 4 heads cannot be tested: W_Q is zeros, or rounding to them" in said
    printed = json.loads(run("trajectory", folder, "--null", null_file, "--matrices", "none", "-o", path, "--json").out)
    (departure,) = printed["departures"]
    assert departure["n_heads"] == 3
    assert [one["place"] for one in departure["not_testable"]] == ["layer 0 head 0"]
    assert [one["tested"] for one in printed["steps"]] == [{"gaussian": 4}, {"gaussian": 3}]
    assert (open_table(path)["heads"]["reason"].values != "").sum() == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("score", "d_head 1", "--matrices", "none"), "expected at least 2"),
        (("score", "d_head 4", "--null", "analytic"), "the laws need 8 or more"),
        (("composition", "one layer"), "expected two layers"),
        (("signal", "adapter", "--format", "peft"), "4 of 4 modules cannot be tested: a spectrum of length 4"),
        (("depth", "plain", "--draws", 9), "fewer cannot give a p-value of 0.05"),
    ],
)
def test_a_question_without_any_test_is_refused_with_its_reason(arguments, words, made, run):
    command, model, *options = arguments
    ran = run(command, made / model, *options)
    assert (ran.status, ran.out) == (2, "")
    assert words in ran.err


def test_every_command_is_looked_at():
    tested = {case[0] for case in CASES} | {"diff", "compare", "trajectory"}
    names = {command.name or command.callback.__name__.removeprefix("_") for command in app.registered_commands}
    assert names == tested | WITHOUT_TESTS


def test_every_group_with_p_values_has_a_place_for_why_there_are_none():
    # Entries that are there where something was found; verdicts, which have their own; and groups of models, whose
    # reason is their smallest_p_value, or a member without a value; and components, whose nearest_model is empty where
    # there are too few published ones.
    of_others = {"/super_weights", "/why", "/drifts", "/findings", "/components"}
    of_others |= {f"{along}/{name}" for along in ("", "/along") for name in ("between", "groups")}
    held_by = {"/departures": "/heads"}
    for kind in KINDS.values():
        for name, schema in kind.groups.items():
            tests = [one for one in schema if one.endswith("p_value")]
            if tests and name not in of_others:
                held = kind.groups[held_by.get(name, name)]
                assert any("reason" in one or "not_testable" in one for one in held), (kind.name, name)
