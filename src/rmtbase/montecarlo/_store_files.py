"""Files of a store: one for each finished chunk, and ``store.json``, which describes their draws.

A chunk's file is a line of JSON that identifies it, followed by its arrays as they lie in memory, so that reading a few
rows costs only those rows. Nothing in a file is trusted: the plan determines the contents of a chunk, its header must
agree, and a checksum covers every byte.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from rmtbase.errors import MissingFileError, StoreError, TableError, UnreadableTableError
from rmtbase.linalg import SOLVERS
from rmtbase.montecarlo._compute import Layout
from rmtbase.montecarlo._plan import Plan
from rmtbase.regular_files import open_regular
from rmtbase.shown import one_line, quoted
from rmtbase.tables import write_bytes

Arrays = Mapping[str, NDArray[Any]]
Identity = Mapping[str, str | int]

MANIFEST = "store.json"

_CHUNK_KIND, _STORE_KIND = "rmtbase chunk", "rmtbase store"
_LONGEST_HEADER = 1 << 16
_PIECE = 1 << 24  # bytes that are checked at a time
_LARGEST = 1 << 24  # bytes: a hundred thousand cases
_NESTED = 16  # largest number of levels of a record; rmtbase writes four
_ANEW = "remove the folder to begin anew"


def pack(identity: Identity, arrays: Arrays) -> bytes:
    """Return the contents of a chunk's file."""
    plain = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    layout = {name: (array.dtype.str, array.shape) for name, array in plain.items()}
    header = {"kind": _CHUNK_KIND, **identity, "arrays": _listed(layout)}
    data = [array.tobytes() for array in plain.values()]
    line = json.dumps(header | {"sha256": _checksum(header, data)})
    return b"\n".join((line.encode(), b"".join(data)))


def require_sound(path: Path, identity: Identity, layout: Layout) -> None:
    """Check a chunk's file to the last byte."""
    with _opened(path) as file:
        header = _header(file, path)
        for key, expected in identity.items():
            if not _same_record(header.get(key), expected):
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
    """Read rows of one array of a chunk that is known to be sound."""
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
        raise TableError(path, "fewer numbers than it should have", "a chunk as it was written")
    return numbers.reshape(-1, *shape[1:])


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        with open_regular(path) as file:
            yield file
    except FileNotFoundError as error:
        raise MissingFileError(path, advice="run the plan again, and it is drawn again") from error
    except OSError as error:
        raise UnreadableTableError(path, f"a file that cannot be read ({error.strerror})", "a readable one") from error


def _header(file: BinaryIO, path: Path) -> dict[str, Any]:
    """Parse the first line, whose form is checked here but whose contents are not."""
    try:
        header = parse_record(file.readline(_LONGEST_HEADER))
        if header.get("kind") != _CHUNK_KIND:
            raise ValueError("it is of another kind")
    except ValueError as error:
        raise TableError(path, "no chunk", "a chunk written by rmtbase") from error
    return header


def _require_layout(path: Path, header: Mapping[str, Any], layout: Layout) -> None:
    found, expected = header.get("arrays"), _listed(layout)
    if not _same_record(found, expected):
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


@dataclass(frozen=True)
class Manifest:
    """Record of a store."""

    plan_hash: str  # hash of the plan
    plan: Mapping[str, Any]  # record of the plan
    settings: Mapping[str, Any]  # versions, processor and JAX settings, which also decide the bits
    solvers: Sequence[str]  # solver of each case

    @property
    def digest(self) -> str:
        """Digest of settings and solvers. Each chunk contains it, so that chunks of two installations never mix."""
        return _sha256({"settings": self.settings, "solvers": self.solvers})

    def write(self, folder: Path) -> None:
        """Write the manifest into the store's folder."""
        contents = {"kind": _STORE_KIND, **self.__dict__}
        text = json.dumps(contents | {"sha256": _sha256(contents)}, indent=1).encode()
        if len(text) > _LARGEST:
            raise StoreError(folder, f"a plan of {len(text):,} bytes", f"{_LARGEST:,} at most; split it into several")
        write_bytes(text, folder / MANIFEST)


def has_manifest(folder: Path) -> bool:
    """Return True if the folder has a file under the manifest's name."""
    return os.path.lexists(folder / MANIFEST)


def read_manifest(folder: Path, plan: Plan) -> Manifest:
    """Read the manifest of a store."""
    try:
        with open_regular(folder / MANIFEST) as file:
            text = file.read(_LARGEST + 1)
        if len(text) > _LARGEST:
            raise ValueError(f"it has more than {_LARGEST:,} bytes")
        found = parse_record(text)
        kinds = {"plan_hash": str, "plan": dict, "settings": dict}
        if found.pop("kind", None) != _STORE_KIND or not all(isinstance(found.get(key), kinds[key]) for key in kinds):
            raise ValueError("it is not that of a store")
    except (ValueError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else one_line(str(error), 200)
        raise StoreError(
            folder, f"an unreadable {MANIFEST} ({reason})", f"that of a plan's store; put back a copy of it, or {_ANEW}"
        ) from error
    recorded = found.pop("sha256", None)
    if recorded is None and "solvers" in found["settings"]:
        raise StoreError(
            folder,
            f"a {MANIFEST} without a checksum, as earlier versions wrote it",
            f"one of this version; finish the run with the version that began it, or {_ANEW}",
        )
    if recorded != _sha256({"kind": _STORE_KIND, **found}):
        raise StoreError(
            folder,
            f"a {MANIFEST} that was changed after it was written: its checksum does not fit",
            f"its plan, settings and solvers as they were written; put back a copy of it, or {_ANEW}",
        )
    _require_consistent(folder, found, plan)
    return Manifest(**found)


def _require_consistent(folder: Path, found: Mapping[str, Any], plan: Plan) -> None:
    """Check consistency that a recomputed checksum would not reveal."""
    if set(found) != {"plan_hash", "plan", "settings", "solvers"} or found["plan_hash"] != _sha256(found["plan"]):
        raise StoreError(
            folder,
            f"a {MANIFEST} whose plan is not that of its hash",
            f"those of one plan; put back a copy, or {_ANEW}",
        )
    if found["plan_hash"] != plan.hash and not extends(plan, found["plan"]):
        return
    solvers = found["solvers"]
    known = ("none",) if plan.measure == "elements" else SOLVERS
    if not isinstance(solvers, list) or len(solvers) != len(plan.cases) or any(one not in known for one in solvers):
        raise StoreError(
            folder, f"a {MANIFEST} with the solvers {solvers}", f"one of {', '.join(known)} for each case, or {_ANEW}"
        )


def extends(plan: Plan, record: Mapping[str, Any]) -> bool:
    """Return True if a plan is that of the record, possibly with more draws, so that it shares the whole chunks."""
    if draw_hash(record) != draw_hash(own := plan.record()):
        return False
    found, wanted = ([one.get("draws"), one.get("chunk")] for one in (record, own))
    if [len(each) if isinstance(each, list) else None for each in found] != [len(plan.cases)] * 2:
        return False
    return all(
        # A case of a single short chunk has it drawn again.
        type(fewer) is int and 0 < fewer <= more and (size == whole or size == fewer <= whole)
        for fewer, size, more, whole in zip(*found, *wanted, strict=True)
    )


def draw_hash(record: Mapping[str, Any]) -> str:
    """SHA-256 of everything in a plan's record that determines a draw: all but the numbers of draws and chunk sizes."""
    return _sha256({key: value for key, value in record.items() if key not in ("draws", "chunk")})


def _sha256(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def parse_record(text: bytes) -> dict[str, Any]:
    """Parse a JSON object of few levels."""
    try:
        record = json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(record, dict):
        raise ValueError("it is no JSON object")
    if not _is_flat(record, _NESTED):
        raise ValueError("it is nested too deeply")
    return record


def _same_record(found: object, expected: object) -> bool:
    """Return True if two values are the same JSON; 1, 1.0 and true differ, and the order of keys counts."""
    return json.dumps(found) == json.dumps(expected)


def _is_flat(value: object, levels: int) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    return not isinstance(value, list) or (levels > 0 and all(_is_flat(one, levels - 1) for one in value))
