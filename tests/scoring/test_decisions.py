"""What to train: modules in which something was learned, and of a random model none."""

import json
import re

import numpy as np
import pytest
from safetensors.numpy import save_file

from rmtbase.errors import ParameterError
from rmtbase.models import open_model
from rmtbase.results import open_table
from rmtbase.results.signal import signal
from rmtbase.results.signal._decisions import decisions_text, learned_modules


@pytest.fixture(scope="module")
def demo():
    return open_model("demo", "step-200")


@pytest.fixture(scope="module")
def tree(request):
    return open_table(request.config.rootpath / "tests/data/signal.nc", "signal")


@pytest.fixture(scope="module")
def modules(demo, tree):
    return learned_modules(tree, demo)


def test_each_module_has_the_numbers_of_its_matrix(tree, modules):
    matrices = tree["matrices"].to_dataset()
    found = {one.name: one for one in modules}
    assert len(found) == 28
    row = matrices.sel(layer=2, component="mlp_out")
    one = found["model.layers.2.mlp.down_proj"]
    assert one.n_directions == row["n_directions"]
    assert one.share == pytest.approx(float(row["signal_share"]))
    assert one.p_value == row["first_p_value"]
    shares = [one.share for one in modules]
    assert shares == sorted(shares, reverse=True)


def test_modules_of_unknown_share_come_last(demo, tree, modules):
    changed = tree.copy(deep=True)
    shares = changed["matrices"]["signal_share"].values
    shares[np.unravel_index(np.nanargmax(shares), shares.shape)] = np.nan
    last = learned_modules(changed, demo)[-1]
    assert (last.name, np.isnan(last.share)) == (modules[0].name, True)


def test_ranks_are_numbers_of_directions(modules):
    settings = json.loads(decisions_text(modules, 0.05, "peft"))
    ranks = {one.name: one.n_directions for one in modules if one.q_value < 0.05}
    assert list(settings) == ["r", "target_modules", "rank_pattern"]
    assert settings["rank_pattern"] == ranks
    assert settings["target_modules"] == list(ranks)
    assert min(ranks.values()) <= settings["r"] <= max(ranks.values())


def test_patterns_name_the_parameters_of_the_model(demo, modules):
    text = decisions_text(modules, 0.05, "yaml")
    patterns = [json.loads(line.split("  # ")[0].removeprefix("  - ")) for line in text.splitlines()[2:]]
    names = [name for layer in range(4) for one in demo.components for name in demo.tensors(layer, one)]
    matched = [[name for name in names if re.match(pattern, name)] for pattern in patterns]
    assert matched == [[f"{one.name}.weight"] for one in modules if one.q_value < 0.05]


def test_of_a_random_model_nothing_is_named():
    model = open_model("demo", "step-0")
    modules = learned_modules(signal(open_model(model, proof=False), circuits=("qk",)), model)
    assert decisions_text(modules, 0.05, "yaml").splitlines()[1] == "unfrozen_parameters: []"
    assert json.loads(decisions_text(modules, 0.05, "peft")) == {"target_modules": [], "rank_pattern": {}}


def test_matrices_that_are_one_tensor_are_one_module():
    rng = np.random.default_rng(2)
    state = {f"h.{k}.attn.c_attn.weight": rng.standard_normal((32, 96)) for k in range(2)}
    state |= {f"h.{k}.attn.c_proj.weight": rng.standard_normal((32, 32)) for k in range(2)}
    state["h.1.attn.c_attn.weight"][0, :64] += 200.0  # queries and keys have learned one direction each
    model = open_model(state, family="gpt2", config={"n_head": 4})
    tree = signal(open_model(model, proof=False), circuits=("qk",))
    modules = {one.name: one for one in learned_modules(tree, model)}
    assert list(modules) == ["h.1.attn.c_attn", *(name for name in modules if name != "h.1.attn.c_attn")]
    assert set(modules) == {name.removesuffix(".weight") for name in state}
    one = modules["h.1.attn.c_attn"]
    assert one.n_directions == tree["matrices"]["n_directions"].sel(layer=1)[:3].sum() >= 2
    assert one.p_value == 3 * 1e-16
    assert 0.9 < one.share < 1.0


def test_a_module_of_an_adapter_has_the_rank_of_its_update(tmp_path):
    rng, folder = np.random.default_rng(2), tmp_path / "adapter"
    a, b = rng.standard_normal((20, 60)), rng.standard_normal((48, 20))
    b[:, 0] += 9.0  # of the twenty one has learned; a second is found in 5 % of seeds
    module = "model.layers.1.self_attn.q_proj"
    tensors = {f"base_model.model.{module}.lora_{side}.weight": one.astype("f4") for side, one in (("A", a), ("B", b))}
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 20, "lora_alpha": 8}))
    model = open_model(str(folder))
    (one,) = learned_modules(signal(model), model)
    assert (one.name, one.n_directions) == (module, 1)
    assert one.q_value < 1e-3


def test_what_it_cannot_be_made_of_is_named(demo, modules):
    with pytest.raises(ParameterError, match="no whole matrices"):
        learned_modules(signal(open_model(demo, proof=False), circuits=("qk",), matrices="none"), demo)
    with pytest.raises(ParameterError, match="one of peft, yaml"):
        decisions_text(modules, 0.05, "toml")
