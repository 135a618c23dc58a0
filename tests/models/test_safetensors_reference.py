"""Bytes of tensors, of every type and in any order, beside the package's own reader."""

import hashlib
import json
import struct

import numpy as np
import pytest
from safetensors import deserialize

from rmtbase.models import Checkpoint

BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64,
    "C64": 64,
}  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
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
