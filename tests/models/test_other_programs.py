"""Weights of other programs: the error says whose they are, what was expected, and that they are not read."""

import json
import pickle
import struct

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import save_file

from rmtbase.errors import CheckpointError, MissingTensorError, ParameterError, RmtbaseError, ShapeError
from rmtbase.models import open_model

HEADS, KEY_HEADS, D_HEAD, D_MODEL = 6, 2, 5, 24
WIDTH, KEY_WIDTH = HEADS * D_HEAD, KEY_HEADS * D_HEAD
TOTAL = WIDTH + 2 * KEY_WIDTH


def separate(*names):
    """The shapes of queries, keys, values and outputs under these names."""
    shapes = (WIDTH, D_MODEL), (KEY_WIDTH, D_MODEL), (KEY_WIDTH, D_MODEL), (D_MODEL, WIDTH)
    return {f"{name}.weight": shape for name, shape in zip(names, shapes, strict=True)}


LITGPT = {"attn.proj.weight": (24, WIDTH), "norm_1.weight": (24,)}
FLAX = {f"{name}/kernel": (D_MODEL, HEADS, D_HEAD) for name in ("query", "key", "value", "out")}
LENS = {name: (HEADS, D_MODEL, D_HEAD) for name in ("W_Q", "_W_K", "_W_V", "W_O")}
# The program, the beginning of the names of a layer, and the shapes in it.
PROGRAMS = (
    ("nanoGPT (Linear, not transposed)", "transformer.h.{}.attn.", {"c_attn.weight": (72, 24)}),
    ("GPT-2 of transformers (Conv1D, transposed)", "h.{}.attn.", {"c_attn.weight": (24, 72)}),
    ("litgpt", "transformer.h.{}.", {"attn.qkv.weight": (TOTAL, 24), **LITGPT}),
    ("litgpt", "transformer.h.{}.", {"attn.attn.weight": (TOTAL, 24), **LITGPT}),
    ("torchtune", "layers.{}.attn.", separate("q_proj", "k_proj", "v_proj", "output_proj")),
    ("Meta's Llama", "layers.{}.attention.", separate("wq", "wk", "wv", "wo")),
    ("TransformerLens", "blocks.{}.attn.", LENS),
    ("torch.nn.MultiheadAttention", "encoder.layers.{}.self_attn.", {"in_proj_weight": (72, 24)}),
    ("Megatron", "decoder.layers.{}.self_attention.", {"linear_qkv.weight": (TOTAL, 24)}),
    ("timm", "blocks.{}.attn.", {"qkv.weight": (72, 24)}),
    ("diffusers", "down_blocks.{}.transformer_blocks.0.attn1.", separate("to_q", "to_k", "to_v", "to_out.0")),
    ("a module by widespread names", "params/Block_{}/SelfAttention_0/", FLAX),
    ("a module by widespread names", "trf_blocks.{}.att.", separate("W_query", "W_key", "W_value", "out_proj")),
)


def state_of(program, stem="", shapes=None):
    if shapes is None:
        program, stem, shapes = next(row for row in PROGRAMS if row[0].startswith(program))
    outside = {"patch_embed.proj.weight": (D_MODEL, 3, 2, 2)} if program == "timm" else {"embedding.weight": (7, 24)}
    shapes = outside | {stem.format(layer) + leaf: shape for layer in range(3) for leaf, shape in shapes.items()}
    return {name: torch.randn(shape) for name, shape in shapes.items()}


def refused(given, *fragments, kind=RmtbaseError, **options):
    with pytest.raises(kind) as caught:
        open_model(given, **options)
    for fragment in fragments:
        assert fragment in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(("program", "stem", "shapes"), PROGRAMS)
def test_the_error_names_the_program(program, stem, shapes, tmp_path):
    state, words = state_of(program, stem, shapes), f"attention in 3 modules under the names of {program}: say where"
    refused(state, words, "sites=[Site", kind=ParameterError)
    refused({f"_orig_mod.{name}": tensor for name, tensor in state.items()}, words, kind=ParameterError)
    save_file(state, tmp_path / "weights.safetensors")
    refused(tmp_path / "weights.safetensors", "is a safetensors file", words, "which is not read", kind=CheckpointError)
    refused(tmp_path, "weights under another name: weights.safetensors", words, kind=CheckpointError)


TRAININGS = {
    "a checkpoint of PyTorch Lightning": {"pytorch-lightning_version": "2.5.0", "epoch": 1},
    "a checkpoint of nanoGPT's training": {"model_args": {"n_head": 4}, "iter_num": 9},
    "a file of model states (DeepSpeed)": {"module": {}, "ds_version": "0.15"},
    "a file of optimiser states (DeepSpeed ZeRO)": {"optimizer_state_dict": {"zero_stage": 1}, "ds_version": "0.15"},
    "a checkpoint of Megatron": {"model": {}, "checkpoint_version": 3.0},
    "a checkpoint of timm's training": {"arch": "vit", "state_dict": {}, "epoch": 3},
    "a file of torch.save": {"epoch": 3, "nets": {}},
}


@pytest.mark.parametrize("kind", TRAININGS)
def test_a_training_state_is_named_by_its_keys(kind, tmp_path):
    torch.save({**TRAININGS[kind], "weights": state_of("nanoGPT")}, tmp_path / "last.ckpt")
    refused(tmp_path / "last.ckpt", f"is {kind}, which is not read; expected a checkpoint in Hugging Face format")


def test_a_state_dict_within_another_is_pointed_to_and_a_module_is_best_run():
    refused({"model": state_of("nanoGPT"), "step": 3}, "pass one of them, state['model']", kind=ParameterError)
    module = torch.nn.Linear(3, 3)
    module.forward = lambda tokens, targets=None: tokens
    refused(module, 'read by running it, on a batch of two tokens or more: inputs={"tokens": tokens}')


def test_configurations_of_other_programs_are_named(tmp_path):
    config = tmp_path / "config.json"
    save_file(state_of("timm"), tmp_path / "model.safetensors")
    for settings, program in (
        ({"architecture": "vit_tiny", "num_features": D_MODEL}, "a vit_tiny of timm"),
        ({"_class_name": "UNet2DModel", "_diffusers_version": "0.31.0"}, "a UNet2DModel of diffusers"),
    ):
        config.write_text(json.dumps(settings))
        refused(tmp_path, f"the configuration of {program}, which is not read; expected a checkpoint in Hugging Face")
    name = b"TransformerDecoderSpec\0"
    (tmp_path / "model.bin").write_bytes(struct.pack("<IH", 6, len(name)) + name + bytes(50))
    config.write_text(json.dumps({"bos_token": "<s>", "layer_norm_epsilon": None}))
    refused(tmp_path, "a model of CTranslate2", kind=CheckpointError)


def test_nanogpt_as_gpt2_is_told_to_transpose(tmp_path):
    options = {"family": "gpt2", "config": {"n_head": 4}}
    state = {name: tensor for name, tensor in state_of("nanoGPT").items() if "attn" in name}
    refused(state, "nanoGPT's linear layers are the transpose of gpt2's", kind=ShapeError, **options)
    save_file(state_of("Meta's Llama"), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", "n_head": 4, "n_layer": 3, "n_embd": 24}))
    refused(tmp_path, "under the names of Meta's Llama", kind=MissingTensorError)


def test_a_missing_layer_of_a_known_type_is_named_alone(tmp_path):
    sizes = {"n_embd": D_MODEL, "n_layer": 3, "n_head": 4, "n_positions": 8, "vocab_size": 7}
    model = transformers.GPT2Model(transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
    model.save_pretrained(tmp_path)
    state = {name: one.clone() for name, one in model.state_dict().items() if not name.startswith("h.1.")}
    save_file(state, tmp_path / "model.safetensors")
    with pytest.raises(MissingTensorError, match=r"h\.1\.attn\.c_attn\.weight") as raised:
        open_model(tmp_path)
    assert "under the names" not in str(raised.value)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["layers.0.mixer.A_log", "layers.0.mixer.in_proj.weight"], "state-space model"),
        (["blocks.0.att.receptance.weight", "blocks.0.att.key.weight"], "those of RWKV, whose layers have no queries"),
        (["blocks.0.attn.qkv.weight", "b.weight"], "no attention that is recognised among its 2 tensors ("),
        (["a.weight", "b.weight"], "no attention that is recognised among its 2 tensors ('a.weight', 'b.weight')"),
    ],
)
def test_what_has_no_attention_is_told_so(names, words, tmp_path):
    state = {name: torch.randn(72, 24) for name in names}
    save_file(state, tmp_path / "m.safetensors")
    refused(tmp_path / "m.safetensors", words)
    refused(state, words)


class Runs:
    def __reduce__(self):
        return (print, ("a pickle has run code",))


def test_hostile_files_are_looked_into_and_nothing_is_made(tmp_path, capsys):
    torch.save({"state_dict": state_of("nanoGPT"), "evil": Runs()}, tmp_path / "evil.pt")
    refused(tmp_path / "evil.pt", "a file of torch.save")
    whole = (tmp_path / "evil.pt").read_bytes()
    rng = np.random.default_rng(4)
    for _ in range(60):
        damaged = bytearray(whole[: rng.integers(1, len(whole))] if rng.random() < 0.5 else whole)
        for place in rng.integers(0, len(damaged), 8):
            damaged[place] = rng.integers(0, 256)
        (tmp_path / "evil.pt").write_bytes(damaged)
        refused(tmp_path / "evil.pt")
    (tmp_path / "bare.pt").write_bytes(pickle.dumps(Runs()))
    refused(tmp_path / "bare.pt")
    assert "run code" not in capsys.readouterr().out
