"""The shape of a model's attention heads: from its name, or from its configuration alone."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from rmtbase.errors import CheckpointError, MissingFileError, ParameterError, UnknownArchitectureError
from rmtbase.models._checkpoint import read_json_object
from rmtbase.models._config import read_architecture, read_dimensions
from rmtbase.models._demo import demo_checkpoint
from rmtbase.models._hub import fetch_config
from rmtbase.models._known_models import KnownModel, known_models
from rmtbase.models._layouts import LAYOUTS, ConfigKeys
from rmtbase.models._open import HUB_ID, existing_folder

_USUAL_KEYS = ConfigKeys(
    n_layers=("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers"),
    n_heads=("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads", "encoder_attention_heads"),
    n_key_heads=("num_key_value_heads", "num_kv_heads", "n_head_kv"),
    d_model=("hidden_size", "n_embd", "d_model", "n_embed", "dim"),
    d_head=("head_dim", "d_kv"),
)
# What transformers' configuration classes take without the key is no d_model / n_heads.
_OWN_HEAD_SIZE = ("gemma", "t5gemma", "shieldgemma", "gpt_oss", "qwen3", "ernie4_5", "t5", "mt5", "umt5")
_NEAR = 6  # names that an error lists


class HeadShape(NamedTuple):
    """The attention heads of a model: W_Q and W_K are (d_head, d_model).

    Attributes:
        d_model: width of the residual stream.
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
        CheckpointError: the configuration cannot be fetched, or does not give the sizes; or its queries and keys are no
            d_head × d_model matrices (multi-head latent attention).
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
        raise MissingFileError(model / "config.json")
    found = _find(model)
    if found is not None and revision is None:
        return HeadShape(
            found.d_model, found.d_head, found.n_heads, found.n_key_heads, found.n_layers, f"{found.hub_id}, known"
        )
    name = model if found is None else found.hub_id
    if "/" not in name or not HUB_ID.fullmatch(name):
        raise ParameterError("model", model, f"a folder, a hub id OWNER/NAME, or a known model such as {_near(model)}")
    return _from_folder(fetch_config(name, revision), f"{name}, the hub's config.json")


def _find(name: str) -> KnownModel | None:
    """The known model of that name or hub id, with or without its owner."""
    asked = name.lower()
    for named in (
        lambda known: (known.name, known.hub_id.lower()),
        lambda known: (known.hub_id.lower().partition("/")[2],),
    ):
        for known in known_models():
            if asked in named(known):
                return known
    return None


def _near(name: str) -> str:
    names = [known.name for known in known_models()]
    asked = name.lower().rpartition("/")[2]
    begin_alike = [known for known in names if asked and known.startswith(asked)]
    near = get_close_matches(asked, names, n=_NEAR, cutoff=0.5)
    return ", ".join(list(dict.fromkeys((*near, *begin_alike)))[:_NEAR] or ["gpt2", "pythia-70m", "llama-3.1-8b"])


def _from_folder(folder: Path, source: str) -> HeadShape:
    path = folder / "config.json"
    config = read_json_object(path)
    inner = config.get("text_config")
    if isinstance(inner, dict) and not any(key in config for key in _USUAL_KEYS.d_model):
        config = inner  # a model of text and images: the part that reads text
    dimensions = read_dimensions(config, _keys(config, path), path)
    return HeadShape(
        dimensions.d_model, dimensions.d_head, dimensions.n_heads, _key_heads(config, dimensions.n_key_heads),
        dimensions.n_layers, source,
    )  # fmt: skip


def _keys(config: Mapping[str, Any], path: Path) -> ConfigKeys:
    """The keys of the architecture's layout, or the usual ones where it has none."""
    if config.get("kv_lora_rank") is not None:
        raise CheckpointError(
            path,
            "multi-head latent attention (kv_lora_rank): a head's W_QK is a longer chain of matrices, "
            "whose law is rmtbase.laws.GaussianChain",
        )
    architecture = str(config.get("model_type"))
    own = architecture.startswith(_OWN_HEAD_SIZE)
    if own and not any(config.get(key) is not None for key in _USUAL_KEYS.d_head):
        raise CheckpointError(path, f"no {' or '.join(_USUAL_KEYS.d_head)}, without which {architecture} has its own")
    try:
        return LAYOUTS[read_architecture(config, path)].config
    except UnknownArchitectureError:
        return _USUAL_KEYS


def _key_heads(config: Mapping[str, Any], said: int) -> int:
    """One where the configuration says so in the words of Falcon and GPT-BigCode."""
    return 1 if config.get("multi_query") is True and not config.get("new_decoder_architecture") else said
