"""What can be judged before the work is judged before it: no weight is measured or proved, and nothing is drawn."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from rmtbase.models import Difference, Model, demo_revisions
from rmtbase.models.files._demo import demo_checkpoint
from rmtbase.montecarlo import _cache, _compute

DATA = Path(__file__).parents[1] / "data"
SCORES = DATA / "scores.nc"


@pytest.fixture
def no_work(monkeypatch):
    """Work that fails the test: proving, reading a matrix, drawing."""

    def work(*arguments, **keywords):
        pytest.fail("work before everything was judged")

    for model in (Model, Difference):
        for name in ("matrix", "stored_matrix", "blocks"):
            if name in vars(model):
                monkeypatch.setattr(model, name, work)
    monkeypatch.setattr(Model, "prove", work)
    monkeypatch.setattr(_cache.CachedTable, "make", work)
    monkeypatch.setattr(_compute, "compute_chunk", work)


@pytest.fixture
def demo_with(tmp_path):
    """The bundled model with changed tensors, or files beside them."""

    def write(change, **files):
        folder, _ = demo_checkpoint(None)
        tensors = {name: tensor.copy() for name, tensor in load_file(folder / "model.safetensors").items()}
        change(tensors)
        model = tmp_path / "run" / "step-1"
        model.mkdir(parents=True, exist_ok=True)
        (model / "config.json").write_bytes((folder / "config.json").read_bytes())
        save_file(tensors, model / "model.safetensors")
        for name, content in files.items():
            (model / f"{name}.json").write_text(content)
        return model

    return write


def test_demo_would_be_measured_if_all_is_well(run, no_work):
    with pytest.raises(pytest.fail.Exception, match="work before"):
        run("score", "demo")


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("layer +", "a condition on"),
        ("sigma > 1", "a condition on"),
        ("p_value", "true or false"),
        ("layer == 9", "a layer that is there: 0, 1, 2, 3"),
        ("head in [8, 9] and differs", "a head that is there: 0, 1, 2, 3, 4, 5, 6, 7"),
    ],
)
@pytest.mark.parametrize("command", ["score", "signal", "trajectory"])
def test_a_condition_that_no_head_can_meet_is_refused_before_the_work(command, condition, words, run, no_work):
    ran = run(command, "demo", "--fail-if", condition)
    assert ran.status == 2
    assert f"fail_if = {condition!r}: expected" in ran.err
    assert words in ran.err


@pytest.mark.parametrize(
    ("command", "condition", "words"),
    [
        ("signal --circuits ov", "what == 'query'", "a what that is there: qk, ov"),
        ("signal --circuits key", "what == 'key' and head == 9", "a head that is there"),
        ("trajectory", "step == 7", f"a step that is there: {', '.join(name[5:] for name in demo_revisions()[:2])}"),
    ],
)
def test_so_are_circuits_and_steps(command, condition, words, run, no_work):
    name, *options = command.split()
    ran = run(name, "demo", *options, "--fail-if", condition)
    assert ran.status == 2
    assert words in ran.err


def test_conditions_that_a_head_may_meet_are_none_of_the_errors(run, no_work):
    for command in ("score", "signal", "trajectory"):
        for condition in ("layer == 3 and not differs", "reason == '' and p_value < 0.1", "layer != 9 and head == 0"):
            with pytest.raises(pytest.fail.Exception, match="work before"):
                run(command, "demo", "--fail-if", condition)


def test_steps_of_an_earlier_file_may_be_meant(run, no_work, tmp_path):
    """A trajectory that goes on from a file has its steps, too: they are judged when it is written."""
    (tmp_path / "run.nc").write_bytes(b"")
    ran = run("trajectory", "demo", "-o", tmp_path / "run.nc", "--fail-if", "step == 7")
    assert "a step that is there" not in ran.err


READING = {
    "score": ("score", "{model}"),
    "signal": ("signal", "{model}"),
    "composition": ("composition", "{model}"),
    "depth": ("depth", "{model}"),
    "diff": ("diff", "demo", "{model}"),
    "minus": ("score", "{model}", "--minus", "demo"),
    "trajectory": ("trajectory", "{run}", "-o", "run.nc"),
}
VALUES, QUERIES = "model.layers.3.self_attn.v_proj.weight", "model.layers.3.self_attn.q_proj.weight"


@pytest.mark.parametrize("command", READING)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda tensors: np.put(tensors[VALUES], 5, np.nan), f"'{VALUES}' holds 1 NaN and 0 infinite values"),
        (lambda tensors: np.put(tensors[QUERIES], [1, 2], np.inf), f"'{QUERIES}' holds 0 NaN and 2 infinite values"),
        (lambda tensors: tensors.update({VALUES: tensors[VALUES].astype(np.int16)}), "element type I16"),
        (lambda tensors: tensors.pop(QUERIES), f"'{QUERIES}', which a llama model has, is not in this checkpoint"),
    ],
    ids=["nan", "infinite", "integers", "missing"],
)
def test_a_weight_that_is_no_number_is_found_before_the_work(command, change, words, run, demo_with, no_work):
    model = demo_with(change)
    ran = run(*(word.format(model=model, run=model.parent) for word in READING[command]))
    assert ran.status == 2
    assert words in ran.err


def test_a_tensor_that_is_not_read_may_hold_anything(run, demo_with, no_work):
    model = demo_with(lambda tensors: np.put(tensors[VALUES], 5, np.nan))
    for options in (("score", "--matrices", "none"), ("composition", "--kinds", "q")):
        command, *more = options
        if command == "score":
            with pytest.raises(pytest.fail.Exception, match="work before"):
                run(command, model, *more)
        else:  # which reads what heads write, W_O W_V
            assert VALUES in run(command, model, *more).err


def test_a_missing_tensor_beside_the_others_of_its_layer_needs_no_network(run, demo_with, monkeypatch):
    from rmtbase.models.forward._torch_route import Network

    monkeypatch.setattr(Network, "of_config", lambda *arguments: pytest.fail("PyTorch is imported"))
    for name in (QUERIES, "model.layers.1.self_attn.o_proj.weight", "model.layers.0.mlp.down_proj.weight"):
        ran = run("inspect", demo_with(lambda tensors, name=name: tensors.pop(name)))
        assert ran.status == 2
        assert f"{name}', which a llama model has, is not in this checkpoint (layer " in ran.err


BAD = {
    "score": (
        ("--matrices", "x"), ("--elements", "x"), ("--components", "x"), ("--components", "experts"),
        ("--circuits", "x"), ("--why", "x"), ("--null", "x"), ("--null", "missing.nc"), ("--initialization", "x"),
        ("--initialization", "orthogonal", "--why", "all"), ("--initialization", "orthogonal", "--elements", "heads"),
        ("--null", "axes", "--circuits", "key"), ("--draws", "0"), ("--seed", "-1"), ("--fold", "x"),
        ("--adapter", "x"), ("--base", "x"), ("--minus", "x"), ("-o", "missing/scores.nc"), ("-o", "-"),
    ),
    "signal": (
        ("--matrices", "x"), ("--circuits", "x"), ("--level", "2"), ("--null", "axes"), ("--draws", "0"),
        ("--seed", "-1"), ("--initialization", "orthogonal"), ("--directions", "-1"), ("--format", "x"),
        ("--format", "peft", "--matrices", "none"), ("-o", "missing/signal.nc"),
        ("--null", "signs", "--initialization", "uniform"),
    ),
    "composition": (("--kinds", "x"), ("--level", "2"), ("--level", "nan"), ("--fold", "x"), ("-o", "missing/c.nc")),
    "depth": (
        ("--sigma", "0"), ("--max-depth", "0"), ("--part", "x"), ("--component", "x"), ("--draws", "1"),
        ("--level", "0"), ("--seed", "-1"), ("-o", "missing/d.nc"),
    ),
    "diff": (("demo", "--component", "x"), ("demo", "--level", "0"), ("demo", "-o", "missing/d.nc"), ("x",)),
    "trajectory": (
        ("--revisions", "x"), ("--null", "x"), ("--null", "missing.nc"), ("--null", "gaussian,gaussian"),
        ("--matrices", "x"), ("--components", "x"), ("--circuits", "x"), ("--elements", "x"), ("--workers", "x"),
        ("--draws", "0"), ("--seed", "-1"), ("--fold", "x"), ("-o", "missing/t.nc"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("command", "options"), [(command, options) for command, several in BAD.items() for options in several], ids=str
)
def test_every_option_is_judged_before_the_work(command, options, run, no_work):
    ran = run(command, "demo", *options)
    assert ran.status == 2
    assert ran.err.startswith("rmtbase: error: ")


def test_a_tokenizer_that_cannot_be_read_is_found_before_the_work(run, demo_with, no_work):
    model = demo_with(lambda tensors: None, tokenizer=json.dumps({"model": {"vocab": 3}}))
    ran = run("signal", model, "--directions", "2")
    assert ran.status == 2
    assert "tokenizer.json: found model = {'vocab': 3}; expected an object with a table or a list vocab" in ran.err
    ran = run(
        "signal",
        demo_with(lambda tensors: np.put(tensors["model.embed_tokens.weight"], 0, np.nan)),
        "--directions",
        "2",
    )
    assert "'model.embed_tokens.weight' holds 1 NaN" in ran.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--format", "x"), "format = 'x'"),
        (("--dpi", "1"), "dpi = 1.0"),
        (("--width", "-1"), "width = -1.0"),
        (("--theme", "x"), "theme = 'x'"),
        (("--style", "missing.mplstyle"), "missing.mplstyle"),
        (("--only", "x"), "--only = 'x'"),
        (("-o", "figures.txt"), "expected a name that ends in"),
        (("-o", "missing/figures.pdf"), "the folder missing does not exist"),
        (("-o", "taken.pdf"), "a file that is no PDF of rmtbase is there"),
        (("-o", "taken.pdf/figures"), "cannot write taken.pdf/figures"),
        (("-o", "figures.svg"), "one figure for a file of format svg"),
        (("-o", "-"), "one figure for a file of format png"),
        (("-o", "x.pdf", "--format", "png"), "format = 'png'"),
    ],
    ids=str,
)
def test_where_figures_go_is_judged_before_they_are_drawn(options, words, run, monkeypatch):
    from rmtbase.results import figures

    Path("taken.pdf").write_text("not a figure")
    monkeypatch.setattr(figures, "draw_figures", lambda *arguments: pytest.fail("a figure is drawn"))
    ran = run("plot", DATA / "scores.nc", *options)
    assert ran.status == 2
    assert words in ran.err


@pytest.mark.parametrize(
    "options",
    [
        (DATA / "missing.nc",), (DATA / "baseline.nc",), (SCORES, "--permutations", "0"), (SCORES, "--seed", "-1"),
        (SCORES, "--group", "a"), (SCORES, "--training", "x=1,2,3"), (SCORES, "--initial", "x.nc"),
        (SCORES, "-o", "missing/c.nc"), (SCORES, "--paired"), ("--group", f"a={SCORES}"),
    ],
    ids=str,
)  # fmt: skip
def test_a_comparison_is_judged_before_it_is_made(options, run, monkeypatch):
    from rmtbase.results.comparison import measure

    for name in ("fitted_matrices", "common_origin", "compare_two", "grouped_tables"):
        monkeypatch.setattr(measure, name, lambda *arguments, **keywords: pytest.fail("models are compared"))
    assert run("compare", *options).status == 2
