"""A store: the finished chunks of a plan, in a folder, written atomically and checked to the last byte.

The folder holds ``store.json`` (the plan, and what else decides about bits: versions, processor, settings, solvers; all
under a checksum), one file for each finished chunk, ``lock``, which only one run holds at a time, ``damaged/``, where
files that are no chunk of this plan are put aside, and ``lock-FIRST-STOP`` of each run that draws only these chunks:
any number of such runs work side by side, and none beside a run of all chunks.

A chunk is a function of (seed, case, draw indices), and of no other draw: so a plan that is equal but for more draws
goes on in the store, from all chunks but each case's last, where that was shorter than others.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from rmtbase.errors import MissingFileError, OutputError, StoreError, TableError
from rmtbase.montecarlo._chunks import Chunk, Chunks, Run
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
_PART_LOCK = re.compile(r"lock-\d+-\d+", re.ASCII)
_PATIENCE = 300.0  # seconds to wait for another run to record its settings
_CHUNK = re.compile(r"case-(\d{4,})-draw-(\d{10,})\.chunk", re.ASCII)


@dataclass(frozen=True)
class Store:
    """The chunks of one plan in one folder. Opened by :func:`open_store`."""

    folder: Path
    plan: Plan

    def path(self, chunk: Chunk) -> Path:
        """The file of a chunk."""
        return self.folder / f"case-{chunk.case:04d}-draw-{chunk.start:010d}.chunk"

    def write(self, chunk: Chunk, arrays: Arrays) -> None:
        """Write one finished chunk; it is there as a whole or not at all.

        Raises:
            OutputError: it cannot be written (a full disk, a read-only folder). The other chunks are untouched.
        """
        write_bytes(pack(self._identity(chunk), arrays), self.path(chunk), swept=True)

    def read(self, chunk: Chunk, variable: str, rows: slice = slice(None)) -> NDArray[Any]:
        """Rows of one array of a chunk that is known to be sound.

        Raises:
            MissingFileError: it is not there.
            TableError: it has been damaged since.
        """
        return read_rows(self.path(chunk), chunk_layout(self.plan, chunk), variable, rows)

    def has(self, chunk: Chunk) -> bool:
        """Whether there is anything under the chunk's name, sound or not."""
        return os.path.lexists(self.path(chunk))

    def unsound(self, chunk: Chunk) -> str | None:
        """What is wrong with a chunk that is there; None if nothing."""
        try:
            require_sound(self.path(chunk), self._identity(chunk), chunk_layout(self.plan, chunk))
        except (TableError, MissingFileError) as error:
            return str(error)
        return None

    def was_shorter(self, chunk: Chunk) -> bool:
        """Whether the plan of the manifest, which may have had fewer draws, ended within the chunk."""
        return chunk.start < self._manifest.plan["draws"][chunk.case] < chunk.start + chunk.count

    def present(self) -> list[int]:
        """The numbers of the chunks that are there, sound or not, ascending: from one reading of the folder."""
        try:
            with os.scandir(self.folder) as entries:
                numbers = [self._number(entry.name) for entry in entries]
        except FileNotFoundError:
            return []
        return sorted(number for number in numbers if number is not None)

    def missing(self, progress: Progress = SILENT, part: Run | None = None) -> Chunks:
        """The chunks that are not there. What is there and unsound is put aside, and a note says so.

        The last chunk of a case that was to have fewer draws counts as not there: the whole one takes its place.

        Args:
            progress: told of unsound chunks.
            part: look only at the chunks of these numbers; None for all.

        Raises:
            OutputError: an unsound chunk cannot be put aside.
        """
        first, stop = part or (0, self.plan.chunks.size)
        sound = []
        for number in self.present():
            if not first <= number < stop:
                continue
            chunk = self.plan.chunks.numbered(number)
            if (wrong := self.unsound(chunk)) is None:
                sound.append(number)
            elif not self.was_shorter(chunk):
                aside = self._put_aside(self.path(chunk))
                progress.note(f"not a sound chunk, drawn again: {wrong} (kept as {shown(aside)})")
        return self.plan.chunks.without(sound).between(first, stop)

    def settings(self) -> dict[str, Any]:
        """What the chunks were drawn with beside the plan, as :meth:`record_settings` wrote it down."""
        return {**self._manifest.settings, "solvers": list(self._manifest.solvers)}

    def exclusively(self) -> AbstractContextManager[None]:
        """Hold the store as a run of all chunks does, after waiting for another run that holds it.

        Raises:
            StoreError: another run has held it for minutes.
            OutputError: it cannot be locked.
        """
        return locked_folder(self.folder, "chunks", lambda: not has_manifest(self.folder), patience=_PATIENCE)

    def record_settings(self, machine: Mapping[str, Any], choose_solvers: Callable[[], list[str]]) -> list[str]:
        """Record what the chunks are drawn with, or make sure that it is what those already there were drawn with.

        Args:
            machine: versions and platform of what will draw, plain values.
            choose_solvers: called for the solver of each case where none is recorded.

        Returns:
            The solver of each case.

        Raises:
            StoreError: chunks drawn by another installation are there.
            OutputError: it cannot be written down.
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
        """The draws of the smaller plan whose store this is still; None where it is this plan's own."""
        if not has_manifest(self.folder) or self._manifest.plan_hash == self.plan.hash:
            return None
        return sum(self._manifest.plan["draws"])

    def _extend(self) -> None:
        """Make the store of the smaller plan that of this one. Killed at any moment, it is either's, and whole."""
        try:
            for number in self.present():
                if self.was_shorter(chunk := self.plan.chunks.numbered(number)):
                    self.path(chunk).unlink(missing_ok=True)
        except OSError as error:
            raise OutputError(self.folder, f"a chunk cannot be removed: {error.strerror or error}") from error
        recorded = self._manifest
        Manifest(self.plan.hash, self.plan.record(), recorded.settings, recorded.solvers).write(self.folder)
        del self.__dict__["_manifest"]  # to be read anew

    def remove(self) -> None:
        """Delete the chunks, once their table is written. What is not ours stays; the folder goes with its lock.

        Raises:
            OutputError: some of it cannot be deleted.
        """
        try:
            for number in self.present():
                self.path(self.plan.chunks.numbered(number)).unlink(missing_ok=True)
            (self.folder / MANIFEST).unlink(missing_ok=True)
        except OSError as error:
            raise OutputError(self.folder, f"its chunks cannot be removed: {error.strerror or error}") from error

    def _number(self, name: str) -> int | None:
        """The number of the chunk whose file has that name; None if it is no chunk's of this plan."""
        if (found := _CHUNK.fullmatch(name)) is None:
            return None
        number = self.plan.chunks.number(int(found[1]), int(found[2]))
        is_its = number is not None and self.path(self.plan.chunks.numbered(number)).name == name
        return number if is_its else None

    @cached_property
    def _manifest(self) -> Manifest:
        """Read once: what it says does not change while a run holds the lock, but by :meth:`_extend`."""
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
    """The store of a plan, made where there is none, and locked against other runs for the length of a ``with`` block.

    Args:
        folder: the store's folder. Its own folder must be there.
        plan: what the store is for.

    Raises:
        StoreError: the folder is another plan's, is in use, or is no store. Nothing in it was changed.
        OutputError: it cannot be made or locked.
    """
    folder = Path(folder)
    require_store(folder, plan)
    with locked_folder(folder, "chunks", lambda: not has_manifest(folder)):
        for lock in sorted(file.name for file in folder.iterdir() if _PART_LOCK.fullmatch(file.name)):
            with locked_folder(folder, "chunks", lambda: True, lock):
                pass  # its run was killed, and its lock goes
        sweep(folder)
        yield Store(folder, plan)


@contextmanager
def open_part(folder: Path, plan: Plan, first: int, stop: int) -> Iterator[Store]:
    """The store of a plan for a run that draws the chunks first, …, stop - 1, beside runs that draw others.

    Raises:
        StoreError: the folder is another plan's or is no store, or another run draws the same chunks.
        OutputError: it cannot be made or locked.
    """
    require_store(folder, plan)
    with locked_folder(folder, "chunks", lambda: True, f"lock-{first}-{stop}"):
        yield Store(folder, plan)


def require_store(folder: Path, plan: Plan) -> None:
    """Refuse a folder that is there and is neither this plan's store nor that of the same with fewer draws.

    Raises:
        StoreError: a file, another plan's store, or something else.
    """
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
    return name in (LOCK, _DAMAGED) or is_temporary(name) or _PART_LOCK.fullmatch(name) is not None
