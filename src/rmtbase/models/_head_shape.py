"""The shape of a model's attention heads: from its name, or from its configuration alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from rmtbase.errors import CheckpointError, MissingCheckpointFileError, ParameterError, UnknownArchitectureError
from rmtbase.models._config import read_architecture, read_dimensions
from rmtbase.models._demo import demo_checkpoint
from rmtbase.models._head_readings import OWN_SIZES, RATIO, HeadSizes, head_readings
from rmtbase.models._hub import HUB_ID, fetch_config, hub_id
from rmtbase.models._json_file import read_json_object
from rmtbase.models._known_models import find_known, names_near
from rmtbase.models._layouts import LAYOUTS, ConfigKeys
from rmtbase.models._open import existing_folder
from rmtbase.models._other_formats import refuse_other_formats
from rmtbase.shown import quoted

_USUAL_KEYS = ConfigKeys(
    n_layers=("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers"),
    n_heads=("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads", "encoder_attention_heads"),
    n_key_heads=("num_key_value_heads", "num_kv_heads", "n_head_kv"),
    d_model=("hidden_size", "n_embd", "d_model", "n_embed", "dim"),
)


class HeadShape(NamedTuple):
    """The attention heads of a model: W_Q and W_K are (d_head, d_model).

    Attributes:
        d_model: width of what queries and keys read: the residual stream, but for a few types.
        d_head: head dimension.
        n_heads: query heads of a layer.
        n_key_heads: key heads of a layer.
        n_layers: number of layers.
        source: what said so, in words.
    """

    d_model: int
    d_head: int
    n_heads: int
    n_key_heads: int
    n_layers: int
    source: str


def head_shape(model: str | Path, revision: str | None = None) -> HeadShape:
    """The shape of a model's heads. No weight is read, and no layout of the architecture is needed.

    Args:
        model: the folder of a checkpoint, of which only ``config.json`` is read; ``"demo"``, the bundled model; the
            name of a known model (``"gpt2-xl"``, ``"Llama-3.1-8B"``; upper and lower case are one) or its hub id, which
            are looked up without the network; or any other hub id, ``OWNER/NAME``, whose ``config.json`` alone is
            fetched. A folder comes before a model of the same name.
        revision: of a hub id; the configuration is then fetched, known or not.

    Raises:
        ParameterError: no folder and no known model has the name; the message lists those that come near.
        MissingFileError: the folder has no ``config.json``.
        CheckpointError: the configuration cannot be fetched, or does not give the sizes; its model type is not one
            whose sizes are known to be read rightly; or its queries and keys are no d_head × d_model matrices
            (multi-head latent attention).
    """
    if not isinstance(model, (str, Path)) or not str(model).strip():
        raise ParameterError("model", model, "the name of a known model, a folder, or a hub id OWNER/NAME")
    if model == "demo":
        return _from_folder(demo_checkpoint()[0], "demo")
    folder = existing_folder(model)
    if folder is not None:
        if revision is not None:
            raise ParameterError("revision", revision, "none for a folder: pass the folder of that revision")
        return _from_folder(folder, str(model))
    if isinstance(model, Path):
        raise MissingCheckpointFileError(model / "config.json")
    found = find_known(model)
    if found is not None and revision is None:
        return HeadShape(
            found.d_model, found.d_head, found.n_heads, found.n_key_heads, found.n_layers, f"{found.hub_id}, known"
        )
    name = hub_id(model)
    if "/" not in name or not HUB_ID.fullmatch(name):
        raise ParameterError(
            "model", model, f"a folder, a hub id OWNER/NAME, or a known model such as {names_near(model)}"
        )
    return _from_folder(fetch_config(name, revision), f"{name}, the hub's config.json")


def _from_folder(folder: Path, source: str) -> HeadShape:
    path = folder / "config.json"
    if not path.is_file():
        refuse_other_formats(folder)
    config = read_json_object(path)
    inner = config.get("text_config")
    if isinstance(inner, dict) and not any(key in config for key in _USUAL_KEYS.d_model):
        config = inner  # a model of text and images: the part that reads text
    return HeadShape(*_sizes(config, path), source)


def _sizes(config: Mapping[str, Any], path: Path) -> HeadSizes:
    latent = next((key for key in ("kv_lora_rank", "q_lora_rank") if config.get(key) is not None), None)
    if latent is not None:
        raise CheckpointError(
            path,
            f"multi-head latent attention ({latent}): a head's W_QK is a longer chain of matrices, "
            "whose law is rmtbase.laws.GaussianChain",
        )
    try:
        architecture = read_architecture(config, path)
        keys = LAYOUTS[architecture].config
    except UnknownArchitectureError:
        architecture, keys = str(config.get("model_type")), _USUAL_KEYS
    own = OWN_SIZES.get(architecture)
    if own is not None:
        return own(config, path)
    keys = replace(keys, d_head=_head_keys(config, architecture, path), d_mlp=(), d_mlp_over_d_model=None)
    for candidates in (keys.d_model, keys.n_heads):
        _require_one_value(config, candidates, path)
    found = read_dimensions(config, keys, path)
    if not keys.d_head:
        _require_ratio(config, found.d_head, architecture, path)
    n_key_heads = _key_heads(config, found.n_key_heads)
    return HeadSizes(found.d_model, found.d_head, found.n_heads, n_key_heads, found.n_layers)


def _head_keys(config: Mapping[str, Any], architecture: str, path: Path) -> tuple[str, ...]:
    """The key that holds the head size, where the type has one; none where it is d_model / n_heads."""
    reading = head_readings().get(architecture)
    if reading is None:
        raise CheckpointError(
            path,
            f"how a model of type {quoted(architecture)} gives the size of its heads is not known for certain; "
            "expected a type that was proved, or the shape itself: --d-model and --d-head",
        )
    key, _, otherwise = reading.partition(" or ")
    if reading == RATIO:
        return ()
    if not otherwise and config.get(key) is None:
        raise CheckpointError(path, f"no {key}, without which {architecture} has its own; expected a positive integer")
    return (key,)


def _require_one_value(config: Mapping[str, Any], candidates: tuple[str, ...], path: Path) -> None:
    said = [f"{key} = {quoted(config[key])}" for key in candidates if config.get(key) is not None]
    if len({text.partition(" = ")[2] for text in said}) > 1:
        raise CheckpointError(path, f"{', '.join(said)}: two names of one size; expected one value")


def _require_ratio(config: Mapping[str, Any], d_head: int, architecture: str, path: Path) -> None:
    said = config.get("head_dim")
    if said is not None and said != d_head:
        raise CheckpointError(
            path, f"head_dim = {quoted(said)}, where a {architecture} model has {RATIO} = {d_head}; expected no other"
        )


def _key_heads(config: Mapping[str, Any], said: int) -> int:
    """One where the configuration says so in the words of Falcon and GPT-BigCode."""
    return 1 if config.get("multi_query") is True and not config.get("new_decoder_architecture") else said
