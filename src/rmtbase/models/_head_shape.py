"""The shape of a model's attention heads: from its name, or from its configuration alone.

How a configuration says the size of a head is data in ``head_readings.csv``, one model type a line. A key may be there
and be ignored, or be absent and have a default that is not d_model / n_heads: nothing in the configuration itself
tells. So each line was proved against the queries and keys that the type's own class in ``transformers`` makes, from
its default configuration, from one with other sizes, from one without a head size, and from one with a head size where
it has none. A type without a line is not read.

Types whose queries do not read the residual stream, or whose heads are counted otherwise, have a function here.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from rmtbase.errors import CheckpointError, MissingCheckpointFileError, ParameterError, UnknownArchitectureError
from rmtbase.models._config import FAMILIES, ConfigKeys, read_dimensions
from rmtbase.models._files import read_json_object
from rmtbase.models._hub import HUB_ID, fetch_config, find_known, hub_id, names_near
from rmtbase.models._layout_table import entries, known_types, read_architecture
from rmtbase.models._open import demo_checkpoint, existing_folder, require_checkpoint_folder
from rmtbase.models._other_formats import refuse_other_formats
from rmtbase.models._sizes import Sizes
from rmtbase.shown import quoted

_USUAL_KEYS = ConfigKeys(
    n_layers=("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers"),
    n_heads=("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads", "encoder_attention_heads"),
    n_key_heads=("num_key_value_heads", "num_kv_heads", "n_head_kv"),
    d_model=("hidden_size", "n_embd", "d_model", "n_embed", "dim"),
)
_RATIO = "d_model / n_heads"
_STACKS = ("", "text", "decoder", "encoder", "vision", "audio")  # the first that there is
_FiveSizes = tuple[int, int, int, int, int]  # the first five of a head shape


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
        require_checkpoint_folder(folder, revision)
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
    _refuse_latent(config, path)
    architecture = config.get("model_type")
    if architecture in known_types() and architecture not in (*_head_readings(), *_OWN_SIZES):
        sizes, stack = _of_table(config, architecture, path)
        return HeadShape(*sizes, f"{source}: its {stack}" if stack else source)
    return HeadShape(*_sizes(config, path), source)


def _of_table(config: Mapping[str, Any], architecture: str, path: Path) -> tuple[_FiveSizes, str]:
    """What the table of architectures reads, and of which stack: of several, the one that writes text."""
    found = {entry.stack: entry for entry in entries(config, architecture, path)}
    stack = next((one for one in _STACKS if one in found), "")
    if stack not in found or "d_model" not in found[stack].sizes:
        raise CheckpointError(path, f"a {architecture} model, whose heads have no width in its configuration")
    sizes = Sizes(found[stack], path).sizes
    layers = found[stack].attending(sizes["n_layers"], path)
    return (sizes["d_model"], sizes["d_head"], sizes["n_heads"], sizes["n_key_heads"], len(layers)), stack


def _refuse_latent(config: Mapping[str, Any], path: Path) -> None:
    latent = next((key for key in ("kv_lora_rank", "q_lora_rank") if config.get(key) is not None), None)
    if latent is not None:
        raise CheckpointError(
            path,
            f"multi-head latent attention ({latent}): a head's W_QK is a longer chain of matrices, "
            "whose law is rmtbase.laws.GaussianChain",
        )


def _sizes(config: Mapping[str, Any], path: Path) -> _FiveSizes:
    try:
        architecture = read_architecture(config, path, {name: prefix for name, (prefix, _) in FAMILIES.items()})
        keys = FAMILIES[architecture][1]
    except UnknownArchitectureError:
        architecture, keys = str(config.get("model_type")), _USUAL_KEYS
    own = _OWN_SIZES.get(architecture)
    if own is not None:
        sizes = _Sizes(config, path)
        return *own(sizes), sizes.get("num_hidden_layers")
    keys = replace(keys, d_head=_head_keys(config, architecture, path))
    for candidates in (keys.d_model, keys.n_heads):
        _require_one_value(config, candidates, path)
    found = read_dimensions(config, keys, path)
    if not keys.d_head:
        _require_ratio(config, found.d_head, architecture, path)
    n_key_heads = _key_heads(config, found.n_key_heads)
    return found.d_model, found.d_head, found.n_heads, n_key_heads, found.n_layers


def _head_keys(config: Mapping[str, Any], architecture: str, path: Path) -> tuple[str, ...]:
    """The key that holds the head size, where the type has one; none where it is d_model / n_heads."""
    reading = _head_readings().get(architecture)
    if reading is None:
        raise CheckpointError(
            path,
            f"how a model of type {quoted(architecture)} gives the size of its heads is not known for certain; "
            "expected a type that was proved, or the shape itself: --d-model and --d-head",
        )
    key, _, otherwise = reading.partition(" or ")
    if reading == _RATIO:
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
            path, f"head_dim = {quoted(said)}, where a {architecture} model has {_RATIO} = {d_head}; expected no other"
        )


def _key_heads(config: Mapping[str, Any], said: int) -> int:
    """One where the configuration says so in the words of Falcon and GPT-BigCode."""
    return 1 if config.get("multi_query") is True and not config.get("new_decoder_architecture") else said


@cache
def _head_readings() -> Mapping[str, str]:
    """What gives the size of a head, by model type: a key, the ratio d_model / n_heads, or a key and else the ratio."""
    text = files("rmtbase.models").joinpath("head_readings.csv").read_text(encoding="utf-8")
    return MappingProxyType({line["model_type"]: line["d_head"] for line in csv.DictReader(text.splitlines())})


class _Sizes:
    """The positive integers of a configuration, those that are absent at the default of the type's class."""

    def __init__(self, config: Mapping[str, Any], path: Path) -> None:
        self._config, self._path = config, path

    def get(self, name: str, default: int | None = None) -> int:
        value = self._config.get(name)
        value = default if value is None else value
        if type(value) is not int or value < 1:
            raise CheckpointError(self._path, f"{name} = {quoted(value)}; expected a positive integer")
        return value

    def get_any(self, names: tuple[str, ...], default: int) -> int:
        """The value of whichever of two names of one size is there."""
        said = [self.get(name) for name in names if self._config.get(name) is not None]
        if len(set(said)) > 1:
            raise CheckpointError(self._path, f"{' and '.join(names)} = {said}: two names of one size; expected one")
        return said[0] if said else default

    def flag(self, name: str, default: bool) -> bool:
        value = self._config.get(name, default)
        if type(value) is not bool:
            raise CheckpointError(self._path, f"{name} = {quoted(value)}; expected true or false")
        return value

    def ratio(self, names: str, whole: int, parts: int) -> int:
        if whole % parts:
            raise CheckpointError(self._path, f"{names}: {whole} over {parts}; expected a whole number")
        return whole // parts


# Each gives (d_model, d_head, n_heads, n_key_heads).


def _mobilebert(sizes: _Sizes) -> tuple[int, int, int, int]:
    """Queries and keys read the bottleneck, not the residual stream."""
    bottleneck = sizes.flag("use_bottleneck", True)
    width = sizes.get("intra_bottleneck_size", 128) if bottleneck else sizes.get("hidden_size")
    heads = sizes.get("num_attention_heads")
    return width, sizes.ratio("intra_bottleneck_size / num_attention_heads", width, heads), heads, heads


def _zamba(sizes: _Sizes) -> tuple[int, int, int, int]:
    """Queries and keys read the residual stream and the embeddings side by side."""
    heads, twice = sizes.get("num_attention_heads"), 2 * sizes.get("hidden_size")
    width = sizes.get("attention_hidden_size", twice)
    d_head = sizes.get_any(("attention_head_dim", "head_dim"), twice // heads)
    return width, d_head, heads, sizes.get("num_key_value_heads", 16)


def _zamba2(sizes: _Sizes) -> tuple[int, int, int, int]:
    """As Zamba, but the head sizes that the configuration holds are computed anew."""
    heads, width = sizes.get("num_attention_heads"), 2 * sizes.get("hidden_size")
    return width, width // heads, heads, sizes.get("num_key_value_heads", heads)


def _jetmoe(sizes: _Sizes) -> tuple[int, int, int, int]:
    """Each of a token's experts has a query head for every key head."""
    key_heads = sizes.get("num_key_value_heads", 16)
    d_head = sizes.get_any(("kv_channels", "head_dim"), 128)
    return sizes.get("hidden_size"), d_head, key_heads * sizes.get("num_experts_per_tok", 2), key_heads


def _convbert(sizes: _Sizes) -> tuple[int, int, int, int]:
    """A share of the heads are convolutions."""
    width = sizes.get("hidden_size")
    heads = max(1, sizes.get("num_attention_heads") // sizes.get("head_ratio", 2))
    return width, sizes.ratio("hidden_size over the heads that attend", width, heads) // 2, heads, heads


_OWN_SIZES: Mapping[str, Callable[[_Sizes], tuple[int, int, int, int]]] = MappingProxyType(
    {"convbert": _convbert, "jetmoe": _jetmoe, "mobilebert": _mobilebert, "zamba": _zamba, "zamba2": _zamba2}
)
"""The types whose sizes are computed from their configuration in a way of their own."""
