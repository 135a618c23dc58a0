"""Paths and names of models as users give them: what exists, and whether it can be a checkpoint."""

import errno
import re
from pathlib import Path
from typing import Any

from rmtbase.errors import CheckpointError, ParameterError
from rmtbase.models.files._hub import HUB_ID
from rmtbase.models.files._other_formats import format_of
from rmtbase.models.files._other_programs import refusal_of_file

_SUBFOLDER = re.compile(r"[\w.-]+(/[\w.-]+)*", re.ASCII)
_HUB_FOLDER = re.compile(rf"(?P<model>{HUB_ID.pattern.removesuffix('?')})//(?P<folder>{_SUBFOLDER.pattern})", re.ASCII)
_SHARD = re.compile(r"-\d+-of-\d+\.")
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.EBADF, errno.ELOOP)
_NOT_THERE_ON_WINDOWS = (21, 123, 1921)  # device not ready, invalid file name, dangling link


def split_name(
    name: Any, revision: str | None = None, subfolder: str | None = None
) -> tuple[Any, str | None, str | None]:
    """Split ``"owner/name//subfolder@revision"`` into its parts; a path that exists is one. Raises ParameterError."""
    stated = isinstance(name, str) and ("@" in name or "//" in name) and existing_folder(name) is None
    if stated:
        name, revision, subfolder = _split(name, revision, subfolder)
    if subfolder is not None and (not isinstance(name, (str, Path)) or name == "demo"):
        raise ParameterError("subfolder", subfolder, "none: it is for a folder, or for a model on the hub")
    if subfolder is not None and not (_SUBFOLDER.fullmatch(subfolder) and {".", ".."}.isdisjoint(subfolder.split("/"))):
        raise ParameterError("subfolder", subfolder, "the name of a folder within the checkpoint's, as 'text_encoder'")
    return name, revision, subfolder


def _split(name: str, revision: str | None, subfolder: str | None) -> tuple[str, str | None, str | None]:
    model, _, named = name.rpartition("@")
    if not model or existing_folder(model) is None:  # the name of a model holds no @, its revision may
        model, _, named = name.partition("@")
    if not model or ("@" in name and not named):
        return name, revision, subfolder
    inside = None
    if match := _HUB_FOLDER.fullmatch(model):
        model, inside = match["model"], match["folder"]
    for keyword, stated, value in (("revision", named or None, revision), ("subfolder", inside, subfolder)):
        if None not in (stated, value) and stated != value:
            raise ParameterError(keyword, value, f"none beside the name {name!r}, which states {stated!r}")
    return model, named or revision, inside or subfolder


def existing_folder(model: str | Path) -> Path | None:
    """Return the path of an existing folder or file, or None if there is nothing at that path."""
    folder = expanded(Path(model))
    try:
        folder.stat()  # from Python 3.14 on, Path.exists returns False where permission is denied
    except ValueError:  # a null character
        return None
    except OSError as error:
        if error.errno in _NOT_THERE or getattr(error, "winerror", None) in _NOT_THERE_ON_WINDOWS:
            return None
        raise CheckpointError(folder, f"cannot be read: {error.strerror}") from error
    return folder


def require_checkpoint(folder: Path, revision: str | None) -> None:
    """Raise unless the path is a folder, or a file that holds a whole model. Neither has revisions."""
    kind = "folder" if folder.is_dir() else "file"
    if kind == "file" and not _is_whole_model(folder):
        if _SHARD.search(folder.name):
            described = "is one of several files of a checkpoint"
            raise CheckpointError(folder, f"{described}; pass the folder that holds it and its config.json")
        raise refusal_of_file(folder)
    if revision is not None:
        raise ParameterError("revision", revision, f"none for a {kind}: pass the {kind} of that revision")


def _is_whole_model(path: Path) -> bool:
    of_model = path.name.startswith(("pytorch_model", "model")) or format_of(path.name) is None  # no training state
    if path.suffix == ".safetensors" or (path.suffix == ".bin" and of_model):
        return _SHARD.search(path.name) is None and (path.parent / "config.json").exists()
    return path.suffix.lower() == ".gguf"


def expanded(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:  # ~name with no such user: a file may have that name
        return path
