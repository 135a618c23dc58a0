"""Every way a checkpoint can be wrong, each with a message that says which."""

import json
import struct
from concurrent.futures import CancelledError
from threading import Event

import numpy as np
import pytest
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
from rmtbase.models.layouts._architectures import SeveralStacks

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


def test_unknown_architecture_lists_the_known_and_the_way_out(parts, tmp_path):
    for named, found, near in (
        ({"model_type": "mistrel"}, "'mistrel'", ("mistral",)),
        ({"model_type": 3}, "'3'", ("qwen", "bert")),
        ({"model_type": None, "architectures": ["Qwen9MoeForCausalLM"]}, "'Qwen9MoeForCausalLM'", ("qwen", "bert")),
    ):
        parts.config |= named
        known = f"{len(supported_architectures())} are known, such as", "bert, gpt2, gpt_neox, llama"
        words = f"unknown architecture {found}", *known, "rmtbase[hf]", "rmtbase.score_heads"
        error = refused(UnknownArchitectureError, *words, opening=lambda: open_model(parts.write(tmp_path)))
        assert error.supported == supported_architectures()
        assert error.near.startswith(near)


def layers(name, shape, dtype=np.float32):
    """A change of the tensors with this name in both layers."""
    return lambda parts: parts.tensors.update(
        {f"model.layers.{layer}.{name}.weight": np.ones(shape, dtype) for layer in range(2)}
    )


def configured(**change):
    return lambda parts: parts.config.update(change)


def transposed(parts):
    parts.tensors = {name: np.ascontiguousarray(weight.T) for name, weight in parts.tensors.items()}


INTEGER = "; expected a positive integer"
VALUES = {"model.layers.1.self_attn.v_proj.weight": np.ones((6, 12), np.float32)}
REFUSED = [
    (configured(model_type="mamba"), CheckpointError, ("MambaModel", "expected attention")),
    *(
        (configured(**{key: value}), CheckpointError, ("config.json", fragment))
        for key, value, fragment in (
            ("num_attention_heads", None, "no num_attention_heads" + INTEGER),
            ("num_attention_heads", "4", "num_attention_heads = '4'" + INTEGER),
            ("num_hidden_layers", 0, "num_hidden_layers = 0" + INTEGER),
            ("hidden_size", True, "hidden_size = True" + INTEGER),
            ("hidden_size", 12.0, "hidden_size = 12.0" + INTEGER),
            ("num_key_value_heads", 3, "num_key_value_heads = 3: expected a number of heads that is a multiple"),
            ("hidden_size", 13, "hidden_size = 13, num_key_value_heads = 2: expected a head size"),
        )
    ),
    (transposed, ShapeError, ("has shape (12, 6); expected (6, 12)",)),
    (layers("self_attn.v_proj", (5, 5)), ShapeError, ("v_proj.weight' has shape (5, 5)",)),
    (layers("mlp.up_proj", (5, 12)), CheckpointError, ("no intermediate_size",)),
    (lambda parts: parts.tensors.update(VALUES), MissingTensorError, ("layers.0.self_attn.v_proj",)),
    (
        lambda parts: parts.tensors.update({f"draft.{name}": one for name, one in parts.tensors.items()}),
        SeveralStacks,
        ("expected one stack of layers",),
    ),
    *(
        (
            layers("self_attn.q_proj", (12, 12), dtype),
            CheckpointError,
            (f"element type {name}; expected one of F64", "qu"),
        )
        for dtype, name in ((np.int8, "I8"), (np.uint8, "U8"), (np.bool_, "BOOL"))
    ),
]


@pytest.mark.parametrize(("change", "kind", "fragments"), REFUSED)
def test_settings_and_tensors_that_do_not_fit(change, kind, fragments, parts, tmp_path):
    change(parts)
    refused(kind, *fragments, opening=lambda: open_model(parts.write(tmp_path)))


def test_shape_that_contradicts_the_configuration(parts, tmp_path):
    parts.tensors[KEY.format(1)] = np.ones((9, 12), np.float32)
    words = f"{KEY.format(1)!r} has shape (9, 12); expected (6, 12)", "num_attention_heads = 4", "hidden_size = 12"
    error = refused(ShapeError, "model.safetensors", *words, opening=lambda: open_model(parts.write(tmp_path)))
    assert (error.found, error.expected) == ((9, 12), (6, 12))


def test_missing_tensor_and_missing_files(parts, tmp_path):
    for lost in (KEY.format(1), QUERY.format(0)):
        tensor = parts.tensors.pop(lost)
        words = "which a llama model has"
        error = refused(MissingTensorError, words, opening=lambda: open_model(parts.write(tmp_path)))
        assert lost.endswith(error.tensor)
        parts.tensors[lost] = tensor
    for name in ("config.json", "model.safetensors"):
        (parts.write(tmp_path) / name).unlink()
        refused(MissingCheckpointFileError, f"{name}: no such file", opening=lambda: open_model(tmp_path))


# Values


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_weights_that_are_not_finite(dtype, parts, tmp_path):
    weight = np.ones((6, 12), dtype)
    weight[0, :3], weight[1, :2] = np.nan, [np.inf, -np.inf]
    parts.tensors[KEY.format(1)] = weight
    model = open_model(parts.write(tmp_path))
    assert np.isfinite(model.keys(0)).all()
    words = "model.safetensors", f"{KEY.format(1)!r} holds 3 NaN and 2 infinite values"
    error = refused(NonFiniteError, *words, opening=lambda: model.keys(1))
    assert (error.tensor, error.nan_count, error.inf_count) == (KEY.format(1), 3, 2)


def test_infinities_that_cancel_and_doubles_beyond_single_precision(parts, tmp_path):
    parts.tensors[QUERY.format(0)][0, :2] = np.inf, -np.inf
    parts.tensors[QUERY.format(1)] = np.full((12, 12), 1e300)
    model = open_model(parts.write(tmp_path))
    refused(NonFiniteError, "0 NaN and 2 infinite", opening=lambda: model.queries(0))
    refused(CheckpointError, "beyond the range of float32", opening=lambda: model.queries(1))


def test_tensor_without_elements(tmp_path):
    save_file({"w": np.ones((0, 4), np.float32)}, tmp_path / "model.safetensors")
    checkpoint = Checkpoint.open(tmp_path)
    refused(CheckpointError, "'w' has shape (0, 4), no elements", opening=lambda: checkpoint.read("w"))


# Files


def test_a_file_that_is_longer_or_shorter_than_it_says(parts, tmp_path):
    path = parts.write(tmp_path) / "model.safetensors"
    whole = path.read_bytes()
    for content, words in ((whole[:-9], "(truncated)"), (whole + b"12", "(with bytes after its end)")):
        path.write_bytes(content)
        sizes = f"found {len(content)} bytes {words}", f"the {len(whole)} bytes that its header implies"
        refused(CorruptFileError, *sizes, opening=lambda: open_model(tmp_path))


def test_file_that_shrinks_before_it_is_hashed_is_hashed_when_it_is_whole_again(parts, tmp_path):
    model, expected = open_model(parts.write(tmp_path)), open_model(tmp_path).fingerprint()
    path = tmp_path / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    model.hash_ahead()
    refused(CorruptFileError, "changed while in use", opening=model.fingerprint)
    refused(CorruptFileError, "changed while in use", opening=lambda: [model.queries(i) for i in range(2)])
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
    begun = model._digests.start()
    model.give_up_hashing()
    go_on.set()
    assert isinstance(begun.exception(10), CancelledError) and read == [0]
    assert model.fingerprint() == expected and read == [0, 0, 1]


def header(value, data=b""):
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return struct.pack("<Q", len(text)) + text + data


def described(data=b"1234", name="w", shape=(1,), offsets=(0, 4)):
    return header({name: {"dtype": "F32", "shape": shape, "data_offsets": offsets}}, data)


@pytest.mark.parametrize(
    ("content", "fragment"),
    [
        (b"\x01\x02", "2 bytes"),
        (struct.pack("<Q", 500) + b"{}", "found 10 bytes (truncated); expected at least the 508 bytes"),
        (header(b"{'w'"), "refuses (Error while deserializing header: invalid JSON"),
        (described(shape=[-1]), "integer `-1`, expected"),
        (described(bytes(8), "w\x1b", offsets=(4, 8)), "invalid offset for tensor `w\\x1b`"),
        (described(b"123"), "(truncated)"),
        (described(shape=[3]), "refuses (Error while deserializing header: invalid shape, data type, or offset for"),
    ],
)
def test_what_is_not_a_safetensors_file(content, fragment, tmp_path):
    (tmp_path / "model.safetensors").write_bytes(content)
    refused(CorruptFileError, "model.safetensors", fragment, opening=lambda: Checkpoint.open(tmp_path))


def test_truncated_shard_and_tensor_that_is_not_in_its_shard(parts, tmp_path):
    index = parts.write_sharded(tmp_path) / "model.safetensors.index.json"
    weight_map = json.loads(index.read_text())["weight_map"]
    index.write_text(json.dumps({"weight_map": weight_map | {QUERY.format(0): weight_map[QUERY.format(1)]}}))
    words = f"found no tensor {QUERY.format(0)!r}", "model.safetensors.index.json"
    refused(CorruptFileError, *words, opening=lambda: open_model(tmp_path))
    path = parts.write_sharded(tmp_path) / "model-00001.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    refused(CorruptFileError, "model-00001.safetensors", "(truncated)", opening=lambda: open_model(tmp_path))


SHARDS = (
    "../outside.safetensors", "sub/../../outside.safetensors", "/outside.safetensors", "..\\outside.safetensors",
    "C:outside.safetensors", "outside.bin", "out\0side.safetensors", "",
)  # fmt: skip


@pytest.mark.parametrize("shard", SHARDS)
def test_shard_outside_the_folder_is_never_opened(shard, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    save_file({"w": np.ones(2, np.float32)}, tmp_path / "outside.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": shard}}))
    refused(CorruptFileError, f"the shard name {shard!r}", "own folder", opening=lambda: Checkpoint.open(folder))


def test_index_without_a_table_of_shards(tmp_path):
    for index in ({}, {"weight_map": []}, {"weight_map": {"w": 3}}):
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
        refused(CorruptFileError, "no table weight_map", opening=lambda: Checkpoint.open(tmp_path))


# What is asked of a sound model


def test_layer_head_and_component_that_are_not_there(parts, tmp_path):
    model = open_model(parts.write(tmp_path))
    for layer in (-1, 2, 0.5):
        message = f"layer = {layer}: expected an integer from 0 to 1"
        refused(ParameterError, message, opening=lambda: model.queries(layer))  # noqa: B023, called at once
    refused(ParameterError, "head = 4: expected an integer from 0 to 3", opening=lambda: model.key_head(4))
    for component in ("mlp_out", "W_Q"):
        message = f"component = {component!r}: expected one of attention_query, attention_key"
        refused(ParameterError, message, opening=lambda: model.matrix(0, component))  # noqa: B023
