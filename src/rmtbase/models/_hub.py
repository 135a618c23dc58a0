"""Fetching a checkpoint from the Hugging Face hub."""

from __future__ import annotations

import re
from pathlib import Path

from rmtbase.errors import CheckpointError
from rmtbase.models._known_models import find_known
from rmtbase.models._torch_file import require_torch
from rmtbase.shown import quoted

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)
# adapter_config.json, so that an adapter is told what it is.
_SAFETENSORS = ["config.json", "adapter_config.json", "*.safetensors", "*.safetensors.index.json"]
_TORCH = ["config.json", "pytorch_model*.bin", "pytorch_model.bin.index.json"]
# Copies of the same weights in other formats, which some repositories keep beside the checkpoint.
_OTHER_COPIES = ["*/*", "consolidated*"]


def hub_id(name: str) -> str:
    """The hub id of a known model, or the name itself: ``pythia-70m`` is ``EleutherAI/pythia-70m``."""
    known = find_known(name)
    return name if known is None else known.hub_id


def fetch_checkpoint(model: str, revision: str | None = None) -> Path:
    """The local folder of a model of the hub, downloaded where the hub's cache does not have it.

    Only the configuration and the weights are fetched: safetensors, or ``.bin`` files where there are none.
    No code is.

    Raises:
        CheckpointError: the hub cannot be reached, or has no such model or revision, or refuses access.
        MissingDependencyError: there are only ``.bin`` files, and torch 2.10 or later is not installed.
    """
    folder = _download(model, revision, _SAFETENSORS)
    if any(folder.glob("*.safetensors")):
        return folder
    require_torch()
    return _download(model, revision, _TORCH)


def fetch_config(model: str, revision: str | None = None) -> Path:
    """The local folder of a model's ``config.json``, downloaded, and nothing else, where the hub's cache lacks it.

    Raises:
        CheckpointError: as :func:`fetch_checkpoint`.
    """
    return _download(model, revision, ["config.json"])


def _download(model: str, revision: str | None, patterns: list[str]) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(model, revision=revision, allow_patterns=patterns, ignore_patterns=_OTHER_COPIES))
    except Exception as error:  # the client's and its transport's errors have no common base but this
        raise CheckpointError(model, _explain(error, revision)) from error


def _explain(error: Exception, revision: str | None) -> str:
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "GatedRepoError" in kinds:
        return "access to this model must be asked for on the hub; then log in with hf auth login"
    if "RepositoryNotFoundError" in kinds:
        return "neither a folder here nor a public model of the hub; check the name, or log in with hf auth login"
    if "RevisionNotFoundError" in kinds:
        return f"the hub has this model, but no revision {quoted(revision)}"
    return (
        f"not a folder here, and cannot be fetched from the hub ({type(error).__name__}); "
        "check the name and the connection, or pass the folder of a downloaded checkpoint"
    )
