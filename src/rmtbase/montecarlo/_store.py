"""Stores: folders of finished chunks, each one file that is written atomically and verified to the last byte.

A chunk's file has a line that identifies it, its arrays, and a checksum; the reader states the line it expects. The
manifest records all that decides the bits. A plan that differs in the number of draws or the sizes of chunks goes on in
the same store, from the chunks that both have. Only one run at a time holds the file ``lock``.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from rmtbase.errors import MissingFileError, OutputError, StoreError, TableError, UnreadableTableError
from rmtbase.linalg import SOLVERS
from rmtbase.montecarlo._compute import Layout, chunk_layout
from rmtbase.montecarlo._machine import differences
from rmtbase.montecarlo._plan import Chunk, Plan
from rmtbase.progress import SILENT, Progress
from rmtbase.regular_files import open_regular
from rmtbase.shown import one_line, quoted, shown
from rmtbase.tables import LOCK, is_temporary, locked_folder, sweep, write_bytes
from rmtbase.words import listing

MANIFEST = "store.json"

_KIND = "rmtbase store"
_LARGEST = 1 << 24  # bytes of a manifest: a hundred thousand cases
_CHUNK = re.compile(r"case-(\d{4,})-draws-(\d{10,})-(\d{10,})\.chunk", re.ASCII)
_ANEW = "put back a copy of it, or remove the folder to begin anew"
_PIECE = 1 << 24  # bytes that are checked at a time

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class ChunkFile:
    path: Path
    identity: Mapping[str, str | int]
    layout: Layout

    @cached_property
    def _header(self) -> bytes:
        record = {"kind": "rmtbase chunk", **self.identity, "arrays": self.layout}
        return json.dumps(record).encode() + b"\n"

    def write(self, arrays: Arrays, swept: bool = False) -> None:
        pieces = [self._header, *(np.ascontiguousarray(arrays[name]).tobytes() for name in self.layout)]
        digest = hashlib.sha256()
        for piece in pieces:
            digest.update(piece)
        write_bytes(b"".join([*pieces, digest.digest()]), self.path, swept)

    def require_sound(self) -> None:
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


@dataclass(frozen=True)
class Manifest:
    draws: Mapping[str, Any]  # what determines a draw, of the plan's record
    settings: Mapping[str, Any]  # versions, processor and JAX settings
    solvers: list[str]  # solver of each case

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the record. Each chunk contains it, so that chunks of two plans or installations never mix."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    def write(self, folder: Path) -> None:
        text = json.dumps({"kind": _KIND, **asdict(self), "sha256": self.digest}, indent=1).encode()
        if len(text) > _LARGEST:
            raise StoreError(folder, f"a plan of {len(text):,} bytes", f"{_LARGEST:,} at most; split it into several")
        write_bytes(text, folder / MANIFEST)

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        try:
            with open_regular(folder / MANIFEST) as file:
                text = file.read(_LARGEST + 1)
            if len(text) > _LARGEST:
                raise ValueError(f"it has more than {_LARGEST:,} bytes")
            record = json.loads(text)
            if not isinstance(record, dict) or record.pop("kind", None) != _KIND:
                raise ValueError("it is not that of a store")
            digest = record.pop("sha256", None)
            manifest = cls(**record)
            if digest != manifest.digest:
                raise ValueError("it was changed after it was written: its checksum does not fit")
            if (type(manifest.draws), type(manifest.settings), type(manifest.solvers)) != (dict, dict, list):
                raise ValueError("it is not that of a store")
        except (ValueError, TypeError, RecursionError, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else one_line(str(error), 200)
            expected = f"that of a plan's store; {_ANEW}"
            raise StoreError(folder, f"an unreadable {MANIFEST} ({reason})", expected) from error
        return manifest


@dataclass(frozen=True)
class Store:
    folder: Path
    plan: Plan

    def path(self, chunk: Chunk) -> Path:
        return self.folder / f"case-{chunk.case:04d}-draws-{chunk.start:010d}-{chunk.start + chunk.count:010d}.chunk"

    def write(self, chunk: Chunk, arrays: Arrays) -> None:
        self._file(chunk).write(arrays, swept=True)

    def read(self, chunk: Chunk, variable: str, rows: slice = slice(None)) -> NDArray[Any]:
        return self._file(chunk).read(variable, rows)

    def unsound(self, chunk: Chunk) -> str | None:
        try:
            self._file(chunk).require_sound()
        except (TableError, MissingFileError) as error:
            return str(error)
        return None

    def present(self) -> list[Chunk]:
        names = self._names()
        return [chunk for chunk in self.plan.chunks if self.path(chunk).name in names]

    def missing(self, progress: Progress = SILENT) -> list[Chunk]:
        sound = set()
        for chunk in self.present():
            if (fault := self.unsound(chunk)) is None:
                sound.add(chunk)
            else:
                progress.note(f"not a sound chunk, drawn again: {fault}")
        return [chunk for chunk in self.plan.chunks if chunk not in sound]

    def settings(self) -> dict[str, Any]:
        return {**self._manifest.settings, "solvers": list(self._manifest.solvers)}

    def record_settings(self, machine: Mapping[str, Any], choose_solvers: Callable[[], list[str]]) -> list[str]:
        if not _has_manifest(self.folder):
            Manifest(self.plan.draws_record, dict(machine), choose_solvers()).write(self.folder)
        if differing := differences(self._manifest.settings, machine):
            expected = "those of this one; go on with that, or remove the folder to begin anew"
            raise StoreError(self.folder, f"chunks of another installation ({differing})", expected)
        return self._manifest.solvers

    def remove(self) -> None:
        """Delete the chunks after their table is written, but not those of a longer run, nor foreign files."""
        try:
            for match in filter(None, map(_CHUNK.fullmatch, self._names())):
                case, stop = int(match[1]), int(match[3])
                if case < len(self.plan.cases) and stop <= self.plan.cases[case].draws:
                    (self.folder / match[0]).unlink(missing_ok=True)
            if not any(map(_CHUNK.fullmatch, self._names())):
                (self.folder / MANIFEST).unlink(missing_ok=True)
        except OSError as error:
            raise OutputError(self.folder, f"its chunks cannot be removed: {error.strerror or error}") from error

    def _names(self) -> set[str]:
        return {file.name for file in self.folder.iterdir()}

    @cached_property
    def _manifest(self) -> Manifest:
        return Manifest.read(self.folder)  # it does not change while a run holds the lock

    def _file(self, chunk: Chunk) -> ChunkFile:
        name = self.plan.cases[chunk.case].ensemble.name
        identity = {"store": self._manifest.digest, "case": name, "start": chunk.start, "count": chunk.count}
        return ChunkFile(self.path(chunk), identity, chunk_layout(self.plan, chunk))


@contextmanager
def open_store(folder: Path | str, plan: Plan) -> Iterator[Store]:
    folder = Path(folder)
    if os.path.lexists(folder) and not folder.is_dir():
        raise StoreError(folder, "something that is no folder", "a folder, or nothing; choose another output name")
    if _has_manifest(folder):
        manifest = Manifest.read(folder)
        if differing := differences(manifest.draws, plan.draws_record):
            expected = "those of this one; choose another output name, or remove the folder to begin anew"
            raise StoreError(folder, f"the chunks of another plan ({differing})", expected)
        solvers = ["none"] if plan.measure == "elements" else list(SOLVERS)
        if len(manifest.solvers) != len(plan.cases) or any(solver not in solvers for solver in manifest.solvers):
            expected = f"one of {', '.join(solvers)} for each case; {_ANEW}"
            raise StoreError(folder, f"a {MANIFEST} with the solvers {manifest.solvers}", expected)
    elif folder.is_dir():
        foreign = sorted(file.name for file in folder.iterdir() if file.name != LOCK and not is_temporary(file.name))
        if foreign:
            expected = "the store of a plan, or nothing; choose another output name, or move what is there away"
            raise StoreError(folder, f"no {MANIFEST}, but {listing([*map(shown, foreign)], 1)}", expected)
    with locked_folder(folder, "chunks", lambda: not _has_manifest(folder)):
        sweep(folder)
        yield Store(folder, plan)


def _has_manifest(folder: Path) -> bool:
    return os.path.lexists(folder / MANIFEST)
