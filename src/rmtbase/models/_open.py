"""Opening a model by folder, by hub name, or the bundled one: a small transformer at several stages of its training."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

from rmtbase.errors import CheckpointError, CorruptFileError, MissingCheckpointFileError, OutputError, ParameterError
from rmtbase.models._files import read_json_object
from rmtbase.models._hub import HUB_ID, fetch_checkpoint, hub_id
from rmtbase.models._model import Model
from rmtbase.models._other_formats import format_of


def open_model(model: Model | str | Path, revision: str | None = None) -> Model:
    """Open a trained model. Configuration and headers are read and checked; weights are read when asked for.

    Args:
        model: the folder of a checkpoint in Hugging Face format; or ``"demo"``, the bundled model (write
            ``"./demo"`` for a folder of that name); or the name of a model on the hub, such as
            ``"EleutherAI/pythia-70m"``, or of a known one without its owner, ``"pythia-70m"``. A folder comes before a
            model of the hub with the same name. An opened model is given back.
        revision: the checkpoint of the bundled model, or the branch, tag or commit on the hub.

    Raises:
        ParameterError: the name is empty, no such revision is bundled, or a folder or an opened model was given one.
        MissingFileError: there is no such folder, or it lacks a file.
        CheckpointError: or another of its kinds: the checkpoint cannot be fetched, or cannot be read.
        MissingDependencyError: the weights are only there as ``.bin`` files, and torch 2.10 or later is not installed.
    """
    if isinstance(model, Model):
        if revision is not None:
            raise ParameterError("revision", revision, "none beside an opened model, which has its own")
        return model
    if not isinstance(model, (str, Path)) or not str(model).strip():
        raise ParameterError("model", model, "a folder, the name of a model on the hub, or 'demo'")
    if model == "demo":
        folder, revision = demo_checkpoint(revision)
        return Model.from_folder(folder, "demo", revision)
    folder = existing_folder(model)
    if folder is not None:
        return _open_folder(folder, revision)
    if isinstance(model, Path) or not HUB_ID.fullmatch(model):
        raise MissingCheckpointFileError(_expand(Path(model)))
    name = hub_id(model)
    folder = fetch_checkpoint(name, revision)
    # The hub's cache names the folder after the commit.
    return Model.from_folder(folder, name, revision or "main", (f"hub commit {folder.name}",))


def existing_folder(model: str | Path) -> Path | None:
    """What stands there in the file system, or None where nothing does.

    Raises:
        CheckpointError: the path cannot be looked up.
    """
    folder = _expand(Path(model))
    try:
        return folder if folder.exists() else None
    except OSError as error:
        raise CheckpointError(folder, f"cannot be read: {error.strerror}") from error


def _open_folder(folder: Path, revision: str | None) -> Model:
    if not folder.is_dir():
        kind = format_of(folder.name)
        what = "is a file" if kind is None else f"is {kind.found}"
        advice = "pass the folder that holds it and its config.json" if kind is None else kind.advice
        raise CheckpointError(folder, f"{what}; {advice}")
    if revision is not None:
        raise ParameterError("revision", revision, "none for a folder: pass the folder of that revision")
    return Model.from_folder(folder, folder.resolve().name)


def _expand(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:  # ~name, where there is no such user: then it is the name itself
        return path


def demo_root() -> Path:
    """The folder of the bundled model, within the installed package."""
    return Path(str(files("rmtbase.models").joinpath("demo")))


def demo_revisions() -> tuple[str, ...]:
    """The names of the bundled checkpoints, in the order of training.

    Raises:
        MissingFileError: the package was installed without them.
        CorruptFileError: their list is damaged.
    """
    return _read_index()[0]


def demo_checkpoint(revision: str | None = None) -> tuple[Path, str]:
    """The folder of a bundled checkpoint, and its name.

    Args:
        revision: its name; by default the one that the bundle declares to be its default.

    Raises:
        ParameterError: there is no such checkpoint.
        MissingFileError: the package was installed without them.
        CorruptFileError: their list is damaged.
    """
    names, default = _read_index()
    name = default if revision is None else revision
    if name not in names:
        raise ParameterError("revision", name, f"one of the bundled checkpoints: {', '.join(names)}")
    return demo_root() / name, name


def _read_index() -> tuple[tuple[str, ...], str]:
    path = demo_root() / "index.json"
    index = read_json_object(path)
    try:
        return tuple(str(revision["name"]) for revision in index["revisions"]), str(index["default"])
    except (KeyError, TypeError) as error:
        raise CorruptFileError(path, "no list of revisions with a default", "one: install again") from error


def require_other_files(paths: Iterable[Path], model: Model) -> None:
    """Raise :class:`~rmtbase.errors.OutputError` if a path leads to a file of the model.

    Files are compared, not names: the hub's cache keeps a model's files as links to where they are, and a link, or the
    file that it points to, may be the path.
    """
    own = {_identity(file) for file in (*model.path.iterdir(), *model.files)} - {None}
    for path in paths:
        if _identity(path) in own:
            raise OutputError(path, "it is a file of the model that is read; expected another name")


def _identity(path: Path) -> tuple[int, int] | None:
    """What tells a file from any other, links followed; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
