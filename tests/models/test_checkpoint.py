"""The lazy tensor store: what it reads, and how little."""

import hashlib
import json
import pickle
import struct
import tracemalloc

import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors import deserialize
from safetensors.numpy import save_file

from rmtbase.errors import CorruptFileError, NonFiniteError, ParameterError
from rmtbase.models import Checkpoint

STORED = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}


@pytest.mark.parametrize("dtype", STORED)
def test_reads_every_floating_type_exactly(dtype, tmp_path):
    stored = np.random.default_rng(1).standard_normal((5, 7)).astype(STORED[dtype])
    save_file({"a": np.ones(3, np.float32), "w": stored}, tmp_path / "model.safetensors")
    checkpoint = Checkpoint.open(tmp_path)
    assert checkpoint.names == ("a", "w")
    assert (checkpoint.shape("w"), checkpoint.dtype("w")) == ((5, 7), dtype)
    values = checkpoint.read("w")
    assert values.dtype == (np.float64 if dtype == "F64" else np.float32)
    np.testing.assert_array_equal(values, stored.astype(values.dtype))
    np.testing.assert_array_equal(checkpoint.read_rows("w", 2, 4), values[2:4])


HALVES = {"F16": (np.float16, 0x7C00), "BF16": (ml_dtypes.bfloat16, 0x7F80)}  # and the bits of the exponent


@pytest.mark.parametrize("dtype", HALVES)
def test_all_half_precision_numbers_are_widened_exactly_and_others_counted(dtype, tmp_path):
    kind, exponent = HALVES[dtype]
    bits = np.arange(1 << 16, dtype=np.uint16)
    finite = bits[bits & exponent != exponent].view(kind)
    save_file({"w": finite, "not": bits[bits & exponent == exponent].view(kind)}, tmp_path / "model.safetensors")
    checkpoint = Checkpoint.open(tmp_path)
    values = checkpoint.read("w")
    np.testing.assert_array_equal(values.astype(np.float64), finite.astype(np.float64))
    np.testing.assert_array_equal(np.signbit(values), np.signbit(finite))
    with pytest.raises(NonFiniteError) as caught:
        checkpoint.read("not")
    assert (caught.value.inf_count, caught.value.nan_count) == (2, 2 * (0xFFFF & ~exponent & 0x7FFF))


def test_large_finite_weights_are_not_mistaken_for_infinite_ones(tmp_path):
    save_file({"w": np.full((4, 4), 3e38, np.float32)}, tmp_path / "model.safetensors")
    assert (Checkpoint.open(tmp_path).read("w") == np.float32(3e38)).all()


def test_the_hub_cache_layout_of_links_is_followed(parts, tmp_path):
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "abc"
    parts.write_sharded(blobs)
    snapshot.mkdir(parents=True)
    for file in blobs.iterdir():
        (snapshot / file.name).symlink_to(f"../../blobs/{file.name}")
    assert Checkpoint.open(snapshot).names == tuple(sorted(parts.tensors))


def test_memory_holds_the_tensor_asked_for_and_its_bits(tmp_path):
    n, count = 1 << 20, 16  # sixteen tensors of 2 MiB; one is 4 MiB when widened
    zeros = np.zeros((1024, 1024), ml_dtypes.bfloat16)
    save_file({f"w{i}": zeros for i in range(count)}, tmp_path / "model.safetensors")
    checkpoint = Checkpoint.open(tmp_path)
    tracemalloc.start()
    for name in checkpoint.names:
        checkpoint.read(name)
    whole = tracemalloc.get_traced_memory()[1]
    tracemalloc.reset_peak()
    checkpoint.read_rows("w3", 10, 20)
    rows = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert whole < 1.1 * 6 * n
    assert rows < 0.1 * n


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_bin_file_reads_exactly(dtype, tmp_path):
    generator = torch.Generator().manual_seed(2)
    weight = torch.randn(4, 6, generator=generator).to(dtype).T  # not contiguous
    state = {"w": weight, "steps": 3, "mask": torch.ones(2, dtype=torch.bool)}
    torch.save(state, tmp_path / "pytorch_model.bin")
    checkpoint = Checkpoint.open(tmp_path)
    assert checkpoint.names == ("mask", "w")
    expected = weight.double().numpy()
    np.testing.assert_array_equal(checkpoint.read("w").astype(np.float64), expected)
    np.testing.assert_array_equal(checkpoint.read_rows("w", 1, 3).astype(np.float64), expected[1:3])


def test_safetensors_comes_before_bin_and_an_unknown_tensor_is_named(parts, tmp_path):
    (parts.write(tmp_path) / "pytorch_model.bin").write_bytes(b"never looked at")
    with pytest.raises(ParameterError, match="'nope'"):
        Checkpoint.open(tmp_path).read("nope")


class Attack:
    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return open, (self.target, "w")


def test_a_pickle_that_would_run_code_is_refused_and_does_not_run(tmp_path):
    path, attack = tmp_path / "pytorch_model.bin", {"w": Attack(str(tmp_path / "attacked"))}
    for save in (torch.save, lambda value, path: path.write_bytes(pickle.dumps(value))):
        save(attack, path)
        words = r"pytorch_model\.bin: found (the object '(io|_io)\.open' in its pickle|a pickle, which can)"
        with pytest.raises(CorruptFileError, match=words):
            Checkpoint.open(tmp_path)
    assert not (tmp_path / "attacked").exists()


BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64,
    "C64": 64,
}  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_every_tensor_has_the_bytes_that_the_package_reads(seed, tmp_path):
    rng = np.random.default_rng(seed)
    tensors, end = {}, 0
    for number, dtype in enumerate(rng.permutation([*BITS, "F32", "F16", "BF16", "F64"])):
        shape = [int(size) for size in rng.integers(0 if rng.random() < 0.2 else 1, 4, rng.integers(3))] + [8]
        begin, end = end, end + int(np.prod(shape)) * BITS[dtype] // 8
        tensors[f"w{number}"] = {"dtype": str(dtype), "shape": shape, "data_offsets": [begin, end]}
    names = [str(name) for name in rng.permutation(list(tensors))]
    header = json.dumps({name: tensors[name] for name in names}).encode() + b" " * int(rng.integers(9))
    content = struct.pack("<Q", len(header)) + header + rng.bytes(end)
    (tmp_path / "model.safetensors").write_bytes(content)
    checkpoint = Checkpoint.open(tmp_path)
    expected = dict(deserialize(content))
    assert set(checkpoint.names) == expected.keys()
    for name, tensor in expected.items():
        shape = tuple(tensor["shape"])
        assert (checkpoint.dtype(name), checkpoint.shape(name)) == (tensor["dtype"], shape)
        if tensor["dtype"] in ("F64", "F32", "F16", "BF16") and 0 not in shape:
            whole = f"{tensor['dtype']}{shape}".encode() + tensor["data"]
            assert checkpoint.digest([name]) == hashlib.sha256(whole).digest()
