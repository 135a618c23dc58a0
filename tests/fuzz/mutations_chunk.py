"""Mutations of a chunk: a line of JSON, the numbers of which it speaks, and a digest of both."""

import hashlib
import json
from pathlib import Path
from random import Random
from typing import Any

from mutations import Mutator
from mutations_json import of_json_header


def _sibling(rng: Random, path: Path, donor: bytes) -> None:
    """Another chunk of the same run."""
    others = sorted(other for other in path.parent.glob("*.chunk") if other != path)
    path.write_bytes(rng.choice(others).read_bytes())


def _signed(rng: Random, path: Path, donor: bytes) -> None:
    """A header that says another thing, and is signed as its writer does."""
    line, _, data = path.read_bytes()[:-32].partition(b"\n")
    header: dict[str, Any] = json.loads(line)
    arrays = header["arrays"]
    name = rng.choice(list(arrays))
    match rng.randrange(6):
        case 0:  # half the draws
            data = b"".join(_halves(arrays, data))
            header["arrays"] = {one: [dtype, [*shape[:-1], shape[-1] // 2]] for one, (dtype, shape) in arrays.items()}
        case 1:
            data, header["arrays"] = b"", {}
        case 2:
            arrays[f"{name}_"] = arrays.pop(name)
        case 3:
            arrays[name] = [rng.choice((">f8", "<i8", "O", "V8", "f8,f8", "M8[s]", "U2")), arrays[name][1]]
        case 4:
            arrays[name] = [
                arrays[name][0],
                rng.choice(([-1, -1], [2**62, 4], [0], [], [1.5], ["a"], arrays[name][1][::-1])),
            ]
        case _:
            header[rng.choice(("case", "start", "count", "store"))] = rng.choice((0, 7, "x", None, [1]))
    contents = json.dumps(header).encode() + b"\n" + data
    path.write_bytes(contents + hashlib.sha256(contents).digest())


def _halves(arrays: dict[str, Any], data: bytes) -> list[bytes]:
    """The first half of the bytes of each array."""
    import numpy as np

    halves = []
    for dtype, shape in arrays.values():
        length = int(np.dtype(dtype).itemsize * np.prod(shape))
        halves.append(np.frombuffer(data[:length], dtype).reshape(shape)[..., : shape[-1] // 2].tobytes())
        data = data[length:]
    return halves


CHUNK = (
    *of_json_header(lambda content: content.split(b"\n", 1), lambda header, data: header + b"\n" + data),
    Mutator("another chunk", _sibling, refused=True),
    Mutator("signed", _signed, refused=True),
)
