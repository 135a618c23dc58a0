"""Every way a checkpoint can be wrong, each with a message that says which."""

import json
import re
import struct
from concurrent.futures import CancelledError
from threading import Event

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from rmtbase.errors import (
    CheckpointError,
    CorruptFileError,
    MissingCheckpointFileError,
    MissingTensorError,
    NonFiniteError,
    ParameterError,
    ShapeError,
    UnknownArchitectureError,
)
from rmtbase.models import Checkpoint, open_model, supported_architectures
from rmtbase.models.layouts._stack_prefixes import SeveralStacks

QUERY = "model.layers.{}.self_attn.q_proj.weight"
KEY = "model.layers.{}.self_attn.k_proj.weight"


def refused(kind, *fragments, opening):
    """The error that opening raises, which is of this kind exactly and says all of this on one line."""
    with pytest.raises(kind) as caught:
        opening()
    assert type(caught.value) is kind
    message = str(caught.value)
    assert "\n" not in message
    for fragment in fragments:
        assert fragment in message
    return caught.value


# Configuration


@pytest.mark.parametrize(
    ("text", "fragment"),
    [(b"{", "text that is not JSON"), (b"[1]", "a JSON list"), (b"\xff\xfe{", "text that is not JSON")],
)
def test_configuration_that_is_not_an_object(text, fragment, parts, tmp_path):
    (parts.write(tmp_path) / "config.json").write_bytes(text)
    refused(CorruptFileError, "config.json", fragment, opening=lambda: open_model(tmp_path))


def test_missing_configuration(parts, tmp_path):
    (parts.write(tmp_path) / "config.json").unlink()
    refused(MissingCheckpointFileError, "config.json: no such file", opening=lambda: open_model(tmp_path))


@pytest.mark.parametrize(
    ("named", "found"),
    [
        ({"model_type": "mistrel"}, "'mistrel'"),
        ({"model_type": 3}, "'3'"),
        ({"model_type": None, "architectures": ["Qwen9MoeForCausalLM"]}, "'Qwen9MoeForCausalLM'"),
        ({"model_type": None, "architectures": ["BertGenerationDecoder"]}, "'BertGenerationDecoder'"),
    ],
)
def test_unknown_architecture_lists_the_known_and_the_way_out(named, found, parts, tmp_path):
    parts.config |= named
    error = refused(
        UnknownArchitectureError,
        f"unknown architecture {found}",
        f"{len(supported_architectures())} are known, such as",
        "bert, gpt2, gpt_neox, llama",
        "rmtbase[hf]",
        "rmtbase.score_heads",
        opening=lambda: open_model(parts.write(tmp_path)),
    )
    assert error.supported == supported_architectures()
    assert error.near.startswith("mistral" if named.get("model_type") == "mistrel" else ("qwen", "bert"))


def test_architecture_without_attention_is_refused(parts, tmp_path):
    parts.config |= {"model_type": "mamba"}
    refused(CheckpointError, "MambaModel", "expected attention", opening=lambda: open_model(parts.write(tmp_path)))


def test_architecture_is_read_from_the_class_where_the_type_is_absent(parts, tmp_path):
    del parts.config["model_type"]
    parts.config["architectures"] = ["LlamaForCausalLM"]
    assert open_model(parts.write(tmp_path)).architecture == "llama"


@pytest.mark.parametrize(
    ("change", "fragment"),
    [
        ({"num_attention_heads": None}, "no num_attention_heads; expected a positive integer"),
        ({"num_attention_heads": "4"}, "num_attention_heads = '4'; expected a positive integer"),
        ({"num_hidden_layers": 0}, "num_hidden_layers = 0; expected a positive integer"),
        ({"hidden_size": True}, "hidden_size = True; expected a positive integer"),
        ({"hidden_size": 12.0}, "hidden_size = 12.0; expected a positive integer"),
        ({"num_key_value_heads": 3}, "num_key_value_heads = 3: expected a number of heads that is a multiple"),
        ({"hidden_size": 13}, "hidden_size = 13, num_key_value_heads = 2: expected a head size"),
    ],
)
def test_dimension_that_cannot_be(change, fragment, parts, tmp_path):
    parts.config |= change
    refused(CheckpointError, "config.json", fragment, opening=lambda: open_model(parts.write(tmp_path)))


# Tensors against the configuration


def test_shape_that_contradicts_the_configuration(parts, tmp_path):
    parts.tensors[KEY.format(1)] = np.ones((9, 12), np.float32)
    error = refused(
        ShapeError,
        "model.safetensors",
        f"{KEY.format(1)!r} has shape (9, 12); expected (6, 12)",
        "num_attention_heads = 4",
        "hidden_size = 12",
        "num_key_value_heads = 2",
        opening=lambda: open_model(parts.write(tmp_path)),
    )
    assert (error.found, error.expected) == ((9, 12), (6, 12))


def test_transposed_tensor_is_a_wrong_shape(parts, tmp_path):
    parts.tensors = {name: np.ascontiguousarray(w.T) for name, w in parts.tensors.items()}
    refused(ShapeError, "has shape (12, 6); expected (6, 12)", opening=lambda: open_model(parts.write(tmp_path)))


@pytest.mark.parametrize("component", ["v_proj", "o_proj"])
def test_wrong_shape_outside_queries_and_keys(component, parts, tmp_path):
    for layer in range(2):
        parts.tensors[f"model.layers.{layer}.self_attn.{component}.weight"] = np.ones((5, 5), np.float32)
    refused(ShapeError, f"{component}.weight' has shape (5, 5)", opening=lambda: open_model(parts.write(tmp_path)))


def test_mlp_whose_width_the_configuration_does_not_say(parts, tmp_path):
    for layer in range(2):
        parts.tensors[f"model.layers.{layer}.mlp.up_proj.weight"] = np.ones((5, 12), np.float32)
    refused(CheckpointError, "no intermediate_size", opening=lambda: open_model(parts.write(tmp_path)))


@pytest.mark.parametrize("lost", [KEY.format(0), KEY.format(1), QUERY.format(0), QUERY.format(1)])
def test_missing_tensor(lost, parts, tmp_path):
    del parts.tensors[lost]
    error = refused(MissingTensorError, "which a llama model has", opening=lambda: open_model(parts.write(tmp_path)))
    assert lost.endswith(error.tensor)


def test_component_that_only_some_layers_have(parts, tmp_path):
    parts.tensors["model.layers.1.self_attn.v_proj.weight"] = np.ones((6, 12), np.float32)
    refused(MissingTensorError, "layers.0.self_attn.v_proj", opening=lambda: open_model(parts.write(tmp_path)))


def test_more_layers_than_the_configuration_says(parts, tmp_path):
    parts.config["num_hidden_layers"] = 1
    refused(
        CheckpointError,
        f"{QUERY.format(1)!r} is there; expected none beyond the 1 layers",
        opening=lambda: open_model(parts.write(tmp_path)),
    )


def test_two_stacks_of_layers(parts, tmp_path):
    parts.tensors |= {f"draft.{name}": weight for name, weight in parts.tensors.items()}
    refused(SeveralStacks, "expected one stack of layers", opening=lambda: open_model(parts.write(tmp_path)))


# Values


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_weights_that_are_not_finite(dtype, parts, tmp_path):
    weight = np.ones((6, 12), dtype)
    weight[0, :3], weight[1, :2] = np.nan, [np.inf, -np.inf]
    parts.tensors[KEY.format(1)] = weight
    model = open_model(parts.write(tmp_path))
    assert np.isfinite(model.keys(0)).all()
    error = refused(
        NonFiniteError,
        "model.safetensors",
        f"{KEY.format(1)!r} holds 3 NaN and 2 infinite values",
        opening=lambda: model.keys(1),
    )
    assert (error.tensor, error.nan_count, error.inf_count) == (KEY.format(1), 3, 2)


def test_infinities_of_both_signs_that_cancel(parts, tmp_path):
    parts.tensors[QUERY.format(0)][0, :2] = np.inf, -np.inf
    model = open_model(parts.write(tmp_path))
    refused(NonFiniteError, "0 NaN and 2 infinite", opening=lambda: model.queries(0))


def test_doubles_beyond_single_precision(parts, tmp_path):
    parts.tensors[QUERY.format(0)] = np.full((12, 12), 1e300)
    model = open_model(parts.write(tmp_path))
    refused(CheckpointError, "beyond the range of float32", opening=lambda: model.queries(0))


@pytest.mark.parametrize(("dtype", "name"), [(np.int8, "I8"), (np.uint8, "U8"), (np.bool_, "BOOL")])
def test_element_type_that_is_not_a_weight(dtype, name, parts, tmp_path):
    parts.tensors[QUERY.format(0)] = np.ones((12, 12), dtype)
    refused(
        CheckpointError,
        f"{QUERY.format(0)!r} has element type {name}; expected one of F64, F32, F16, BF16",
        "quantised",
        opening=lambda: open_model(parts.write(tmp_path)),
    )


def test_tensor_without_elements(tmp_path):
    save_file({"w": np.ones((0, 4), np.float32)}, tmp_path / "model.safetensors")
    checkpoint = Checkpoint.open(tmp_path)
    refused(CheckpointError, "'w' has shape (0, 4), no elements", opening=lambda: checkpoint.read("w"))


# Files


def test_folder_without_weights(parts, tmp_path):
    (parts.write(tmp_path) / "model.safetensors").unlink()
    refused(MissingCheckpointFileError, "model.safetensors: no such file", opening=lambda: open_model(tmp_path))


@pytest.mark.parametrize("kept", [0.5, 0.99])
def test_truncated_safetensors_says_both_sizes(kept, parts, tmp_path):
    path = parts.write(tmp_path) / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[: int(kept * len(whole))])
    refused(
        CorruptFileError,
        f"model.safetensors: found {int(kept * len(whole))} bytes (truncated)",
        f"the {len(whole)} bytes that its header implies",
        opening=lambda: open_model(tmp_path),
    )


def test_bytes_after_the_end(parts, tmp_path):
    path = parts.write(tmp_path) / "model.safetensors"
    path.write_bytes(path.read_bytes() + b"12")
    refused(CorruptFileError, "bytes (with bytes after its end)", opening=lambda: open_model(tmp_path))


def test_file_that_shrinks_while_in_use(parts, tmp_path):
    model = open_model(parts.write(tmp_path))
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    refused(CorruptFileError, "changed while in use", opening=lambda: [model.queries(i) for i in range(2)])


def test_file_that_shrinks_before_it_is_hashed_is_hashed_when_it_is_whole_again(parts, tmp_path):
    model, expected = open_model(parts.write(tmp_path)), open_model(tmp_path).fingerprint()
    path = tmp_path / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    model.hash_ahead()
    refused(CorruptFileError, "changed while in use", opening=model.fingerprint)
    path.write_bytes(whole)
    assert model.fingerprint() == expected


def test_hashing_that_is_given_up_reads_no_more_and_begins_anew(parts, tmp_path, monkeypatch):
    model = open_model(parts.write(tmp_path))
    expected, read, under_way, go_on = open_model(tmp_path).fingerprint(), [], Event(), Event()
    digest = type(model).site_digest

    def slow(self, site):
        read.append(site)
        under_way.set()
        assert go_on.wait(10)
        return digest(self, site)

    monkeypatch.setattr(type(model), "site_digest", slow)
    model.hash_ahead()
    assert under_way.wait(10)
    begun = model._hashing.digests
    model.give_up_hashing()
    go_on.set()
    assert isinstance(begun.exception(10), CancelledError) and read == [0]
    assert model.fingerprint() == expected and read == [0, 0, 1]


def header(value, data=b""):
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return struct.pack("<Q", len(text)) + text + data


@pytest.mark.parametrize(
    ("content", "fragment"),
    [
        (b"", "an empty file"),
        (b"\x01\x02", "2 bytes"),
        (b"version https://git-lfs/spec/v1\noid sha256:00\nsize 9\n", "a Git LFS pointer"),
        (b"<!DOCTYPE html><html></html>", "a header length of"),
        (struct.pack("<Q", 500) + b"{}", "found 10 bytes (truncated); expected at least the 508 bytes"),
        (header(b"{'w'"), "refuses (Error while deserializing header: invalid JSON"),
        (header({"w": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, b"1234"), "integer `-1`, expected"),
        (
            header({"w\x1b": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}, bytes(8)),
            "invalid offset for tensor `w\\x1b`",
        ),
        (header({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, b"123"), "(truncated)"),
        (
            header({"w": {"dtype": "F32", "shape": [3], "data_offsets": [0, 4]}}, b"1234"),
            "found 4 bytes for tensor 'w'; expected 12, from its shape (3,) and type F32",
        ),
    ],
)
def test_what_is_not_a_safetensors_file(content, fragment, tmp_path):
    (tmp_path / "model.safetensors").write_bytes(content)
    refused(CorruptFileError, "model.safetensors", fragment, opening=lambda: Checkpoint.open(tmp_path))


def test_missing_shard_is_named_with_its_index(parts, tmp_path):
    (parts.write_sharded(tmp_path) / "model-00002.safetensors").unlink()
    refused(
        MissingCheckpointFileError,
        "model-00002.safetensors: no such file (named in model.safetensors.index.json)",
        opening=lambda: open_model(tmp_path),
    )


def test_truncated_shard_is_named(parts, tmp_path):
    path = parts.write_sharded(tmp_path) / "model-00001.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    refused(CorruptFileError, "model-00001.safetensors", "(truncated)", opening=lambda: open_model(tmp_path))


def test_tensor_that_is_not_in_its_shard(parts, tmp_path):
    index = parts.write_sharded(tmp_path) / "model.safetensors.index.json"
    weight_map = json.loads(index.read_text())["weight_map"]
    weight_map[QUERY.format(0)] = weight_map[QUERY.format(1)]
    index.write_text(json.dumps({"weight_map": weight_map}))
    refused(
        CorruptFileError,
        f"found no tensor {QUERY.format(0)!r}",
        "model.safetensors.index.json",
        opening=lambda: open_model(tmp_path),
    )


@pytest.mark.parametrize(
    "shard",
    [
        "../outside.safetensors",
        "sub/../../outside.safetensors",
        "/outside.safetensors",
        "..\\outside.safetensors",
        "C:outside.safetensors",
        "outside.bin",
        "out\0side.safetensors",
        "",
    ],
)
def test_shard_outside_the_folder_is_never_opened(shard, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    save_file({"w": np.ones(2, np.float32)}, tmp_path / "outside.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": shard}}))
    refused(CorruptFileError, f"the shard name {shard!r}", "own folder", opening=lambda: Checkpoint.open(folder))


@pytest.mark.parametrize("index", [{}, {"weight_map": []}, {"weight_map": {"w": 3}}])
def test_index_without_a_table_of_shards(index, tmp_path):
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    refused(CorruptFileError, "no table weight_map", opening=lambda: Checkpoint.open(tmp_path))


@pytest.mark.parametrize(
    ("value", "fragment"), [([torch.ones(2)], "a list"), (torch.ones(2), "a tensor"), (b"", "an empty file")]
)
def test_bin_file_that_is_not_a_dictionary_of_tensors(value, fragment, tmp_path):
    path = tmp_path / "pytorch_model.bin"
    if isinstance(value, bytes):
        path.write_bytes(value)
    else:
        torch.save(value, path)
    refused(CorruptFileError, fragment, opening=lambda: Checkpoint.open(tmp_path))


# What is asked of a sound model


@pytest.mark.parametrize("layer", [-1, 2, 0.5])
def test_layer_that_is_not_there(layer, parts, tmp_path):
    model = open_model(parts.write(tmp_path))
    refused(ParameterError, f"layer = {layer}: expected an integer from 0 to 1", opening=lambda: model.queries(layer))


def test_head_that_is_not_there(parts, tmp_path):
    model = open_model(parts.write(tmp_path))
    refused(ParameterError, "head = 4: expected an integer from 0 to 3", opening=lambda: model.key_head(4))


@pytest.mark.parametrize("component", ["mlp_out", "W_Q"])
def test_component_that_is_not_there(component, parts, tmp_path):
    model = open_model(parts.write(tmp_path))
    message = re.escape(f"component = {component!r}: expected one of attention_query, attention_key")
    with pytest.raises(ParameterError, match=message):
        model.matrix(0, component)
