"""Models as users name them: paths, models of the Hugging Face hub, and known ones, whose sizes need no network.

The known models are listed in ``known_models.csv``, one per line.
"""

from __future__ import annotations

import csv
import errno
import hashlib
import re
import time
from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from rmtbase.errors import CheckpointError, MissingDependencyError, ParameterError
from rmtbase.models.files._checkpoint import Checkpoint
from rmtbase.models.files._other_formats import format_of
from rmtbase.models.files._other_programs import refusal_of_file
from rmtbase.models.files._torch_file import require_torch
from rmtbase.shown import quoted

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)
HUB_GGUF = re.compile(rf"(?P<model>{HUB_ID.pattern.removesuffix('?')})/(?P<file>[\w.-]+\.gguf)", re.ASCII)
"""Name of one GGUF file on the hub, whose repositories hold many."""
# adapter_config.json identifies an adapter, model_index.json a pipeline of diffusers.
SAFETENSORS = [
    *("config.json", "model_index.json", "adapter_config.json", "quantize_config.json", "quant_config.json"),
    *("*.safetensors", "*.safetensors.index.json"),
]
TORCH = [
    *("config.json", "pytorch_model*.bin", "pytorch_model.bin.index.json", "adapter_config.json", "adapter_model.bin")
]
# Copies of the same weights in other formats, which some repositories keep beside the checkpoint.
OTHER_COPIES = ["*/*", "consolidated*"]
_SUBFOLDER = re.compile(r"[\w.-]+(/[\w.-]+)*", re.ASCII)
_HUB_FOLDER = re.compile(rf"(?P<model>{HUB_ID.pattern.removesuffix('?')})//(?P<folder>{_SUBFOLDER.pattern})", re.ASCII)
_SHARD = re.compile(r"-\d+-of-\d+\.")
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.EBADF, errno.ELOOP)
_NOT_THERE_ON_WINDOWS = (21, 123, 1921)  # device not ready, invalid file name, dangling link
_SHA256 = re.compile("[0-9a-f]{64}")
_CLOCK = 2.0  # seconds by which the times of files may be coarser than the clock
_NEAR = 6  # names that an error lists


class KnownModel(NamedTuple):
    """Sizes of a published model, as its configuration on the hub gives them.

    Attributes:
        name: its short name, in lower case.
        hub_id: its name on the hub.
        n_layers: layers with attention, in the encoder if there is also a decoder.
        n_heads: query heads in a layer.
        n_key_heads: key heads in a layer.
        d_model: width of the residual stream.
        d_head: head dimension, which need not be d_model / n_heads.
    """

    name: str
    hub_id: str
    n_layers: int
    n_heads: int
    n_key_heads: int
    d_model: int
    d_head: int


@cache
def known_models() -> tuple[KnownModel, ...]:
    """List the models of the hub that have a short name here, with hub id and sizes, family by family."""
    text = files("rmtbase.models").joinpath("known_models.csv").read_text(encoding="utf-8")
    sizes = KnownModel._fields[2:]
    lines = csv.DictReader(text.splitlines())
    return tuple(KnownModel(line["name"], line["hub_id"], *(int(line[size]) for size in sizes)) for line in lines)


def find_known(name: str) -> KnownModel | None:
    """Find a model by its short name, by its hub id, or by that without the owner; the first of several wins."""
    names_of = (lambda m: m.name, lambda m: m.hub_id.lower(), lambda m: m.hub_id.lower().partition("/")[2])
    named = (model for name_of in names_of for model in known_models() if name_of(model) == name.lower())
    return next(named, None)


def names_near(name: str) -> str:
    names = [model.name for model in known_models()]
    asked = name.lower().rpartition("/")[2][:100]
    begin_alike = [candidate for candidate in names if asked and candidate.startswith(asked)]
    near = get_close_matches(asked, names, n=_NEAR, cutoff=0.5)
    return ", ".join(list(dict.fromkeys((*near, *begin_alike)))[:_NEAR] or ["gpt2", "pythia-70m", "llama-3.1-8b"])


def hub_id(name: str) -> str:
    """Return the hub id of a known model, or else the name itself: ``pythia-70m`` is ``EleutherAI/pythia-70m``."""
    model = find_known(name)
    return name if model is None else model.hub_id


def fetch_checkpoint(
    model: str, revision: str | None = None, subfolder: str | None = None, cache: Path | None = None
) -> Path:
    """Download a model from the hub, unless the hub's cache has it, and return its local folder."""
    if cache is not None:
        with suppress(CheckpointError, MissingDependencyError):
            folder = _download(model, revision, SAFETENSORS, subfolder, local=True)
            Checkpoint.open(folder / (subfolder or ""))
            return folder
    folder = _download(model, revision, SAFETENSORS, subfolder, cache)
    if any((folder / (subfolder or "")).glob("*.safetensors")):
        return folder
    require_torch()
    folder = _download(model, revision, TORCH, subfolder, cache)
    inside = folder / (subfolder or "")
    if not any(inside.glob("*.bin")) and not (inside / "model_index.json").exists():
        raise CheckpointError(
            model,
            "the hub has this model, but neither safetensors nor pytorch_model.bin in it: download the file of its "
            "weights and pass its path: an error then says how to open it; for GGUF pass ORG/NAME/FILE.gguf",
        )
    return folder


def fetch_file(model: str, name: str, revision: str | None = None, cache: Path | None = None) -> Path:
    return _download(model, revision, [name], cache=cache) / name


def fetch_refs(model: str) -> dict[str, str]:
    from huggingface_hub import HfApi

    try:
        refs = HfApi().list_repo_refs(model)
    except Exception as error:
        raise CheckpointError(model, explain(error, None)) from error
    return {ref.name: ref.target_commit for ref in (*refs.branches, *refs.tags)}


def _download(
    model: str,
    revision: str | None,
    patterns: list[str],
    subfolder: str | None = None,
    cache: Path | None = None,
    local: bool = False,
) -> Path:
    from huggingface_hub import snapshot_download

    inside = "" if subfolder is None else f"{subfolder}/"
    allowed, ignored = ([inside + pattern for pattern in patterns_of] for patterns_of in (patterns, OTHER_COPIES))
    options: dict[str, Any] = {"allow_patterns": allowed, "ignore_patterns": ignored}
    options |= ({"cache_dir": cache} if cache else {}) | ({"local_files_only": True} if local else {})
    begun = time.time()
    try:
        folder = Path(snapshot_download(model, revision=revision, **options))
    except Exception as error:  # the only common base of the errors of the client and its transport
        raise CheckpointError(model, explain(error, revision)) from error
    for link in () if local else folder.rglob("*"):
        # The name of a blob is the SHA-256 that the hub has for it, its ETag of an LFS file.
        blob = link.resolve()
        if not _SHA256.fullmatch(blob.name) or blob.stat().st_mtime < begun - _CLOCK:
            continue
        with blob.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if digest != blob.name:
            blob.unlink()
            problem = f"{link.name} was downloaded with SHA-256 {digest}, and the hub has {blob.name}; fetch it again"
            raise CheckpointError(model, problem)
    return folder


def explain(error: Exception, revision: str | None) -> str:
    causes = {
        "GatedRepoError": "access to this model must be asked for on the hub; then log in with hf auth login",
        "RepositoryNotFoundError": "neither a folder here nor a public model of the hub; check the name, or log in "
        "with hf auth login",
        "RevisionNotFoundError": f"the hub has this model, but no revision {quoted(revision)}",
        "Exception": f"not a folder here, and cannot be fetched from the hub ({type(error).__name__}); check the name "
        "and the connection, or pass the folder of a downloaded checkpoint",
    }
    return next(causes[kind.__name__] for kind in type(error).__mro__ if kind.__name__ in causes)


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
    kind = "folder" if folder.is_dir() else "file"
    is_shard = _SHARD.search(folder.name) is not None
    of_model = folder.name.startswith(("pytorch_model", "model")) or format_of(folder.name) is None  # no training state
    is_weights = folder.suffix == ".safetensors" or (folder.suffix == ".bin" and of_model)
    is_whole = is_weights and not is_shard and (folder.parent / "config.json").exists()
    if kind == "file" and not is_whole and folder.suffix.lower() != ".gguf":
        if is_shard:
            described = "is one of several files of a checkpoint"
            raise CheckpointError(folder, f"{described}; pass the folder that holds it and its config.json")
        raise refusal_of_file(folder)
    if revision is not None:
        raise ParameterError("revision", revision, f"none for a {kind}: pass the {kind} of that revision")


def expanded(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:  # ~name with no such user: a file may have that name
        return path
