"""Models of the Hugging Face hub: known models, whose sizes need no network, and downloads of checkpoints.

The known models are listed in ``known_models.csv``, one per line.
"""

from __future__ import annotations

import csv
import hashlib
import re
import time
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from rmtbase.errors import CheckpointError, MissingDependencyError
from rmtbase.models.files._checkpoint import Checkpoint
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


@cache
def _known_by_name() -> dict[str, KnownModel]:
    models = known_models()[::-1]  # reversed, so that the first of several wins
    without_owner = {model.hub_id.lower().partition("/")[2]: model for model in models}
    return without_owner | {model.hub_id.lower(): model for model in models} | {model.name: model for model in models}


def find_known(name: str) -> KnownModel | None:
    return _known_by_name().get(name.lower())


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
    if cache is not None and (folder_held := _held(model, revision, subfolder)) is not None:
        return folder_held
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


def fetch_config(model: str, revision: str | None = None) -> Path:
    return _download(model, revision, ["config.json"])


def fetch_refs(model: str) -> dict[str, str]:
    from huggingface_hub import HfApi

    try:
        refs = HfApi().list_repo_refs(model)
    except Exception as error:
        raise CheckpointError(model, explain(error, None)) from error
    return {ref.name: ref.target_commit for ref in (*refs.branches, *refs.tags)}


def _held(model: str, revision: str | None, subfolder: str | None) -> Path | None:
    try:
        folder = _download(model, revision, SAFETENSORS, subfolder, local=True)
        Checkpoint.open(folder / (subfolder or ""))
    except (CheckpointError, MissingDependencyError):
        return None
    return folder


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
    if not local:
        _require_digests(model, folder, begun)
    return folder


def _require_digests(model: str, folder: Path, begun: float) -> None:
    """Compare files downloaded since then with the SHA-256 that the hub has for them, its ETag of an LFS file."""
    for link in folder.rglob("*"):
        blob = link.resolve()
        if not _SHA256.fullmatch(blob.name) or blob.stat().st_mtime < begun - _CLOCK:
            continue
        with blob.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if digest != blob.name:
            blob.unlink()
            problem = f"{link.name} was downloaded with SHA-256 {digest}, and the hub has {blob.name}; fetch it again"
            raise CheckpointError(model, problem)


def explain(error: Exception, revision: str | None) -> str:
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "GatedRepoError" in kinds:
        return "access to this model must be asked for on the hub; then log in with hf auth login"
    if "RepositoryNotFoundError" in kinds:
        return "neither a folder here nor a public model of the hub; check the name, or log in with hf auth login"
    if "RevisionNotFoundError" in kinds:
        return f"the hub has this model, but no revision {quoted(revision)}"
    advice = "check the name and the connection, or pass the folder of a downloaded checkpoint"
    return f"not a folder here, and cannot be fetched from the hub ({type(error).__name__}); {advice}"
