"""The files of a store: one for each finished chunk, and ``store.json``, which says what their draws are of.

A chunk's is a line of JSON that says what it is, then its arrays as they lie in memory, so that a few rows of one are
read at the cost of those rows. Nothing in a file is trusted: what a chunk holds follows from the plan, its header must
say just that, and every byte is under a checksum.
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

from rmtbase.errors import MissingFileError, StoreError, TableError
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
_NESTED = 16  # levels that a record may have; ours have four
_ANEW = "remove the folder to begin anew"


def pack(identity: Identity, arrays: Arrays) -> bytes:
    """The contents of a chunk's file."""
    plain = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    layout = {name: (array.dtype.str, array.shape) for name, array in plain.items()}
    header = {"kind": _CHUNK_KIND, **identity, "arrays": _listed(layout)}
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
    """What a store records of itself.

    Attributes:
        plan_hash: of the plan.
        plan: its record.
        settings: what else decides about bits: versions, processor, JAX's settings.
        solvers: of each case.
    """

    plan_hash: str
    plan: Mapping[str, Any]
    settings: Mapping[str, Any]
    solvers: Sequence[str]

    @property
    def digest(self) -> str:
        """Of settings and solvers: each chunk bears it, so that those of two installations never mix."""
        return _sha256({"settings": self.settings, "solvers": self.solvers})

    def write(self, folder: Path) -> None:
        """Write it into the store's folder.

        Raises:
            StoreError: it is larger than any that would be read again.
            OutputError: it cannot be written.
        """
        contents = {"kind": _STORE_KIND, **self.__dict__}
        text = json.dumps(contents | {"sha256": _sha256(contents)}, indent=1).encode()
        if len(text) > _LARGEST:
            raise StoreError(folder, f"a plan of {len(text):,} bytes", f"{_LARGEST:,} at most; split it into several")
        write_bytes(text, folder / MANIFEST)


def has_manifest(folder: Path) -> bool:
    """Whether there is anything under that name."""
    return os.path.lexists(folder / MANIFEST)


def read_manifest(folder: Path, plan: Plan) -> Manifest:
    """The manifest of a store.

    Args:
        folder: the store's.
        plan: the plan that is asked for; the manifest's may be another.

    Raises:
        StoreError: it is not there, not ours, damaged, changed after it was written, or an earlier version's.
    """
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
    """What a checksum that was made anew does not tell."""
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
    """Whether a plan is that of the record or the same with more draws, so that its whole chunks are the plan's."""
    if draw_hash(record) != draw_hash(own := plan.record()):
        return False
    found, wanted = ([one.get("draws"), one.get("chunk")] for one in (record, own))
    if [len(each) if isinstance(each, list) else None for each in found] != [len(plan.cases)] * 2:
        return False
    return all(
        # A case of one short chunk has it drawn anew.
        type(fewer) is int and 0 < fewer <= more and (size == whole or size == fewer <= whole)
        for fewer, size, more, whole in zip(*found, *wanted, strict=True)
    )


def draw_hash(record: Mapping[str, Any]) -> str:
    """SHA-256 of what a plan's record says of one draw: all but how many there are, and how many in a chunk."""
    return _sha256({key: value for key, value in record.items() if key not in ("draws", "chunk")})


def _sha256(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def parse_record(text: bytes) -> dict[str, Any]:
    """A JSON object of few levels.

    Raises:
        ValueError: it is none.
    """
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
    """Whether two values are the same JSON, where 1, 1.0 and true are three and the order of keys counts."""
    return json.dumps(found) == json.dumps(expected)


def _is_flat(value: object, levels: int) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    return not isinstance(value, list) or (levels > 0 and all(_is_flat(one, levels - 1) for one in value))
