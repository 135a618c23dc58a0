"""Our reader of safetensors files beside the reference reader: on every file, sound or wrong.

``python tests/models/test_safetensors_reference.py 5000`` tries as many files as it is told, and counts.
"""

import hashlib
import sys
import tempfile
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
from safetensors import SafetensorError, deserialize
from safetensors_mutations import mutations

from rmtbase.errors import CheckpointError
from rmtbase.models import Checkpoint

# What is refused here although the reference reader takes it, by what the message says.
STRICTER = (
    "twice in one object",  # it takes the last
    "besides; expected",  # fields that it does not know
    "dimensions of tensor",  # more than an array can have
    "without dtype, shape and data_offsets",  # an entry that is a list, a type that is a table
)
READ = ("F64", "F32", "F16", "BF16")


def reference(content):
    """Element type, shape and digest of each tensor; None where the file is refused."""
    try:
        tensors = deserialize(content)
    except SafetensorError:
        return None
    return {
        name: (tensor["dtype"], tuple(tensor["shape"]), digest(tensor["dtype"], tensor["shape"], tensor["data"]))
        for name, tensor in tensors
    }


def digest(dtype, shape, data):
    if dtype not in READ or not data:
        return None
    return hashlib.sha256(f"{dtype}{tuple(shape)}".encode() + data).digest()


def ours(folder):
    checkpoint = Checkpoint.open(folder)
    return {
        name: (
            checkpoint.dtype(name),
            checkpoint.shape(name),
            checkpoint.digest([name]) if checkpoint.dtype(name) in READ and 0 not in checkpoint.shape(name) else None,
        )
        for name in checkpoint.names
    }


def compare(content, folder):
    """How the two readers ended. Raises AssertionError where ours takes what the other refuses, or reads otherwise."""
    (folder / "model.safetensors").write_bytes(content)
    expected = reference(content)
    try:
        found = ours(folder)
    except CheckpointError as error:
        assert "\n" not in str(error)
        if expected is None:
            return "both refuse"
        assert any(reason in str(error) for reason in STRICTER), (content, str(error))
        return "only we refuse"
    assert expected is not None, content
    assert found == expected, content
    return "both read"


@pytest.mark.parametrize("seed", range(8))
def test_what_the_reference_reader_refuses_is_refused_and_the_rest_is_read_alike(seed, tmp_path):
    ends = Counter(compare(content, tmp_path) for content in islice(mutations(seed), 60))
    assert ends["both refuse"] > 20
    assert ends["both read"] > 5


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        print(Counter(compare(content, Path(place)) for content in islice(mutations(12345), int(sys.argv[1]))))
