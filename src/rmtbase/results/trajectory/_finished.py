"""Finished checkpoints of a trajectory, kept in a file of one step each until all are scored."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import xarray as xr

from rmtbase.errors import MissingFileError, OutputError, StoreError, TableError, resumable
from rmtbase.models import Revision
from rmtbase.progress import Progress
from rmtbase.results import open_table
from rmtbase.results.trajectory._checkpoint_scores import FETCHED
from rmtbase.shown import shown
from rmtbase.tables import LOCK, is_temporary, locked_folder, sweep, write_table

_STEP_FILE = re.compile(r"([0-9a-f]{16})-[0-9a-f]{16}\.nc", re.ASCII)


@dataclass(frozen=True)
class Finished:
    """Folder of one trajectory's finished checkpoints; made by :func:`finished_checkpoints`."""

    folder: Path  # the folder, which also holds files that are being fetched
    key: str  # digest of the options of the scoring

    def write(self, revision: Revision, step: xr.DataTree) -> None:
        """Write one checkpoint, atomically."""
        write_table(step, self._path(revision))

    def read(self, revision: Revision, progress: Progress) -> xr.DataTree | None:
        """Read a checkpoint scored with these options from the same files; None if there is none or it is damaged."""
        try:
            return cast("xr.DataTree", open_table(self._path(revision), "trajectory"))
        except MissingFileError:
            return None
        except TableError as error:
            progress.note(f"not sound, scored again: {error}")
            return None

    def count(self) -> int:
        """Return the number of finished checkpoints."""
        return sum(_STEP_FILE.fullmatch(path.name) is not None for path in self.folder.iterdir())

    def words(self) -> str:
        """Say how many checkpoints are kept, and where; "" if there are none."""
        count = self.count()
        if not count:
            return ""
        return f"{count} finished checkpoint{'s are' if count != 1 else ' is'} kept in {shown(self.folder)}"

    def remove(self) -> None:
        """Delete the finished checkpoints, once the trajectory is written. Other files stay."""
        try:
            for path in list(self.folder.iterdir()):
                if _STEP_FILE.fullmatch(path.name):
                    path.unlink(missing_ok=True)
        except OSError as error:
            raise OutputError(self.folder, f"it cannot be emptied: {error.strerror or error}") from error

    def _path(self, revision: Revision) -> Path:
        which = hashlib.sha256(repr(tuple(revision)).encode("utf-8", "surrogatepass")).hexdigest()
        return self.folder / f"{self.key[:16]}-{which[:16]}.nc"


def finished_folder(output: Path) -> Path:
    """Return the folder of the finished checkpoints of an unfinished trajectory."""
    return output.with_name(f"{output.name}.steps")


@contextmanager
def finished_checkpoints(output: Path, key: str) -> Iterator[Finished]:
    """Open the finished checkpoints of a trajectory for a ``with`` block, locked against other runs."""
    folder = finished_folder(output)
    _require_ours(folder, key)
    finished = Finished(folder, key)
    with locked_folder(folder, "finished checkpoints", lambda: not finished.count()):
        sweep(folder)
        for left in folder.glob(f"{FETCHED}*"):  # by a run that was killed while it scored the checkpoint
            shutil.rmtree(left, ignore_errors=True)
        with resumable(finished.words):
            yield finished


def _require_ours(folder: Path, key: str) -> None:
    if not folder.exists():
        return
    if not folder.is_dir():
        raise StoreError(folder, "something that is no folder", "a folder, or nothing; choose another output name")
    for name in sorted(path.name for path in folder.iterdir()):
        found = _STEP_FILE.fullmatch(name)
        if found is None and name != LOCK and not is_temporary(name) and not name.startswith(FETCHED):
            raise StoreError(
                folder, shown(name), "finished checkpoints, or nothing; choose another output name, or move it away"
            )
        if found is not None and found[1] != key[:16]:
            raise StoreError(
                folder,
                "checkpoints scored with other options, or by another installation",
                "those of this command; choose another output name, or remove the folder to begin anew",
            )
