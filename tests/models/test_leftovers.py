"""What stands beside the weights, or in their place, is told by name: nothing that could change the answer passes."""

import json
import pickle
import struct

import h5py
import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import save_file

import rmtbase
from rmtbase.errors import CheckpointError, CorruptFileError, MissingFileError
from rmtbase.models import Checkpoint, head_shape, open_model

LAYER = "model.layers.0.self_attn."
ADAPTER = {"peft_type": "LORA", "base_model_name_or_path": "meta-llama/Llama-3.1-8B", "r": 8}


def refused(folder, *fragments, opening=open_model, kind=CheckpointError):
    with pytest.raises(kind) as caught:
        opening(folder)
    message = str(caught.value)
    for fragment in fragments:
        assert fragment in message
    assert "download" not in message
    assert message.isprintable()
    return message


@pytest.mark.parametrize("opening", [open_model, rmtbase.score, head_shape])
@pytest.mark.parametrize("weights", ["adapter_model.safetensors", "adapter_model.bin", None])
def test_an_adapter_folder_is_told_what_it_is_and_whose(opening, weights, tmp_path):
    kind = "IA3" if weights else "LORA"  # whose weights are read, if they are there
    (tmp_path / "adapter_config.json").write_text(json.dumps(ADAPTER | {"peft_type": kind}))
    if weights:
        (tmp_path / weights).write_bytes(b"")
    refused(tmp_path, f"holds a {kind} adapter of the base model 'meta-llama/Llama-3.1-8B'", "merged", opening=opening)


def test_an_adapter_beside_a_model_is_not_stepped_over(parts, tmp_path):
    (parts.write(tmp_path) / "adapter_config.json").write_text(json.dumps(ADAPTER | {"base_model_name_or_path": None}))
    refused(tmp_path, "holds a LORA adapter (adapter_config.json)", "the base model alone")
    (tmp_path / "adapter_config.json").unlink()
    for name in ("adapter_model.safetensors", "adapter_model.bin"):
        (tmp_path / name).write_bytes(b"")
        refused(tmp_path, f"holds {name}, the weights of an adapter", "merge_and_unload, then save_pretrained")
        (tmp_path / name).unlink()
    named = {"base_model_name_or_path": "a\x1b[31m" + "b" * 10_000, "peft_type": "\u202e" * 1000}
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone/adapter_config.json").write_text(json.dumps(named))
    assert len(refused(tmp_path / "alone", "adapter of the base model")) < 1000


BELONGING = {  # what a tensor of this name beside the weights is said to be
    "is part of an adapter, which changes": [
        LAYER + "q_proj.lora_A.weight", LAYER + "q_proj.lora_B.default.weight", LAYER + "v_proj.lora_magnitude_vector",
        "model.embed_tokens.lora_embedding_A", LAYER + "k_proj.base_layer.weight", LAYER + "k_proj.ia3_l",
        "base_model.model.lm_head.modules_to_save.default.weight", "model.layers.0.mlp.up_proj.lokr_w1",
    ],
    "belongs to quantised weights": [
        LAYER + name
        for name in (
            "q_proj.weight_scale", "q_proj.weight_scale_inv", "q_proj.scales", "q_proj.qzeros", "q_proj.g_idx",
            "q_proj.SCB", "q_proj.weight.absmax", "q_proj.weight.quant_state.bitsandbytes__nf4", "q_proj.input_scale",
            "q_proj.weight_packed", "k_proj.k_scale",
        )
    ],
    "is not part of the attention of a llama model": [
        f"model.layers.{layer}.self_attn.{name}"
        for layer in range(2)
        for name in (
            "q_norm.weight", "k_norm.weight", "sinks", "q_proj.weight_mask", "q_proj.weight_g",
            "relative_attention_bias.weight", "q_proj.weight.extra", "pos_q_proj.weight",
        )
    ],
}  # fmt: skip


@pytest.mark.parametrize(("name", "words"), [(name, words) for words, names in BELONGING.items() for name in names])
def test_tensors_beside_the_weights_that_change_them_are_refused_by_name(name, words, parts, tmp_path):
    """Integer codes that a floating type holds exactly look like weights in everything but their neighbour."""
    if "quantised" in words:
        rng = np.random.default_rng(4)
        parts.tensors = {key: rng.integers(-7, 8, w.shape).astype(np.float16) for key, w in parts.tensors.items()}
    parts.tensors[name] = np.ones(12, np.float16)
    refused(parts.write(tmp_path), f"tensor {name!r} {words}")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "quantised with GPTQ (4 bit)"),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "quantised with AWQ (4 bit)"),
        ({"quant_method": "fp8"}, "quantised with FP8"),
        ({"load_in_8bit": True}, "quantised with bitsandbytes (8 bit)"),
        ({"_load_in_4bit": True, "quant_method": "bitsandbytes"}, "quantised with bitsandbytes (4 bit)"),
        ({"quant_method": "new\x1bmethod"}, "quantised with new\\x1bmethod"),
        (["unknown"], "is quantised, and"),
    ],
)
def test_a_quantised_model_is_told_how_it_is_quantised(settings, said, parts, tmp_path):
    parts.config["quantization_config"] = settings
    refused(parts.write(tmp_path), said, "pass the checkpoint that it was made from")


def test_older_ways_to_say_it_and_codes_alone_are_told_so(parts, tmp_path):
    for name in ("quantize_config.json", "quant_config.json"):
        (parts.write(tmp_path) / name).write_text("{}")
        refused(tmp_path, f"{name}: quantised with", "bits = None; expected")
        (tmp_path / name).unlink()
    parts.tensors = {key.replace("weight", "qweight"): w.astype(np.int32) for key, w in parts.tensors.items()}
    refused(parts.write(tmp_path), "k_proj.qweight' belongs to quantised weights")


def test_what_leaves_queries_and_keys_as_they_are_is_passed(parts, tmp_path):
    parts.tensors |= {
        LAYER + "rotary_emb.inv_freq": np.ones(2, np.float32),
        LAYER + "q_proj.bias": np.ones(12, np.float32),
        LAYER + "o_proj.bias": np.ones(12, np.float32),
        "model.layers.0.input_layernorm.weight": np.ones(12, np.float32),
        "model.embed_tokens.weight": np.ones((4, 12), np.float32),
        "lm_head.weight": np.ones((4, 12), np.float32),
    }
    assert open_model(parts.write(tmp_path)).n_layers == 2


@pytest.mark.parametrize(
    ("kind", "extra"),
    [
        ("gpt2", ["h.0.attn.bias", "h.0.attn.masked_bias"]),
        ("gpt_neox", ["layers.0.attention.bias", "layers.0.attention.masked_bias"]),
        ("bert", ["encoder.layer.0.attention.output.LayerNorm.gamma"]),
    ],
)
def test_masks_and_older_names_of_norms_are_bystanders(kind, extra, tmp_path):
    sizes = {"vocab_size": 8, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    more = {"n_positions": 8, "bos_token_id": 0, "eos_token_id": 0} if kind == "gpt2" else {"intermediate_size": 8}
    network = transformers.AutoModel.from_config(transformers.AutoConfig.for_model(kind, **sizes, **more))
    network.config.save_pretrained(tmp_path)
    tensors = {name: weight.numpy() for name, weight in network.state_dict().items()}
    save_file(tensors | {name: np.ones(1, np.float32) for name in extra}, tmp_path / "model.safetensors")
    assert open_model(tmp_path).n_layers == 1
    relative = {"bert": "encoder.layer.0.attention.self.distance_embedding.weight"}.get(kind, extra[0] + ".table")
    save_file(tensors | {relative: np.ones((3, 4), np.float32)}, tmp_path / "model.safetensors")
    refused(tmp_path, f"tensor {relative!r} is not part of the attention of a {kind} model")


def test_custom_code_and_cross_attention_are_noted(parts, tmp_path):
    parts.config["auto_map"] = {"AutoModel": "modeling_custom.CustomModel"}
    parts.tensors["model.layers.0.crossattention.q_proj.weight"] = np.ones((12, 12), np.float32)
    notes = open_model(parts.write(tmp_path)).notes
    assert any(note.startswith("auto_map: the model has code of its own") for note in notes)
    expected = "attention that is not read, by the names of its matrices: 'model.layers.0.crossattention.q_proj.weight'"
    assert any(note.startswith(expected) for note in notes)


@pytest.mark.parametrize(
    ("files", "fragments"),
    [
        (["consolidated.00.pth", "params.json"], ["Meta's own release", "a checkpoint in Hugging Face format"]),
        (["consolidated.safetensors", "params.json"], ["Mistral's own format"]),
        (["last.ckpt"], ["a PyTorch file that is no Hugging Face checkpoint", "last.ckpt"]),
        (["model.pth"], ["a PyTorch file that is no Hugging Face checkpoint", "model.pth"]),
        (["weights.pkl"], ["a pickle, which can run code", "model.safetensors"]),
        (["weights.npz"], ["NumPy arrays", "score_heads"]),
        (["scores.nc"], ["scores.nc", "such as rmtbase writes", "rmtbase plot draws this"]),
        (["model.onnx", "model.onnx_data"], ["an ONNX graph", "model.onnx, model.onnx_data", "score_heads"]),
        (["tf_model.h5"], ["TensorFlow weights", "score_heads"]),
        (["flax_model.msgpack"], ["Flax weights"]),
        (["diffusion_pytorch_model.safetensors"], ["diffusers"]),
        (["whole.safetensors"], ["weights under another name: whole.safetensors"]),
        (["adapter_model.safetensors"], ["an adapter without its base model", "merge_and_unload, then save"]),
    ],
)
@pytest.mark.parametrize("configured", [True, False])
def test_a_folder_of_another_format_is_told_which(files, fragments, configured, parts, tmp_path):
    for name in files:
        (tmp_path / name).write_bytes(b"")
    if configured:
        (tmp_path / "config.json").write_text(json.dumps(parts.config))
    refused(tmp_path, "no such file", *fragments, kind=MissingFileError)


def test_a_folder_without_weights_or_with_shards_alone_is_told_what_it_holds(parts, tmp_path):
    (parts.write_sharded(tmp_path / "shards") / "model.safetensors.index.json").unlink()
    for path in (tmp_path / "shards").glob("*.safetensors"):
        path.rename(path.with_name(path.stem + "-of-00004.safetensors"))
    words = "holds shards without their index: model-00000-of-00004.safetensors"
    refused(tmp_path / "shards", words, kind=MissingFileError)
    (tmp_path / "many").mkdir()
    (tmp_path / "many/config.json").write_text(json.dumps(parts.config))
    for number in range(300):
        (tmp_path / f"many/{number:05d}\x1b[31m{'x' * 200}").touch()
    message = refused(tmp_path / "many", " and 295 more", opening=Checkpoint.open, kind=MissingFileError)
    assert len(message) < 1200
    (tmp_path / "empty").mkdir()
    for opening in (open_model, Checkpoint.open, head_shape):
        refused(tmp_path / "empty", "the folder is empty", opening=opening, kind=MissingFileError)


@pytest.mark.parametrize("opening", [open_model, head_shape])
def test_weights_without_their_configuration_are_told_so(opening, parts, tmp_path):
    (parts.write(tmp_path) / "config.json").unlink()
    words = "the folder holds only weights: model.safetensors, with attention"
    expected = "expected the model's config.json beside them"
    message = refused(tmp_path, "config.json: no such file", words, expected, opening=opening)
    assert "another name" not in message


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("m.pt", "is a PyTorch file"),
        ("m.onnx", "is an ONNX graph"),
        ("m.npz", "is a file of NumPy arrays"),
        ("m.nc", "is a netCDF file, such as rmtbase writes, which is not read; expected the folder of a model"),
        ("m.h5", "is a file of TensorFlow weights"),
        ("model.safetensors", "is a file; pass the folder that holds it"),
        ("model-00001-of-00002.safetensors", "is one of several files of a checkpoint; pass the folder that holds it"),
    ],
)
def test_a_file_in_place_of_a_folder_is_told_what_it_is(name, what, tmp_path):
    (tmp_path / name).write_bytes(b"")
    refused(tmp_path / name, what)
    with pytest.raises(CheckpointError, match=what):
        head_shape(tmp_path / name)


def zipped(path):
    with path.open("wb") as file:
        np.savez(file, w=np.ones(3))


@pytest.mark.parametrize(
    ("save", "what"),
    [
        (lambda path: path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 2, 1)), "a GGUF file"),
        (lambda path: torch.save({"w": torch.ones(3)}, path), "a zip archive, as torch.save and NumPy write them"),
        (zipped, "a zip archive, as torch.save and NumPy write them"),
        (lambda path: h5py.File(path, "w").close(), "a file of TensorFlow weights"),
        (lambda path: path.write_bytes(pickle.dumps({"w": [1.0] * 9})), "a pickle, which can run code"),
        (lambda path: path.write_text("<!DOCTYPE html><html>Log in</html>"), "a page of HTML, in place of the file"),
        (lambda path: path.write_text("<html><title>404</title></html>"), "a page of HTML, in place of the file"),
    ],
)
def test_a_file_with_a_wrong_name_is_told_what_it_holds(save, what, parts, tmp_path):
    path = parts.write(tmp_path / "model") / "model.safetensors"
    path.unlink()
    save(path)
    with pytest.raises(CorruptFileError, match=rf"model\.safetensors: found a header length of .*: this is {what}"):
        open_model(tmp_path / "model")


@pytest.mark.parametrize(
    ("save", "what"),
    [
        (lambda path: save_file({"w": np.ones(3)}, path), "a safetensors file; expected .* name it model.safetensors"),
        (lambda path: path.write_text("<html><title>404</title></html>"), "found a page of HTML, in place of the file"),
        (lambda path: h5py.File(path, "w").close(), "a file of TensorFlow weights"),
        (lambda path: path.write_bytes(b"nothing known"), "found a file that is not a zip archive"),
    ],
)
def test_a_bin_file_that_torch_did_not_write_is_told_what_it_holds(save, what, parts, tmp_path):
    (parts.write(tmp_path) / "model.safetensors").unlink()
    save(tmp_path / "pytorch_model.bin")
    with pytest.raises(CorruptFileError, match=what):
        open_model(tmp_path)


def test_a_folder_of_checkpoints_leads_to_them(parts, tmp_path):
    for step in (500, 1000):
        parts.write(tmp_path / f"checkpoint-{step}")
    (tmp_path / "logs").mkdir()
    (tmp_path / "trainer_state.json").write_text("{}")
    words = "config.json: no such file; pass one of its folders"
    refused(tmp_path, words, "-1000, checkpoint-500", kind=MissingFileError)


def test_half_precision_weights_without_a_factor_are_weights(parts, tmp_path):
    state = {name: torch.from_numpy(weight).half() for name, weight in parts.tensors.items()}
    (tmp_path / "config.json").write_text(json.dumps(parts.config))
    torch.save(state, tmp_path / "pytorch_model.bin")
    assert open_model(tmp_path).queries(0).shape == (4, 3, 12)
