"""The file of one finished chunk: a line of JSON that says what it is, then its arrays as they lie in memory.

A few rows of one array are read at the cost of those rows, and nothing in a file is trusted: what a chunk holds follows
from the plan, its header must say just that, and every byte is under a checksum.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from rmtbase.errors import MissingFileError, TableError
from rmtbase.montecarlo._plans._compute import Layout
from rmtbase.montecarlo._stores._bounded import parse_record, same_record
from rmtbase.regular_files import open_regular
from rmtbase.shown import quoted

Arrays = Mapping[str, NDArray[Any]]
Identity = Mapping[str, str | int]

_KIND = "rmtbase chunk"
_LONGEST_HEADER = 1 << 16
_PIECE = 1 << 24  # bytes that are checked at a time


def pack(identity: Identity, arrays: Arrays) -> bytes:
    """The contents of a chunk's file."""
    plain = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    layout = {name: (array.dtype.str, array.shape) for name, array in plain.items()}
    header = {"kind": _KIND, **identity, "arrays": _listed(layout)}
    data = [array.tobytes() for array in plain.values()]
    line = json.dumps(header | {"sha256": _checksum(header, data)})
    return b"\n".join((line.encode(), b"".join(data)))


def require_sound(path: Path, identity: Identity, layout: Layout) -> None:
    """Check a chunk's file to the last byte.

    Args:
        path: the file.
        identity: which chunk of which plan it is to be.
        layout: dtype and shape of each array that it is to hold.

    Raises:
        MissingFileError: there is no such file.
        TableError: it is damaged, or not the chunk that is asked for.
    """
    with _opened(path) as file:
        header = _header(file, path)
        for key, expected in identity.items():
            if not same_record(header.get(key), expected):
                raise TableError(
                    path, f"{key} {quoted(header.get(key))}", f"{quoted(expected)}, as in this store's plan"
                )
        _require_layout(path, header, layout)
        found = path.stat().st_size - file.tell()
        expected = sum(map(_bytes, layout.values()))
        if found != expected:
            raise TableError(path, f"{found} bytes of numbers", f"the {expected} that were written")
        recorded = header.pop("sha256", None)
        if _checksum(header, iter(lambda: file.read(_PIECE), b"")) != recorded:
            raise TableError(path, "contents that do not fit their checksum", "a chunk as it was written")


def read_rows(path: Path, layout: Layout, name: str, rows: slice = slice(None)) -> NDArray[Any]:
    """Rows of one array of a chunk that is known to be sound.

    Raises:
        MissingFileError: there is no such file.
        TableError: it is no chunk of that layout, or ends before the rows do.
    """
    with _opened(path) as file:
        _require_layout(path, _header(file, path), layout)
        place = file.tell()
        for other, one in layout.items():
            if other == name:
                break
            place += _bytes(one)
        dtype, shape = np.dtype(layout[name][0]), layout[name][1]
        first, last, _ = rows.indices(shape[0])
        width = math.prod(shape[1:])
        file.seek(place + first * width * dtype.itemsize)
        numbers = np.fromfile(file, dtype, max(0, last - first) * width)
    if numbers.size != max(0, last - first) * width:
        raise TableError(path, "an end before the numbers'", "a chunk as it was written")
    return numbers.reshape(-1, *shape[1:])


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        with open_regular(path) as file:
            yield file
    except FileNotFoundError as error:
        raise MissingFileError(path, advice="run the plan again, and it is drawn again") from error
    except OSError as error:
        raise TableError(path, f"a file that cannot be read ({error.strerror})", "a readable one") from error


def _header(file: BinaryIO, path: Path) -> dict[str, Any]:
    """The first line, whose form is certain and whose contents are not yet."""
    try:
        header = parse_record(file.readline(_LONGEST_HEADER))
        if header.get("kind") != _KIND:
            raise ValueError("it is of another kind")
    except ValueError as error:
        raise TableError(path, "no chunk", "a chunk written by rmtbase") from error
    return header


def _require_layout(path: Path, header: Mapping[str, Any], layout: Layout) -> None:
    found, expected = header.get("arrays"), _listed(layout)
    if not same_record(found, expected):
        raise TableError(path, f"the arrays {quoted(found)}", f"{quoted(expected)}, as in this store's plan")


def _listed(layout: Layout) -> dict[str, list[Any]]:
    return {name: [dtype, list(shape)] for name, (dtype, shape) in layout.items()}


def _bytes(one: tuple[str, tuple[int, ...]]) -> int:
    dtype, shape = one
    return np.dtype(dtype).itemsize * math.prod(shape)


def _checksum(header: Mapping[str, Any], data: Iterable[bytes]) -> str:
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for piece in data:
        digest.update(piece)
    return digest.hexdigest()
