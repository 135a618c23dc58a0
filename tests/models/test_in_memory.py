"""Modules and state dicts in memory: the same model as the one saved and read from disk, to the bit."""

import os
from collections import OrderedDict

import ml_dtypes
import numpy as np
import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import jax.numpy as jnp
import torch
import transformers

import rmtbase
from rmtbase.errors import CheckpointError, MissingTensorError, ParameterError, ShapeError, UnknownArchitectureError
from rmtbase.models import Checkpoint, open_model, require_other_files

PLAIN = {"vocab_size": 32, "hidden_size": 48, "num_attention_heads": 6, "num_hidden_layers": 2, "intermediate_size": 80}
OF_GPT2 = {"vocab_size": 32, "n_embd": 48, "n_head": 6, "n_layer": 2, "n_positions": 32}
MODULES = {
    "gpt2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(**OF_GPT2, bos_token_id=0, eos_token_id=0)),
    "gpt_neox": lambda: transformers.GPTNeoXModel(transformers.GPTNeoXConfig(**PLAIN)),
    "llama": lambda: transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**PLAIN, num_key_value_heads=2, tie_word_embeddings=True)
    ),
    "bert": lambda: transformers.BertForMaskedLM(transformers.BertConfig(**PLAIN)),
}
N_HEADS = {"gpt2": {"n_head": 6}}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}


def module_of(family, dtype=torch.float32):
    torch.manual_seed(5)
    return MODULES[family]().to(dtype)


def config_of(family):
    return N_HEADS.get(family, {"num_attention_heads": 6})


def assert_same_model(here, there):
    assert here.fingerprint() == there.fingerprint()
    assert (here.architecture, here.components, here.notes) == (there.architecture, there.components, there.notes)
    for size in ("n_layers", "n_heads", "n_key_heads", "d_model", "d_head"):
        assert getattr(here, size) == getattr(there, size)
    for layer in range(here.n_layers):
        for component in here.components:
            assert here.matrix(layer, component).tobytes() == there.matrix(layer, component).tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", MODULES)
def test_a_module_is_the_model_that_it_is_when_saved(family, dtype, tmp_path):
    module = module_of(family, DTYPES[dtype])
    module.save_pretrained(tmp_path)
    assert_same_model(open_model(module), open_model(tmp_path))


@pytest.mark.parametrize("family", MODULES)
def test_a_state_dict_needs_its_family_and_the_number_of_heads_alone(family, tmp_path):
    module = module_of(family, torch.bfloat16)
    module.save_pretrained(tmp_path)
    state = module.state_dict()
    assert_same_model(open_model(state, family=family, config=config_of(family)), open_model(tmp_path))
    assert_same_model(open_model(state, family=family, config=module.config), open_model(tmp_path))
    for rename in (
        lambda name: f"module.model.{name}",
        lambda name: name.partition(".")[2] if family != "gpt_neox" else name,
        lambda name: f"base_model.model._orig_mod.{name}",
        lambda name: name.replace(".0.", ".0._checkpoint_wrapped_module.").replace(".1.", ".1._fsdp_wrapped_module."),
    ):
        renamed = {rename(name): tensor for name, tensor in state.items()}
        assert_same_model(open_model(renamed, config=module.config.to_dict()), open_model(tmp_path))


def test_tensors_of_numpy_and_jax_are_read_too(tmp_path):
    module = module_of("gpt2", torch.bfloat16)
    expected = open_model(module)
    bits = {name: tensor.detach().view(torch.int16).numpy() for name, tensor in module.state_dict().items()}
    numpy = {name: array.view(ml_dtypes.bfloat16) for name, array in bits.items()}
    assert_same_model(open_model(numpy, family="gpt2", config={"n_head": 6}), expected)
    of_jax = {name: jnp.asarray(array) for name, array in numpy.items()}
    assert_same_model(open_model(of_jax, family="gpt2", config={"n_head": 6}), expected)


def test_what_is_no_tensor_is_passed_over_and_a_module_is_called_by_its_class_or_as_told():
    module = module_of("bert")
    model = open_model(module)
    state = OrderedDict(module.state_dict(), epoch=3, note="trained", extra=None)
    assert_same_model(open_model(state, config=module.config), model)
    assert_same_model(open_model(torch.nn.DataParallel(module)), model)
    for bad in ({"name": 3}, {"revision": 7}):
        with pytest.raises(ParameterError, match=f"{next(iter(bad))} = [37]: expected a text"):
            open_model(module, **bad)
    assert (model.name, model.files) == ("BertForMaskedLM", ())
    named = open_model(module, "step 7", name="mine")
    assert (named.name, named.revision) == ("mine", "step 7")
    assert open_model(state, config=module.config).name == "state dict"
    require_other_files([], model)


@pytest.mark.parametrize("given", ["module", "module with a configuration of its own", "state dict"])
def test_without_a_family_it_is_said_what_to_give(given):
    module = torch.nn.Linear(300, 300)
    if given == "module with a configuration of its own":
        module.config = {"n_head": 12}
    with pytest.raises(ParameterError) as caught:
        rmtbase.score(module.state_dict() if given == "state dict" else module)
    message = str(caught.value)
    assert caught.value.name == "family"
    for fragment in ("bert, gpt2, gpt_neox, llama", "config={'n_head': 12}", "inputs=", "score_heads", "split_qkv"):
        assert fragment in message
    assert "tensor(" not in message
    assert len(message) < 600


@pytest.mark.parametrize(
    ("change", "error", "fragments"),
    [
        ({"family": "opd"}, ParameterError, ["family = 'opd'", "such as opt", "bert, gpt2"]),
        ({"family": "gpt2", "config": {"model_type": "llama"}}, ParameterError, ["'llama'", "configuration"]),
        ({"config": {"model_type": "opd"}}, UnknownArchitectureError, ["'opd'", "score_heads"]),
        ({"family": "gpt2", "config": 12}, ParameterError, ["config = 'int'", "{'n_head': 12}"]),
        ({"family": "gpt2"}, CheckpointError, ["config: no n_head or num_attention_heads"]),
        ({"family": "llama", "config": {"num_attention_heads": 6}}, MissingTensorError, ["q_proj.weight", "llama"]),
        ({"family": "gpt2", "config": {"n_head": 5}}, CheckpointError, ["config: n_layer = 2, n_head = 5"]),
        ({"family": "gpt2", "config": {"n_head": 6, "n_layer": 3}}, MissingTensorError, ["config: 3 layers"]),
        ({"family": "gpt2", "config": {"n_head": 6, "n_embd": 60}}, ShapeError, ["(48, 144)", "n_embd = 60"]),
        ({"family": "gpt2", "config": {"n_head": 6, "quantization_config": {"a": 1}}}, CheckpointError, ["quantised"]),
    ],
)
def test_what_does_not_fit_is_refused_as_in_files(change, error, fragments):
    with pytest.raises(error) as caught:
        open_model(module_of("gpt2").state_dict(), **change)
    for fragment in fragments:
        assert fragment in str(caught.value)
    assert "tensor(" not in str(caught.value)


def test_values_that_are_no_weights_are_named():
    state = module_of("gpt2").state_dict()
    name = "transformer.h.1.attn.c_attn.weight"
    options = {"family": "gpt2", "config": {"n_head": 6}}
    with pytest.raises(CheckpointError, match=r"h\.1\.attn\.c_attn\.weight' has element type I8"):
        open_model(state | {name: state[name].to(torch.int8)}, **options)
    with pytest.raises(CheckpointError, match="1 NaN"):
        state[name][0, 0] = np.nan
        open_model(state, **options).queries(1)
    with pytest.raises(CheckpointError, match="cannot be read"):
        open_model(state | {name: state[name].to("meta")}, **options).queries(1)
    with pytest.raises(CheckpointError, match="is part of an adapter"):
        open_model(state | {"transformer.h.0.attn.c_attn.lora_A.weight": state[name]}, **options)


def test_what_is_no_state_dict_or_model_is_named_by_its_type():
    for bad in ({"model": {"h.0.attn.c_attn.weight": 1}}, {0: torch.ones(2, 2)}, {"a": [1.0]}):
        with pytest.raises(ParameterError, match="a state dict: names of tensors, and the tensors"):
            open_model(bad, family="gpt2", config={"n_head": 6})
    for options in ({"family": "gpt2"}, {"config": {"n_head": 12}}, {"name": "mine"}):
        with pytest.raises(ParameterError, match="none: it is for a module or a state dict"):
            open_model("demo", **options)
    for model, kind in ((torch.ones(3, 3), "Tensor"), ([np.ones((3, 3))], "list")):
        with pytest.raises(ParameterError, match=f"model = '{kind}': expected a folder"):
            rmtbase.score(model)


def test_a_tensor_in_memory_is_read_in_rows_and_digested_as_one_of_a_file(tmp_path):
    module = module_of("gpt2", torch.float16)
    module.save_pretrained(tmp_path)
    name = "transformer.h.0.attn.c_attn.weight"
    here, there = Checkpoint.of_tensors(module.state_dict(), "mine"), Checkpoint.open(tmp_path)
    np.testing.assert_array_equal(here.read_rows(name, 3, 9), there.read_rows(name, 3, 9))
    assert here.digest([name]) == there.digest([name])
    assert (here.dtype(name), here.shape(name)) == ("F16", (48, 144))
