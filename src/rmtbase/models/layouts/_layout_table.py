"""Table of the tensors in which each architecture stores the matrices of its heads, made by probing ``transformers``.

In ``architectures.json`` a *layout* gives the rows of the tensors in one layer:

    "q", "k", "v"      the queries, keys and values of all heads, head after head
    "q k v"            one after the other in one tensor
    "(q k v)"          for each key head: its queries, its key, its value
    "(q g)"            for each head: its query, and a gate that is left out
    "4(q v k)"         in four blocks
    "q < a", "a"       W_UQ, which acts on the output of W_DQ, the rows "a": a product
    "o", "up", "gate", "down"   the output of the attention, and the matrices of the MLP

A trailing ``T`` means that the tensor is stored as (inputs, outputs). A *stack* names the configuration's keys that
give the sizes of its layers; a *type* lists, by ``model_type``, the stacks that a model has ``when`` its configuration
has certain values. *Norms* are named with ``{}`` for the number of the layer and ``{-1}`` for that of the layer before;
one that is not listed is unknown. *Biases* state whether every model of the type has them, or which key says so. Where
no entry fits, nothing is read. ``head_sizes.json`` has the sizes of types without a layout (``alone``: the ``usual``
ones with exceptions), and numbers of layers that share weights (``shared``), counted once in the table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from rmtbase.errors import CheckpointError, UnknownArchitectureError, UnprovedConfigurationError
from rmtbase.models.layouts._sites import Declared, common_module, declared
from rmtbase.shown import quoted

_ANY = "any"  # in ``when``: any value except None
_CLASS_ENDING = r"(Model|PreTrainedModel|LMHeadModel|DoubleHeadsModel|For[A-Z][A-Za-z]*)"
MLP = {"up": "mlp_in", "gate": "mlp_gate", "down": "mlp_out"}
"""Matrices of the MLP: the table's symbol -> the component."""


@dataclass(frozen=True)
class Rows:
    blocks: tuple[str, ...]  # the symbols of one block, in order
    repeated: int | str  # how often the block is repeated: a number, ``n_heads`` or ``n_key_heads``
    reads: str | None  # the symbol whose rows are its input, where that is not the input of the layer
    transposed: bool  # whether it is stored as (inputs, outputs)

    @classmethod
    def parse(cls, text: str) -> Rows:
        match = re.fullmatch(r"(?P<n>\d+)?(?P<open>\(?)(?P<blocks>[a-z ]+?)\)?(?: < (?P<reads>\w+))?(?P<t> T)?", text)
        assert match is not None, text
        blocks = tuple(match["blocks"].split())
        grouped = "n_key_heads" if {"k", "v"} & set(blocks) else "n_heads"
        repeated = int(match["n"]) if match["n"] else grouped if match["open"] else 1
        return cls(blocks, repeated, match["reads"], bool(match["t"]))

    def indices(self, symbol: str, sizes: Mapping[str, int]) -> list[int]:
        times = sizes[self.repeated] if isinstance(self.repeated, str) else self.repeated
        width = {symbol_of_block: sizes[symbol_of_block] // times for symbol_of_block in self.blocks}
        first = sum(width[symbol_before] for symbol_before in self.blocks[: self.blocks.index(symbol)])
        height = sum(width.values())
        return [block * height + first + row for block in range(times) for row in range(width[symbol])]

    def height(self, sizes: Mapping[str, int]) -> int:
        return sum(sizes[symbol] for symbol in self.blocks)


@dataclass(frozen=True)
class Layout:
    layer: str  # the layer's name, with a placeholder for its index
    tensors: Mapping[str, Rows]  # name within the layer -> its rows
    # gains of norms of queries and keys within the layer -> the name of the size that is their number, or None
    norms: Mapping[str, str | None]
    beside: tuple[str, ...]  # other tensors in the attention module: biases of scores, relative positions, sinks

    def holding(self, symbol: str) -> tuple[str, ...]:
        """Return the tensors that may have these rows: only one, except for an MLP with or without a gate."""
        return tuple(name for name, rows in self.tensors.items() if symbol in rows.blocks)

    @property
    def norms_of_heads(self) -> tuple[str, ...]:
        """The gains of numbered norms, one for each head of queries or keys."""
        return tuple(name for name in self.beside if re.search(r"(^|\.)[qk]_?(layer)?norm\.norms\.\d+\.weight$", name))

    @property
    def module(self) -> str:
        """The common beginning of the names of attention tensors, up to a dot; empty where it is the layer."""
        names = [name for name, rows in self.tensors.items() if not set(MLP) & set(rows.blocks)]
        return f"{common}." if (common := common_module(names)) else ""


_NO_LAYOUT = Layout("", {}, {}, ())


@dataclass(frozen=True)
class Entry:
    stack: str  # its name, one of :data:`rmtbase.models.layouts._sites.STACKS`
    layout: Layout  # layout of its layers; empty where only the sizes are known
    # size -> keys of the configuration that give it, in order, then after ``else`` its value where there is no such key
    sizes: Mapping[str, str]
    config: Mapping[str, Any]  # the configuration of this stack
    inside: tuple[str, ...]  # the parts of tensors' names that identify it; empty where it is the whole model
    # key for the kinds of layers -> the kinds with attention; empty where every layer has attention
    attends: Mapping[str, Sequence[str]]
    mixed: bool  # whether some layers have something other than an MLP in its place, such as experts
    rotated: str | None  # expression for the number of rotated dimensions, or None where none are rotated
    # key for the kinds of layers -> the kinds that are not rotated; empty where all are rotated
    unrotated: Mapping[str, Sequence]
    scale: str | None  # expression for the logit scale, or None where it is unknown
    # norms of the first layer and of the others, or of all, by the field of a site; empty where they are not known
    norms: Mapping[str, Sequence[Mapping[str, Any]]]
    biases: Mapping[str, Declared]  # whether the maps of each symbol have a bias, where that is known

    def attending(self, n_layers: int, path: Path) -> list[int]:
        if n_layers > 100_000:  # a list of a billion takes the memory of the machine
            raise CheckpointError(path, f"{n_layers:,} layers; expected at most 100,000")
        for key, kinds in self.attends.items():
            kinds_found = kinds_of_layers(self.config, key, n_layers)
            if not isinstance(kinds_found, Sequence) or len(kinds_found) != n_layers:
                problem = f"{key} = {quoted(kinds_found)}"
                raise CheckpointError(path, f"{problem}; expected a kind for each of {n_layers} layers")
            names = [{kind, _OLDER_KINDS.get(kind, kind)} for kind in kinds_found]
            return [layer for layer in range(n_layers) if names[layer] & set(kinds)]
        return list(range(n_layers))

    def turns(self, layer: int, n_layers: int) -> bool | None:
        """Return whether a rotating stack rotates queries and keys in a layer; None if the configuration is silent."""
        for key, kinds in self.unrotated.items():
            kinds_found = kinds_of_layers(self.config, key, n_layers)
            is_of_each = isinstance(kinds_found, Sequence) and len(kinds_found) == n_layers
            return kinds_found[layer] not in kinds if is_of_each else None
        return True


_FULL, _OTHER = "full_attention", "other"
_OLDER_KINDS = {"attention": _FULL, "mamba": "linear_attention"}
_LETTERS = {"M": "linear_attention", "E": "moe", "*": _FULL, "-": "mlp"}  # letters of hybrid_override_pattern


def kinds_of_layers(config: Mapping[str, Any], key: str, n_layers: int) -> Any:
    """Expand a list of kinds, of attending layers, a period and phase, or letters to the kind of each layer."""
    value, pattern = config.get(key), config.get("hybrid_override_pattern")
    interval = config.get("full_attention_interval", config.get("layer_group_size"))
    offset, linear = config.get("attn_layer_offset"), config.get("linear_attn_config")
    indices = value or [] if key == "attn_layer_indices" else config.get("full_attn_idxs") if value is None else None
    layers = range(n_layers)
    if value is None and isinstance(linear, Mapping) and isinstance(linear.get("full_attn_layers"), list):
        indices = [layer for layer in layers if layer + 1 in linear["full_attn_layers"]]
    if isinstance(indices, list):
        return [_FULL if layer in indices else _OTHER for layer in layers]
    if key == "attn_layer_period" and type(value) is int and value > 0 and type(offset) is int:
        return [_FULL if layer % value == offset else _OTHER for layer in layers]
    if value is None and type(interval) is int and interval > 0:
        return [_FULL if (layer + 1) % interval == 0 else _OTHER for layer in layers]
    if value is None and isinstance(pattern, str) and set(pattern) <= set(_LETTERS):
        return [_LETTERS[letter] for letter in pattern]
    every = config.get("sliding_window_pattern")
    if value is None and type(every) is int and every > 0:
        return [_FULL if (layer + 1) % every == 0 else "sliding_attention" for layer in layers]
    if key == "block_types" and isinstance(value, list) and value:
        return (value * -(-n_layers // len(value)))[:n_layers]
    return value


@cache
def _table() -> Mapping[str, Any]:
    return _read("architectures.json")


@cache
def _with_sizes_alone() -> Mapping[str, Any]:
    """Return the table with the sizes of types that it lacks."""
    sizes_file, of_table = _read("head_sizes.json"), _table()
    stacks, types = dict(of_table["stacks"]), dict(of_table["types"])
    table = {"stacks": stacks, "types": types}
    for number, entry in enumerate(sizes_file["alone"]):
        sizes = {name: text for name, text in {**sizes_file["usual"], **entry["sizes"]}.items() if text is not None}
        stacks[f"alone {number}"] = {"stack": "", "sizes": sizes}
        for name in set(entry["types"]) - set(of_table["types"]):
            type_entry = types.setdefault(name, {"variants": [], "defaults": {}})
            type_entry["variants"].append({"when": entry.get("when", {}), "stacks": [f"alone {number}"]})
            type_entry["defaults"].update(entry.get("defaults", {}))
    for name, n_layers in sizes_file["shared"].items():
        variants = []
        for entry in types[name]["variants"]:
            names = [f"{stack}, shared" for stack in entry["stacks"]]
            for stack in entry["stacks"]:
                stack_entry = stacks[stack]
                stacks[f"{stack}, shared"] = {**stack_entry, "sizes": {**stack_entry["sizes"], "n_layers": n_layers}}
            variants.append({**entry, "stacks": names})
        types[name] = {**types[name], "variants": variants}
    return table


def _read(name: str) -> dict[str, Any]:
    return json.loads(files("rmtbase.models").joinpath(name).read_text(encoding="utf-8"))


@cache
def _layout(name: str) -> Layout:
    entry = _table()["layouts"][name]
    tensors = {tensor: Rows.parse(text) for tensor, text in entry["tensors"].items()}
    return Layout(entry["layer"], tensors, entry.get("norms", {}), tuple(entry.get("beside", ())))


def known_types() -> tuple[str, ...]:
    return tuple(sorted(_table()["types"]))


def read_architecture(config: Mapping[str, Any], path: Path, *, sizes_alone: bool = False) -> str:
    types = (_with_sizes_alone() if sizes_alone else _table())["types"]
    named = config.get("model_type")
    if named is None:
        classes = config.get("architectures")
        named = ", ".join(map(str, classes)) if isinstance(classes, list) and classes else "(none named)"
        for architecture, entry in types.items():
            if "class" in entry and re.fullmatch(entry["class"] + _CLASS_ENDING, named):
                return architecture
    if not isinstance(named, str) or named not in types:
        raise UnknownArchitectureError(path, str(named), known_types())
    return named


def unread(config: Mapping[str, Any], model_type: str, path: Path, *, sizes_alone: bool = False) -> tuple[str, ...]:
    table = _with_sizes_alone() if sizes_alone else _table()
    return tuple(_variant(config, model_type, path, table).get("unread", ()))


def entries(
    config: Mapping[str, Any], model_type: str, path: Path, inside: tuple[str, ...] = (), *, sizes_alone: bool = False
) -> Iterator[Entry]:
    table = _with_sizes_alone() if sizes_alone else _table()
    variant = _variant(config, model_type, path, table)
    of_class = table["types"][model_type].get("defaults", {})
    defaults = of_class if inside or model_type not in _table()["types"] else {}
    settings = {**of_class, **config}
    norms = variant.get("norms", {})
    norms_hold = all(_meets(config.get(key, value), value) for key, value in norms.get("when", {}).items())
    for number, spec in enumerate(table["stacks"][name] for name in variant.get("stacks", ())):
        rotates = all(settings.get(key) in allowed for key, allowed in spec.get("rotates", {}).items())
        scales = all(settings.get(key) == value for key, value in spec.get("scale_if", {}).items())
        sizes: Mapping[str, str] = spec["sizes"]
        key, _, otherwise = sizes["d_head"].partition(" else ")
        if otherwise and key not in config and of_class.get(key):  # the head size is not computed
            sizes = {**sizes, "d_head": key}
        yield Entry(
            spec["stack"],
            _layout(spec["layout"]) if "layout" in spec else _NO_LAYOUT,
            sizes,
            _completed(config, spec["sizes"], defaults),
            inside,
            spec.get("attends", {}),
            spec.get("mixed", False),
            spec.get("rotated") if rotates else None,
            variant.get("unrotated", {}).get(spec["stack"], {}),
            spec.get("scale") if scales else None,
            _table()["norms"][norms["of"][number]] if norms and norms_hold else {},
            declared(variant.get("biases", {}).get(spec["stack"], {}), config, of_class),
        )
    for spec in variant.get("parts", ()):
        part = config.get(spec["config"])
        if part is None and spec["stack"] == "text":  # older files have its sizes at the top level
            part = {key: value for key, value in config.items() if key not in ("model_type", "vision_config")}
        if not isinstance(part, Mapping):
            raise CheckpointError(path, f"no {spec['config']}; expected the configuration of the {spec['stack']} part")
        part_type = part.get("model_type", spec["type"])
        if part_type not in spec["types"]:
            expected = f"expected one that was proved: {', '.join(spec['types'])}"
            raise UnprovedConfigurationError(path, f"{spec['config']} of type {quoted(part_type)}; {expected}")
        for entry in entries(part, part_type, path, (*inside, spec["in"]), sizes_alone=sizes_alone):
            yield replace(entry, stack=entry.stack or spec["stack"])


def _variant(config: Mapping[str, Any], model_type: str, path: Path, table: Mapping[str, Any]) -> Mapping[str, Any]:
    entry = table["types"].get(model_type)
    if entry is None:
        raise UnknownArchitectureError(path, model_type, known_types())
    settings = {**entry.get("defaults", {}), **config}
    for variant in entry["variants"]:
        if all(_meets(settings.get(key), value) for key, value in variant.get("when", {}).items()):
            return variant
    keys = sorted({key for variant in entry["variants"] for key in variant["when"]})
    described = ", ".join(f"{key} = {quoted(settings.get(key))}" for key in keys)
    conditions = (variant["when"].items() for variant in entry["variants"])
    proved = " or ".join(", ".join(f"{key} = {quoted(value)}" for key, value in items) for items in conditions)
    problem = f"a {model_type} model with {described}"
    raise UnprovedConfigurationError(path, f"{problem}; expected one that was proved: {proved}")


def _meets(value: Any, expected: Any) -> bool:
    return value is not None if expected == _ANY else type(value) is type(expected) and value == expected


def _completed(config: Mapping[str, Any], sizes: Mapping[str, str], defaults: Mapping[str, Any]) -> Mapping[str, Any]:
    """Fill the configuration of a part, which may hold only what differs, with the defaults of its class."""
    completed = {**defaults, **config}
    for text in sizes.values():
        keys = text.partition(" else ")[0].split(" or ")
        if any(config.get(key) is not None for key in keys):
            for key in keys:
                if key not in config:
                    completed.pop(key, None)
    return completed
