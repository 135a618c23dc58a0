"""What can be judged before the work is judged before it: no weight is measured or proved, and nothing is drawn."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from rmtbase.models import demo_revisions
from rmtbase.models.files._demo import demo_checkpoint

DATA = Path(__file__).parents[1] / "data"


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


CONDITIONS = [
    ("layer +", "a condition on"),
    ("sigma > 1", "a condition on"),
    ("p_value", "true or false"),
    ("@layer", "a condition on"),
    ("layer == 9", "a layer that is there: 0, 1, 2, 3"),
    ("head in [8, 9] and differs", "a head that is there: 0, 1, 2, 3, 4, 5, 6, 7"),
]
UNMET = [(command, *case) for command in ("score", "signal", "trajectory") for case in CONDITIONS]
UNMET += [
    ("signal --circuits ov", "what == 'query'", "a what that is there: qk, ov"),
    ("signal --circuits key", "what == 'key' and head == 9", "a head that is there"),
    ("trajectory", "step == 7", f"a step that is there: {', '.join(name[5:] for name in demo_revisions()[:2])}"),
]


@pytest.mark.parametrize(("command", "condition", "words"), UNMET)
def test_a_condition_that_no_head_can_meet_is_refused_before_the_work(command, condition, words, run, no_work):
    name, *options = command.split()
    ran = run(name, "demo", *options, "--fail-if", condition)
    assert ran.status == 2 and f"fail_if = {condition!r}: expected" in ran.err and words in ran.err


def test_conditions_that_a_head_may_meet_are_none_of_the_errors(run, no_work):
    for command in ("score", "signal", "trajectory"):
        for condition in ("layer == 3 and not differs", "reason == '' and p_value < 0.1", "layer != 9 and head == 0"):
            with pytest.raises(pytest.fail.Exception, match="work before"):
                run(command, "demo", "--fail-if", condition)
    Path("run.nc").write_bytes(b"")  # steps of an earlier file are judged when it is written
    assert "a step that" not in run("trajectory", "demo", "-o", "run.nc", "--fail-if", "step == 7").err


READING = ["score {}", "signal {}", "composition {}", "depth {}", "diff demo {}", "score {} --minus demo"]
READING += ["trajectory {}/.. -o run.nc"]
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
    ran = run(*command.format(demo_with(change)).split())
    assert ran.status == 2 and words in ran.err


def test_a_tensor_that_is_not_read_may_hold_anything(run, demo_with, no_work):
    model = demo_with(lambda tensors: np.put(tensors[VALUES], 5, np.nan))
    with pytest.raises(pytest.fail.Exception, match="work before"):
        run("score", model, "--matrices", "none")


def test_a_missing_tensor_beside_the_others_of_its_layer_needs_no_network(run, demo_with, monkeypatch):
    from rmtbase.models.forward._torch_route import Network

    monkeypatch.setattr(Network, "of_config", lambda *arguments: pytest.fail("PyTorch is imported"))
    for name in (QUERIES, "model.layers.1.self_attn.o_proj.weight", "model.layers.0.mlp.down_proj.weight"):
        ran = run("inspect", demo_with(lambda tensors, name=name: tensors.pop(name)))
        assert ran.status == 2 and f"{name}', which a llama model has, is not in this checkpoint (layer " in ran.err


def test_a_tokenizer_that_cannot_be_read_is_found_before_the_work(run, demo_with, no_work):
    model = demo_with(lambda tensors: None, tokenizer=json.dumps({"model": {"vocab": 3}}))
    ran = run("signal", model, "--directions", "2")
    assert ran.status == 2
    assert "tokenizer.json: found model = {'vocab': 3}; expected an object with a table or a list vocab" in ran.err
    model = demo_with(lambda tensors: np.put(tensors["model.embed_tokens.weight"], 0, np.nan))
    ran = run("signal", model, "--directions", "2")
    assert "'model.embed_tokens.weight' holds 1 NaN" in ran.err
