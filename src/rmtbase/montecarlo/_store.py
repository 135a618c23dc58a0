"""Stores: folders of the finished chunks of a plan, written atomically and verified to the last byte.

The folder holds

* ``store.json``: the plan, and the versions, processor, settings and solvers that decide the bits, with a checksum;
* one file for each finished chunk;
* ``lock``, which only one run holds at a time;
* ``damaged/``, for files that are put aside because they are not sound chunks of this plan.

A chunk depends only on (seed, case, draw indices), not on other draws. So a plan that differs only in having more draws
continues in the store, from all chunks except a last chunk of a case that was shorter than the others.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from rmtbase.errors import MissingFileError, OutputError, StoreError, TableError
from rmtbase.montecarlo._chunks import Chunk, Chunks
from rmtbase.montecarlo._compute import chunk_layout
from rmtbase.montecarlo._machine import differences
from rmtbase.montecarlo._plan import Plan
from rmtbase.montecarlo._store_files import (
    MANIFEST,
    Arrays,
    Manifest,
    draw_hash,
    extends,
    has_manifest,
    pack,
    read_manifest,
    read_rows,
    require_sound,
)
from rmtbase.progress import SILENT, Progress
from rmtbase.shown import shown
from rmtbase.tables import LOCK, is_temporary, locked_folder, sweep, write_bytes

_DAMAGED = "damaged"
_CHUNK = re.compile(r"case-(\d{4,})-draw-(\d{10,})\.chunk", re.ASCII)


@dataclass(frozen=True)
class Store:
    """Chunks of one plan in one folder. Opened by :func:`open_store`."""

    folder: Path
    plan: Plan

    def path(self, chunk: Chunk) -> Path:
        """Return the file of a chunk."""
        return self.folder / f"case-{chunk.case:04d}-draw-{chunk.start:010d}.chunk"

    def write(self, chunk: Chunk, arrays: Arrays) -> None:
        """Write one finished chunk atomically."""
        write_bytes(pack(self._identity(chunk), arrays), self.path(chunk), swept=True)

    def read(self, chunk: Chunk, variable: str, rows: slice = slice(None)) -> NDArray[Any]:
        """Read rows of one array of a chunk that is known to be sound."""
        return read_rows(self.path(chunk), chunk_layout(self.plan, chunk), variable, rows)

    def has(self, chunk: Chunk) -> bool:
        """Return True if there is a file under the chunk's name, sound or not."""
        return os.path.lexists(self.path(chunk))

    def unsound(self, chunk: Chunk) -> str | None:
        """Say what is wrong with an existing chunk; None if it is sound."""
        try:
            require_sound(self.path(chunk), self._identity(chunk), chunk_layout(self.plan, chunk))
        except (TableError, MissingFileError) as error:
            return str(error)
        return None

    def was_shorter(self, chunk: Chunk) -> bool:
        """Return True if the manifest's plan, which may have had fewer draws, ended within the chunk."""
        return chunk.start < self._manifest.plan["draws"][chunk.case] < chunk.start + chunk.count

    def present(self) -> list[int]:
        """List the numbers of the existing chunks, sound or not, ascending, from one listing of the folder."""
        try:
            with os.scandir(self.folder) as entries:
                numbers = [self._number(entry.name) for entry in entries]
        except FileNotFoundError:
            return []
        return sorted(number for number in numbers if number is not None)

    def missing(self, progress: Progress = SILENT) -> Chunks:
        """Return the missing chunks. Unsound ones are put aside with a note, and count as missing.

        A shorter last chunk of a case, from a plan with fewer draws, also counts as missing; the whole one replaces it.
        """
        sound = []
        for number in self.present():
            chunk = self.plan.chunks.numbered(number)
            if (wrong := self.unsound(chunk)) is None:
                sound.append(number)
            elif not self.was_shorter(chunk):
                aside = self._put_aside(self.path(chunk))
                progress.note(f"not a sound chunk, drawn again: {wrong} (kept as {shown(aside)})")
        return self.plan.chunks.without(sound)

    def settings(self) -> dict[str, Any]:
        """Return the settings and solvers with which the chunks were drawn, as recorded by :meth:`record_settings`."""
        return {**self._manifest.settings, "solvers": list(self._manifest.solvers)}

    def record_settings(self, machine: Mapping[str, Any], choose_solvers: Callable[[], list[str]]) -> list[str]:
        """Record the settings of the drawing machine, or check that existing chunks were drawn with the same.

        The solver of each case.
        """
        if not has_manifest(self.folder):
            Manifest(self.plan.hash, self.plan.record(), dict(machine), choose_solvers()).write(self.folder)
        recorded = self._manifest
        if differing := differences(recorded.settings, machine):
            raise StoreError(
                self.folder,
                f"chunks of another installation ({differing})",
                "those of this one; go on with that, or remove the folder to begin anew",
            )
        if recorded.plan_hash != self.plan.hash:
            self._extend()
        return list(recorded.solvers)

    @property
    def extended_from(self) -> int | None:
        """Number of draws of the smaller plan to which the store still belongs; None if it is this plan's own."""
        if not has_manifest(self.folder) or self._manifest.plan_hash == self.plan.hash:
            return None
        return sum(self._manifest.plan["draws"])

    def _extend(self) -> None:
        """Turn the store of the smaller plan into this plan's. If killed, it stays a valid store of one of them."""
        try:
            for number in self.present():
                if self.was_shorter(chunk := self.plan.chunks.numbered(number)):
                    self.path(chunk).unlink(missing_ok=True)
        except OSError as error:
            raise OutputError(self.folder, f"a chunk cannot be removed: {error.strerror or error}") from error
        recorded = self._manifest
        Manifest(self.plan.hash, self.plan.record(), recorded.settings, recorded.solvers).write(self.folder)
        del self.__dict__["_manifest"]  # to be read again

    def remove(self) -> None:
        """Delete the chunks after their table is written. Foreign files stay; the folder is removed with its lock."""
        try:
            for number in self.present():
                self.path(self.plan.chunks.numbered(number)).unlink(missing_ok=True)
            (self.folder / MANIFEST).unlink(missing_ok=True)
        except OSError as error:
            raise OutputError(self.folder, f"its chunks cannot be removed: {error.strerror or error}") from error

    def _number(self, name: str) -> int | None:
        """Return the number of the chunk whose file has that name; None if no chunk of this plan has."""
        if (found := _CHUNK.fullmatch(name)) is None:
            return None
        number = self.plan.chunks.number(int(found[1]), int(found[2]))
        is_its = number is not None and self.path(self.plan.chunks.numbered(number)).name == name
        return number if is_its else None

    @cached_property
    def _manifest(self) -> Manifest:
        """Manifest, read once: while a run holds the lock, only :meth:`_extend` changes it."""
        return read_manifest(self.folder, self.plan)

    @cached_property
    def _draw_hash(self) -> str:
        return draw_hash(self.plan.record())

    def _identity(self, chunk: Chunk) -> dict[str, str | int]:
        return {
            "draw_hash": self._draw_hash,
            "settings": self._manifest.digest,
            "case": self.plan.cases[chunk.case].ensemble.name,
            "start": chunk.start,
            "count": chunk.count,
        }

    def _put_aside(self, path: Path) -> Path:
        folder = self.folder / _DAMAGED
        names = (folder / f"{path.stem}-{number}{path.suffix}" for number in itertools.count(1))
        try:
            folder.mkdir(exist_ok=True)
            return path.rename(next(name for name in names if not os.path.lexists(name)))
        except OSError as error:
            raise OutputError(
                folder, f"{path.name} is damaged and cannot be put aside there ({error.strerror or error})"
            ) from error


@contextmanager
def open_store(folder: Path | str, plan: Plan) -> Iterator[Store]:
    """Open or create the store of a plan, locked against other runs for the duration of a ``with`` block."""
    folder = Path(folder)
    require_store(folder, plan)
    with locked_folder(folder, "chunks", lambda: not has_manifest(folder)):
        sweep(folder)
        yield Store(folder, plan)


def require_store(folder: Path, plan: Plan) -> None:
    """Refuse an existing folder that is not the store of this plan, or of the same plan with fewer draws."""
    if not os.path.lexists(folder):
        return
    if not folder.is_dir():
        raise StoreError(folder, "something that is no folder", "a folder, or nothing; choose another output name")
    if has_manifest(folder):
        recorded = read_manifest(folder, plan)
        if recorded.plan_hash != plan.hash and not extends(plan, recorded.plan):
            words = differences(recorded.plan, plan.record())
            raise StoreError(
                folder,
                f"the chunks of another plan ({words})",
                "those of this one; choose another output name, or remove the folder to begin anew",
            )
    elif foreign := sorted(file.name for file in folder.iterdir() if not _ours(file.name)):
        raise StoreError(
            folder,
            f"no {MANIFEST}, but {shown(foreign[0])}" + (f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""),
            "the store of a plan, or nothing; choose another output name, or move what is there away",
        )


def _ours(name: str) -> bool:
    return name in (LOCK, _DAMAGED) or is_temporary(name)
