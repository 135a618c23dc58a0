"""Files of draws: a line that identifies them, their arrays as they lie in memory, and a checksum of both.

The reader states the line that it expects, with the types and shapes of the arrays: nothing in a file is trusted, and
reading a few rows costs only those rows.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from rmtbase.errors import MissingFileError, TableError, UnreadableTableError
from rmtbase.regular_files import open_regular
from rmtbase.shown import quoted
from rmtbase.tables import write_bytes

Arrays = Mapping[str, NDArray[Any]]
Layout = Mapping[str, tuple[str, tuple[int, ...]]]
"""Name of an array -> its dtype, as NumPy writes it, and its shape."""

_PIECE = 1 << 24  # bytes that are checked at a time


@dataclass(frozen=True)
class ChunkFile:
    """File of the draws that ``identity`` names, with arrays of this layout."""

    path: Path
    identity: Mapping[str, str | int]
    layout: Layout

    @cached_property
    def _header(self) -> bytes:
        record = {"kind": "rmtbase chunk", **self.identity, "arrays": self.layout}
        return json.dumps(record).encode() + b"\n"

    def write(self, arrays: Arrays, swept: bool = False) -> None:
        """Write the file atomically; ``swept`` as for :func:`write_bytes`."""
        pieces = [self._header, *(np.ascontiguousarray(arrays[name]).tobytes() for name in self.layout)]
        digest = hashlib.sha256()
        for piece in pieces:
            digest.update(piece)
        write_bytes(b"".join([*pieces, digest.digest()]), self.path, swept)

    def require_sound(self) -> None:
        """Check the file to the last byte."""
        with self._opened() as file:
            digest, expected = hashlib.sha256(self._header), self._size(*self.layout)
            size = self.path.stat().st_size - len(self._header) - digest.digest_size
            if size != expected:
                raise TableError(self.path, f"{size} bytes of numbers", f"the {expected} that were written")
            for position in range(0, size, _PIECE):
                digest.update(file.read(min(_PIECE, size - position)))
            if file.read() != digest.digest():
                raise TableError(self.path, "contents that do not fit their checksum", "a chunk as it was written")

    def read(self, name: str, rows: slice = slice(None)) -> NDArray[Any]:
        """Read rows of one array of a file that is known to be sound."""
        names, (dtype, shape) = list(self.layout), self.layout[name]
        first, stop, _ = rows.indices(shape[0])
        width = math.prod(shape[1:])
        count = max(0, stop - first) * width
        with self._opened() as file:
            file.seek(self._size(*names[: names.index(name)]) + first * width * np.dtype(dtype).itemsize, 1)
            numbers = np.fromfile(file, dtype, count)
        if numbers.size != count:
            raise TableError(self.path, "fewer numbers than it should have", "a chunk as it was written")
        return numbers.reshape(-1, *shape[1:])

    def _size(self, *names: str) -> int:
        return sum(np.dtype(self.layout[name][0]).itemsize * math.prod(self.layout[name][1]) for name in names)

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        """Open the file after its header."""
        try:
            with open_regular(self.path) as file:
                header = file.read(len(self._header))
                if header != self._header:
                    raise TableError(self.path, f"a file that begins with {quoted(header)}", quoted(self._header))
                yield file
        except FileNotFoundError as error:
            raise MissingFileError(self.path, advice="run the plan again, and it is drawn again") from error
        except OSError as error:
            reason = f"a file that cannot be read ({error.strerror})"
            raise UnreadableTableError(self.path, reason, "a readable one") from error
