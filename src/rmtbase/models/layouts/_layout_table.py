"""Table of the tensors in which each architecture stores the matrices of its heads, made by probing ``transformers``.

``architectures.json`` describes layouts, stacks, types, norms and biases. A *layout* gives the rows of the tensors in
one layer:

    "q", "k", "v"      the queries, keys and values of all heads, head after head
    "q k v"            one after the other in one tensor
    "(q k v)"          for each key head: its queries, its key, its value
    "(q g)"            for each head: its query, and a gate that is left out
    "4(q v k)"         in four blocks
    "q < a", "a"       W_UQ, which acts on the output of W_DQ, the rows "a": a product
    "o", "up", "gate", "down"   the output of the attention, and the matrices of the MLP

A trailing ``T`` means that the tensor is stored as (inputs, outputs). A *stack* names the configuration's keys that
give the sizes of its layers. A *type* lists, by ``model_type``, the stacks that a model has ``when`` its configuration
has certain values. *Norms* name the norms before the inputs of queries and keys, and the norms of queries and keys
themselves, with ``{}`` for the number of the layer and ``{-1}`` for that of the layer before; the first layer may
differ from the others. A norm that is not listed is unknown. *Biases* state for the maps of each stack whether every
model of the type has a bias, or which key of the configuration says so. Each entry was proved against the queries and
keys that the type's own module computes, under several configurations whose sizes differ pairwise. Where no entry
fits, nothing is read.

``head_sizes.json`` has further sizes in the same notation. For types whose tensors have no layout it gives only the
sizes (``alone``): the ``usual`` ones with exceptions. Layers that share weights (``shared``) are counted once in the
table and individually here. All this was proved against the shapes of the queries and keys that the type's class makes.
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
from rmtbase.models.layouts._declared_biases import Declared, declared
from rmtbase.shown import quoted

_ANY = "any"  # in ``when``: any value except None
_CLASS_ENDING = r"(Model|PreTrainedModel|LMHeadModel|DoubleHeadsModel|For[A-Z][A-Za-z]*)"
MLP = {"up": "mlp_in", "gate": "mlp_gate", "down": "mlp_out"}
"""Matrices of the MLP: the table's symbol -> the component."""


@dataclass(frozen=True)
class Rows:
    """Content of the rows of one stored tensor, according to the table."""

    blocks: tuple[str, ...]  # the symbols of one block, in order
    repeated: int | str  # how often the block is repeated: a number, ``n_heads`` or ``n_key_heads``
    reads: str | None  # the symbol whose rows are its input, where that is not the input of the layer
    transposed: bool  # whether it is stored as (inputs, outputs)

    @classmethod
    def parse(cls, text: str) -> Rows:
        """Parse the table's notation."""
        found = re.fullmatch(r"(?P<n>\d+)?(?P<open>\(?)(?P<blocks>[a-z ]+?)\)?(?: < (?P<reads>\w+))?(?P<t> T)?", text)
        assert found is not None, text
        blocks = tuple(found["blocks"].split())
        grouped = "n_key_heads" if {"k", "v"} & set(blocks) else "n_heads"
        repeated = int(found["n"]) if found["n"] else grouped if found["open"] else 1
        return cls(blocks, repeated, found["reads"], bool(found["t"]))

    def indices(self, symbol: str, sizes: Mapping[str, int]) -> list[int]:
        """Return the indices of the symbol's rows, in the order of heads."""
        times = sizes[self.repeated] if isinstance(self.repeated, str) else self.repeated
        width = {one: sizes[one] // times for one in self.blocks}
        first = sum(width[one] for one in self.blocks[: self.blocks.index(symbol)])
        whole = sum(width.values())
        return [block * whole + first + row for block in range(times) for row in range(width[symbol])]

    def height(self, sizes: Mapping[str, int]) -> int:
        """Return the number of rows."""
        return sum(sizes[one] for one in self.blocks)


@dataclass(frozen=True)
class Layout:
    """Tensors of one layer."""

    layer: str  # the layer's name, with a placeholder for its index
    tensors: Mapping[str, Rows]  # name within the layer -> its rows
    # gains of norms of queries and keys within the layer -> the name of the size that is their number, or None
    norms: Mapping[str, str | None]
    beside: tuple[str, ...]  # other tensors in the attention module: biases of scores, relative positions, sinks

    def holding(self, symbol: str) -> tuple[str, ...]:
        """Return the tensors that may have these rows: only one, except for an MLP with or without a gate."""
        return tuple(name for name, rows in self.tensors.items() if symbol in rows.blocks)

    def norm_of(self, side: str) -> tuple[str, ...]:
        """Return the gains of the norms of queries, ``"q"``, or of keys, ``"k"``."""
        return tuple(name for name in self.norms if name.endswith("weight") and name.split(".")[-2].startswith(side))

    @property
    def norms_of_heads(self) -> tuple[str, ...]:
        """The gains of numbered norms, one for each head of queries or keys."""
        return tuple(name for name in self.beside if re.search(r"(^|\.)[qk]_?(layer)?norm\.norms\.\d+\.weight$", name))

    @property
    def module(self) -> str:
        """The common beginning of the names of attention tensors, up to a dot; empty where it is the layer."""
        names = [name.split(".")[:-1] for name, rows in self.tensors.items() if not set(MLP) & set(rows.blocks)]
        shared = []
        for parts in zip(*names, strict=False):
            if len(set(parts)) > 1:
                break
            shared.append(parts[0])
        return "".join(f"{part}." for part in shared)


_NO_LAYOUT = Layout("", {}, {}, ())


@dataclass(frozen=True)
class Entry:
    """Stack of layers in a model type.

    Attributes:
        stack: its name, one of :data:`rmtbase.models.layouts._sites.STACKS`.
        layout: layout of its layers; empty where only the sizes are known.
        sizes: size -> keys of the configuration that give it, in order, then after ``else`` its value where there is no
            such key.
        config: the configuration of this stack.
        inside: the parts of tensors' names that identify it; empty where it is the whole model.
        attends: key for the kinds of layers -> the kinds with attention; empty where every layer has attention.
        mixed: whether some layers have something other than an MLP in its place, such as experts.
        rotated: expression for the number of rotated dimensions, or None where none are rotated.
        unrotated: key for the kinds of layers -> the kinds that are not rotated; empty where all are rotated.
        scale: expression for the logit scale, or None where it is unknown.
        norms: norms of the first layer and of the others, or of all layers, by the field of a site; empty where they
            are not known for this configuration.
        biases: whether the maps of each symbol have a bias, where that is known.
    """

    stack: str
    layout: Layout
    sizes: Mapping[str, str]
    config: Mapping[str, Any]
    inside: tuple[str, ...]
    attends: Mapping[str, Sequence[str]]
    mixed: bool
    rotated: str | None
    unrotated: Mapping[str, Sequence]
    scale: str | None
    norms: Mapping[str, Sequence[Mapping[str, Any]]]
    biases: Mapping[str, Declared]

    def attending(self, n_layers: int, path: Path) -> list[int]:
        """Return the layers with attention. Raises if their kinds are not given, or there are more than 100 000."""
        if n_layers > 100_000:  # a list of a billion takes the memory of the machine
            raise CheckpointError(path, f"{n_layers:,} layers; expected at most 100,000")
        for key, kinds in self.attends.items():
            said = kinds_of_layers(self.config, key, n_layers)
            if not _is_of_each(said, n_layers):
                raise CheckpointError(path, f"{key} = {quoted(said)}; expected a kind for each of {n_layers} layers")
            return [layer for layer, kind in enumerate(said) if {kind, _OLDER_KINDS.get(kind, kind)} & set(kinds)]
        return list(range(n_layers))

    def turns(self, layer: int, n_layers: int) -> bool | None:
        """Return whether a rotating stack rotates queries and keys in a layer; None if the configuration is silent."""
        for key, kinds in self.unrotated.items():
            said = kinds_of_layers(self.config, key, n_layers)
            return said[layer] not in kinds if _is_of_each(said, n_layers) else None
        return True


def _is_of_each(said: Any, n_layers: int) -> bool:
    return isinstance(said, Sequence) and len(said) == n_layers


_FULL, _OTHER = "full_attention", "other"
_OLDER_KINDS = {"attention": _FULL, "mamba": "linear_attention"}
_LETTERS = {"M": "linear_attention", "E": "moe", "*": _FULL, "-": "mlp"}  # letters of hybrid_override_pattern


def kinds_of_layers(config: Mapping[str, Any], key: str, n_layers: int) -> Any:
    """Expand what a configuration says under a key to the kind of each layer.

    Most keys hold a list of kinds. ``attn_layer_indices`` lists the layers with attention. With ``attn_layer_period``,
    one layer in each period has attention, the first at ``attn_layer_offset``. A list of ``block_types`` is repeated.
    Where the key is absent, older keys are used: ``full_attention_interval`` or ``layer_group_size``, a period whose
    last layer has attention; ``full_attn_idxs``, the layers with attention; ``full_attn_layers``, the same counted from
    1; ``hybrid_override_pattern``, a letter for each layer; ``sliding_window_pattern``, a period whose last layer
    attends to all tokens.
    """
    said, pattern = config.get(key), config.get("hybrid_override_pattern")
    interval = config.get("full_attention_interval", config.get("layer_group_size"))
    offset, linear = config.get("attn_layer_offset"), config.get("linear_attn_config")
    indices = said or [] if key == "attn_layer_indices" else config.get("full_attn_idxs") if said is None else None
    layers = range(n_layers)
    if said is None and isinstance(linear, Mapping) and isinstance(linear.get("full_attn_layers"), list):
        indices = [layer for layer in layers if layer + 1 in linear["full_attn_layers"]]
    if isinstance(indices, list):
        return [_FULL if layer in indices else _OTHER for layer in layers]
    if key == "attn_layer_period" and type(said) is int and said > 0 and type(offset) is int:
        return [_FULL if layer % said == offset else _OTHER for layer in layers]
    if said is None and type(interval) is int and interval > 0:
        return [_FULL if (layer + 1) % interval == 0 else _OTHER for layer in layers]
    if said is None and isinstance(pattern, str) and set(pattern) <= set(_LETTERS):
        return [_LETTERS[letter] for letter in pattern]
    every = config.get("sliding_window_pattern")
    if said is None and type(every) is int and every > 0:
        return [_FULL if (layer + 1) % every == 0 else "sliding_attention" for layer in layers]
    if key == "block_types" and isinstance(said, list) and said:
        return (said * -(-n_layers // len(said)))[:n_layers]
    return said


@cache
def _table() -> Mapping[str, Any]:
    return _read("architectures.json")


@cache
def _with_sizes_alone() -> Mapping[str, Any]:
    """Return the table with the sizes of types that it lacks."""
    said, of_table = _read("head_sizes.json"), _table()
    stacks, types = dict(of_table["stacks"]), dict(of_table["types"])
    table = {"stacks": stacks, "types": types}
    for number, one in enumerate(said["alone"]):
        sizes = {name: text for name, text in {**said["usual"], **one["sizes"]}.items() if text is not None}
        stacks[f"alone {number}"] = {"stack": "", "sizes": sizes}
        for name in set(one["types"]) - set(of_table["types"]):
            own = types.setdefault(name, {"variants": [], "defaults": {}})
            own["variants"].append({"when": one.get("when", {}), "stacks": [f"alone {number}"]})
            own["defaults"].update(one.get("defaults", {}))
    for name, n_layers in said["shared"].items():
        variants = []
        for one in types[name]["variants"]:
            names = [f"{stack}, shared" for stack in one["stacks"]]
            for stack in one["stacks"]:
                whole = stacks[stack]
                stacks[f"{stack}, shared"] = {**whole, "sizes": {**whole["sizes"], "n_layers": n_layers}}
            variants.append({**one, "stacks": names})
        types[name] = {**types[name], "variants": variants}
    return table


def _read(name: str) -> dict[str, Any]:
    return json.loads(files("rmtbase.models").joinpath(name).read_text(encoding="utf-8"))


@cache
def _layout(name: str) -> Layout:
    held = _table()["layouts"][name]
    tensors = {tensor: Rows.parse(text) for tensor, text in held["tensors"].items()}
    return Layout(held["layer"], tensors, held.get("norms", {}), tuple(held.get("beside", ())))


def known_types() -> tuple[str, ...]:
    """List the model types in the table."""
    return tuple(sorted(_table()["types"]))


def read_architecture(config: Mapping[str, Any], path: Path, *, sizes_alone: bool = False) -> str:
    """Return the model type: ``model_type`` or, where that is absent, the type of the class in ``architectures``."""
    types = (_with_sizes_alone() if sizes_alone else _table())["types"]
    named = config.get("model_type")
    if named is None:
        classes = config.get("architectures")
        named = ", ".join(map(str, classes)) if isinstance(classes, list) and classes else "(none named)"
        for architecture, held in types.items():
            if "class" in held and re.fullmatch(held["class"] + _CLASS_ENDING, named):
                return architecture
    if not isinstance(named, str) or named not in types:
        raise UnknownArchitectureError(path, str(named), known_types())
    return named


def unread(config: Mapping[str, Any], model_type: str, path: Path, *, sizes_alone: bool = False) -> tuple[str, ...]:
    """Return the parts of a model that are not read, by the keys of their configurations."""
    table = _with_sizes_alone() if sizes_alone else _table()
    return tuple(_variant(config, model_type, path, table).get("unread", ()))


def entries(
    config: Mapping[str, Any], model_type: str, path: Path, inside: tuple[str, ...] = (), *, sizes_alone: bool = False
) -> Iterator[Entry]:
    """Yield the stacks of a model, including those of its parts."""
    table = _with_sizes_alone() if sizes_alone else _table()
    variant = _variant(config, model_type, path, table)
    of_class = table["types"][model_type].get("defaults", {})
    defaults = of_class if inside or model_type not in _table()["types"] else {}
    said = {**of_class, **config}
    held = variant.get("norms", {})
    known = all(_meets(config.get(key, value), value) for key, value in held.get("when", {}).items())
    for number, one in enumerate(table["stacks"][name] for name in variant.get("stacks", ())):
        yield Entry(
            one["stack"],
            _layout(one["layout"]) if "layout" in one else _NO_LAYOUT,
            _certain(one["sizes"], config, of_class),
            _completed(config, one["sizes"], defaults),
            inside,
            one.get("attends", {}),
            one.get("mixed", False),
            one.get("rotated") if all(said.get(key) in each for key, each in one.get("rotates", {}).items()) else None,
            variant.get("unrotated", {}).get(one["stack"], {}),
            one.get("scale") if all(said.get(key) == value for key, value in one.get("scale_if", {}).items()) else None,
            _table()["norms"][held["of"][number]] if held and known else {},
            declared(variant.get("biases", {}).get(one["stack"], {}), config, of_class),
        )
    for one in variant.get("parts", ()):
        part = config.get(one["config"])
        if part is None and one["stack"] == "text":  # older files have its sizes at the top level
            part = {key: value for key, value in config.items() if key not in ("model_type", "vision_config")}
        if not isinstance(part, Mapping):
            raise CheckpointError(path, f"no {one['config']}; expected the configuration of the {one['stack']} part")
        own = part.get("model_type", one["type"])
        if own not in one["types"]:
            raise UnprovedConfigurationError(
                path, f"{one['config']} of type {quoted(own)}; expected one that was proved: {', '.join(one['types'])}"
            )
        for entry in entries(part, own, path, (*inside, one["in"]), sizes_alone=sizes_alone):
            yield replace(entry, stack=entry.stack or one["stack"])


def _variant(config: Mapping[str, Any], model_type: str, path: Path, table: Mapping[str, Any]) -> Mapping[str, Any]:
    """Find the variant of the type whose ``when`` the configuration fulfils, with the defaults of its class."""
    held = table["types"].get(model_type)
    if held is None:
        raise UnknownArchitectureError(path, model_type, known_types())
    said = {**held.get("defaults", {}), **config}
    for one in held["variants"]:
        if all(_meets(said.get(key), value) for key, value in one.get("when", {}).items()):
            return one
    keys = sorted({key for one in held["variants"] for key in one["when"]})
    found = ", ".join(f"{key} = {quoted(said.get(key))}" for key in keys)
    known = " or ".join(
        ", ".join(f"{key} = {quoted(value)}" for key, value in one["when"].items()) for one in held["variants"]
    )
    raise UnprovedConfigurationError(path, f"a {model_type} model with {found}; expected one that was proved: {known}")


def _meets(said: Any, expected: Any) -> bool:
    """Return True if it equals the expected value, or is not None where any value is accepted."""
    return said is not None if expected == _ANY else type(said) is type(expected) and said == expected


def _certain(sizes: Mapping[str, str], config: Mapping[str, Any], defaults: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the sizes without a computed head size if the class has a default that the configuration leaves out."""
    key, _, otherwise = sizes["d_head"].partition(" else ")
    return {**sizes, "d_head": key} if otherwise and key not in config and defaults.get(key) else sizes


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
