"""The file of one finished chunk: a line of JSON that says what it is, then its arrays as they lie in memory.

A few rows of one array are read at the cost of those rows, and nothing in a damaged file is trusted before its checksum
is: every byte of the file is under it.
"""

from __future__ import annotations

import hashlib
import json
import math
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from rmtbase.errors import MissingFileError, TableError

Arrays = Mapping[str, NDArray[Any]]
Identity = Mapping[str, str | int]

_KIND = "rmtbase chunk"
_LONGEST_HEADER = 1 << 16
_PIECE = 1 << 24  # bytes that are checked at a time


def pack(identity: Identity, arrays: Arrays) -> bytes:
    """The contents of a chunk's file."""
    plain = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    header = {
        "kind": _KIND,
        **identity,
        "arrays": {name: [array.dtype.str, list(array.shape)] for name, array in plain.items()},
    }
    data = [array.tobytes() for array in plain.values()]
    line = json.dumps(header | {"sha256": _checksum(header, data)})
    return b"\n".join((line.encode(), b"".join(data)))


def require_sound(path: Path, identity: Identity) -> None:
    """Check a chunk's file to the last byte.

    Raises:
        MissingFileError: there is no such file.
        TableError: it is damaged, or not the chunk that is asked for.
    """
    with _opened(path) as file:
        header = _header(file, path)
        for key, expected in identity.items():
            if header.get(key) != expected:
                raise TableError(path, f"{key} {header.get(key)!r}", f"{expected!r}, as in this store's plan")
        found = path.stat().st_size - file.tell()
        expected = sum(_bytes(*layout) for layout in header["arrays"].values())
        if found != expected:
            raise TableError(path, f"{found} bytes of numbers", f"the {expected} that were written")
        recorded = header.pop("sha256", None)
        if _checksum(header, iter(lambda: file.read(_PIECE), b"")) != recorded:
            raise TableError(path, "contents that do not fit their checksum", "a chunk as it was written")


def read_rows(path: Path, name: str, rows: slice = slice(None)) -> NDArray[Any]:
    """Rows of one array of a chunk that is known to be sound.

    Raises:
        MissingFileError: there is no such file.
        TableError: it is no chunk, or ends before the rows do.
    """
    with _opened(path) as file:
        arrays = _header(file, path)["arrays"]
        place = file.tell()
        for other, layout in arrays.items():
            if other == name:
                break
            place += _bytes(*layout)
        dtype, shape = np.dtype(arrays[name][0]), arrays[name][1]
        first, last, _ = rows.indices(shape[0])
        width = math.prod(shape[1:])
        file.seek(place + first * width * dtype.itemsize)
        numbers = np.fromfile(file, dtype, max(0, last - first) * width)
    if numbers.size != max(0, last - first) * width:
        raise TableError(path, "an end before the numbers'", "a chunk as it was written")
    return numbers.reshape(-1, *shape[1:])


def _opened(path: Path) -> BinaryIO:
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # to open a pipe would wait for a writer
            raise TableError(path, "a folder or device", "a chunk written by rmtbase")
        return path.open("rb")
    except FileNotFoundError as error:
        raise MissingFileError(path, advice="run the plan again, and it is drawn again") from error
    except OSError as error:
        raise TableError(path, f"a file that cannot be read ({error.strerror})", "a readable one") from error


def _header(file: BinaryIO, path: Path) -> dict[str, Any]:
    """The first line, whose form is certain and whose contents are not yet."""
    try:
        header = json.loads(file.readline(_LONGEST_HEADER))
        if header["kind"] != _KIND:
            raise ValueError(header["kind"])
        for layout in header["arrays"].values():
            _bytes(*layout)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise TableError(path, "no chunk", "a chunk written by rmtbase") from error
    except OSError as error:
        raise TableError(path, f"a file that cannot be read ({error.strerror})", "a readable one") from error
    return header


def _bytes(dtype: str, shape: list[int]) -> int:
    return np.dtype(dtype).itemsize * math.prod(shape)


def _checksum(header: Mapping[str, Any], data: Iterable[bytes]) -> str:
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for piece in data:
        digest.update(piece)
    return digest.hexdigest()
