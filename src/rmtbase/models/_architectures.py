"""The attention sites of a checkpoint, by the table of architectures: names and shapes alone, without torch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from rmtbase.errors import CheckpointError, MissingTensorError, ShapeError
from rmtbase.models._checkpoint import Checkpoint
from rmtbase.models._layout_table import MLP, Entry, Rows, entries, known_types
from rmtbase.models._sites import Expression, Inventory, Norm, Place, Product, Site, Stacked, Tensor, take_rows
from rmtbase.models._sizes import Sizes
from rmtbase.shown import quoted, shown

__all__ = ["find_inventory", "find_sites", "known_types"]

_SHOWN = 3  # names in a message
# What lies in an attention module and leaves queries and keys as they are: masks and rotary tables.
_BYSTANDERS = re.compile(r"bias|masked_bias|rotary_emb\..+")
_PARTS = {"q": "attention_query", "k": "attention_key", "v": "attention_value", "o": "attention_output"}


def find_sites(config: Mapping[str, Any], checkpoint: Checkpoint, path: Path) -> tuple[Site, ...]:
    """The attention sites of a checkpoint, by its configuration's ``model_type``: see :func:`find_inventory`."""
    return find_inventory(config, checkpoint, path, str(config.get("model_type"))).sites


def find_inventory(config: Mapping[str, Any], checkpoint: Checkpoint, path: Path, model_type: str) -> Inventory:
    """The attention sites of a checkpoint and its other matrices; only headers are looked at.

    Args:
        config: of the model.
        checkpoint: its tensors.
        path: what messages call the configuration.
        model_type: by which the table is read.

    Raises:
        UnknownArchitectureError: there is no entry for the type, or for that of a part.
        MissingTensorError, ShapeError: a tensor is not there, or has another shape than the configuration implies.
        CheckpointError: the configuration does not give a size, or is none that was proved; several stacks are there
            where one is expected, or layers beyond those of the configuration, or a tensor in an attention module that
            is none of its own.
    """
    found = list(entries(config, model_type, path))
    words = {word for _, word, _ in found}
    sites: list[Site] = []
    others: dict[Place, dict[str, Expression]] = {}
    for within, word, entry in found:
        stack = _Stack(checkpoint, model_type, entry, Sizes(within, entry, path), within, path)
        stack.find(word, words - {word})
        sites += stack.sites()
        for place, matrices in stack.others().items():
            others.setdefault(place, {}).update(matrices)
    return Inventory(sites=tuple(sites), others={place: held for place, held in others.items() if held})


@dataclass
class _Stack:
    """The layers of one stack, as a checkpoint names them."""

    checkpoint: Checkpoint
    architecture: str
    entry: Entry
    given: Sizes
    config: Mapping[str, Any]
    path: Path
    prefix: str = ""
    rows: Mapping[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.layout, self.rows = self.entry.layout, self.given.rows()

    def find(self, word: str, others: set[str]) -> None:
        """Find what stands in front of the layers' names, and check that each layer is there, and no other.

        Args:
            word: the part of the names that the stack is in; empty where it is the whole model.
            others: those of the other stacks.
        """
        query = self.layout.layer + str(self.layout.holding("q"))
        of_any = _any_layer(r"(?P<prefix>|.*\.)", query)
        matches = (of_any.fullmatch(name) for name in self.checkpoint.names)
        stacks = {match["prefix"]: match[0] for match in matches if match}
        if word:
            inside = {one for one in stacks if word in one.split(".")}
            stacks = {
                prefix: name
                for prefix, name in stacks.items()
                if prefix in inside or not (inside or others & set(prefix.split(".")))
            }
        if not stacks:
            raise MissingTensorError(self.checkpoint.path, query.format(0), self.architecture)
        if len(stacks) > 1:
            each = ", ".join(map(quoted, list(stacks.values())[:_SHOWN]))
            raise CheckpointError(
                self.checkpoint.path, f"tensors {each}; expected one stack of layers, not {len(stacks)}"
            )
        self.prefix = next(iter(stacks))
        self._require_layers()
        self._require_known_attention()

    def sites(self) -> list[Site]:
        """The attention of each layer that has one, its tensors' shapes checked."""
        sizes, layers = self.given.sizes, self._attending()
        present = [part for part in _PARTS if self._has(part, layers)]
        return [self._site(layer, present, sizes) for layer in layers]

    def others(self) -> dict[Place, dict[str, Expression]]:
        """The matrices of the MLP of each layer: each wholly, where not every layer may have experts in its place."""
        layers = range(self.given.sizes["n_layers"])
        present = [symbol for symbol in MLP if self._has(symbol, [] if self.entry.mixed else list(layers))]
        return {
            self._place(layer): {
                MLP[symbol]: self._expression(layer, symbol)
                for symbol in present
                if self._tensor(layer, symbol) in self.checkpoint
            }
            for layer in layers
        }

    def _site(self, layer: int, present: Sequence[str], sizes: Mapping[str, int]) -> Site:
        parts = {part: self._expression(layer, part) for part in present}
        query, key = (parts[part].shape(self.checkpoint.shape)[1] for part in "qk")
        norms = [name for name in self.layout.norms if self._name(layer, name) in self.checkpoint]
        for name in norms:
            size = self.layout.norms[name]
            if size:
                self._require_shape(self._name(layer, name), (self.rows[size],))
        return Site(
            place=self._place(layer),
            module=self._name(layer, self.layout.holding("q") or "").rsplit(".", 2)[0],
            n_heads=sizes["n_heads"],
            n_key_heads=sizes["n_key_heads"],
            d_head=sizes["d_head"],
            d_query=query,
            d_key=key,
            d_value=sizes["d_value"],
            d_output=parts["o"].shape(self.checkpoint.shape)[0] if "o" in parts else None,
            query=parts["q"],
            key=parts["k"],
            value=parts.get("v"),
            output=parts.get("o"),
            logit_scale=self.given.number(self.entry.scale),
            rotated=self.given.whole(self.entry.rotated),
            query_norm=self._norm(layer, "q", norms),
            key_norm=self._norm(layer, "k", norms),
        )

    def _norm(self, layer: int, side: str, names: Sequence[str]) -> Norm | None:
        named = [name for name in names if self.layout.norm_of(name) == side and name.endswith("weight")]
        return Norm(self._name(layer, named[0])) if named else None

    def _expression(self, layer: int, symbol: str) -> Expression:
        if symbol == "k" and self.layout.holding("k") is None:
            return self._latent_key(layer)
        name = self._tensor(layer, symbol)
        rows = self.layout.tensors[self.layout.holding(symbol) or ""]
        self.checkpoint.require_supported(name)
        self._require_height(name, rows)
        whole: Expression = Tensor(name, rows.transposed)
        if rows.blocks != (symbol,):
            whole = take_rows(whole, rows.indices(symbol, self.rows))
        return Product((whole, self._expression(layer, rows.reads))) if rows.reads else whole

    def _latent_key(self, layer: int) -> Expression:
        """[W_UK W_DKV; W_KR] of each head, the last rows shared by all."""
        upper, latent, rotary = (self._expression(layer, symbol) for symbol in ("n", "c", "r"))
        assert isinstance(upper, Product)
        heads, size = self.rows["n_heads"], self.rows["n"] // self.rows["n_heads"]
        above = upper.of[0]
        each = (take_rows(above, range(head * size, (head + 1) * size)) for head in range(heads))
        return Stacked(tuple(part for one in each for part in (Product((one, latent)), rotary)))

    def _has(self, symbol: str, layers: Sequence[int]) -> bool:
        """Whether the layers have it, all of them or none; queries and keys they must have."""
        needed = symbol in "qk"
        if symbol == "k" and self.layout.holding("k") is None:
            symbol = "n"
        if self.layout.holding(symbol) is None:
            return False
        missing = [name for name in (self._tensor(layer, symbol) for layer in layers) if name not in self.checkpoint]
        if missing and (needed or len(missing) < len(layers)):
            raise MissingTensorError(self.checkpoint.path, missing[0], self.architecture)
        return not missing

    def _attending(self) -> list[int]:
        """The layers that attend."""
        n_layers = self.given.sizes["n_layers"]
        for key, kinds in self.entry.attends.items():
            said = self.config.get(key)
            if not isinstance(said, Sequence) or len(said) != n_layers:
                raise CheckpointError(self.path, f"{key} = {quoted(said)}; expected a kind for each of {n_layers} layers")
            return [layer for layer in range(n_layers) if said[layer] in kinds]
        return list(range(n_layers))

    def _place(self, layer: int) -> Place:
        return Place(self.entry.stack, layer)

    def _name(self, layer: int, tensor: str) -> str:
        return f"{self.prefix}{self.layout.layer.format(layer)}{tensor}"

    def _tensor(self, layer: int, symbol: str) -> str:
        return self._name(layer, self.layout.holding(symbol) or "")

    def _require_layers(self) -> None:
        """Raise unless tensors of each layer of the configuration are there, and of no other.

        The layers are those of the names, so that a configuration of 10¹⁸ layers ends at the first that is missing.
        """
        n_layers = self.given.sizes["n_layers"]
        of_any = _any_layer(re.escape(self.prefix), self.layout.layer)
        found = ((of_any.match(name), name) for name in self.checkpoint.names)
        tensor_of = {match["layer"]: name for match, name in found if match}
        missing = next(layer for layer in count() if str(layer) not in tensor_of)
        if missing < n_layers:
            because = (
                f"{self.checkpoint.config_path.name}: {n_layers} layers, of which there are tensors of {len(tensor_of)}"
            )
            raise MissingTensorError(self.checkpoint.path, self._tensor(missing, "q"), self.architecture, because)
        beyond = sorted((len(layer), layer) for layer in tensor_of if not _is_layer(layer, n_layers))
        if beyond:
            query = self.prefix + self.layout.layer.format(beyond[0][1]) + str(self.layout.holding("q"))
            name = query if query in self.checkpoint else tensor_of[beyond[0][1]]
            listed = ", ".join(shown(layer) for _, layer in beyond[:_SHOWN]) + (", …" if len(beyond) > _SHOWN else "")
            raise CheckpointError(
                self.checkpoint.path,
                f"tensor {quoted(name)} is there; expected none beyond the {n_layers} layers of the configuration "
                f"(numbered besides: {listed}): if these are layers of the model, correct the configuration; "
                "if they are not (draft layers, say), take them out",
            )

    def _require_known_attention(self) -> None:
        """Raise unless every tensor in the attention modules is used, or known to leave queries and keys as they are."""
        module = self.layout.module
        if not module:
            return
        known = {*self.layout.norms, *self.layout.beside}
        for tensor in self.layout.tensors:
            known |= {tensor, tensor.removesuffix("weight") + "bias"}
        layer = re.escape(self.layout.layer).replace(re.escape("{}"), r"\d+")
        inside = re.compile(f"{re.escape(self.prefix)}{layer}({re.escape(module)}(.+))", re.DOTALL)
        for name in self.checkpoint.names:
            found = inside.fullmatch(name)
            if found and found[1] not in known and not _BYSTANDERS.fullmatch(found[2]):
                raise CheckpointError(
                    self.checkpoint.file(name),
                    f"tensor {quoted(name)} is none that the attention of a {self.architecture} model has, and may "
                    "change its queries and keys; expected a plain one, or pass the effective matrices to "
                    "rmtbase.score_heads",
                )

    def _require_height(self, name: str, rows: Rows) -> None:
        """Raise ShapeError unless the tensor, and its bias if any, has the shape that the configuration implies."""
        found = self.checkpoint.shape(name)
        outputs, inputs = self._linear_shape(rows, found)
        trailing = found[2:] if len(found) > 2 and all(size == 1 for size in found[2:]) else ()
        self._require_shape(name, ((inputs, outputs) if rows.transposed else (outputs, inputs)) + trailing)
        bias = name.removesuffix("weight") + "bias"
        if name.endswith("weight") and bias in self.checkpoint:
            self._require_shape(bias, (outputs,))

    def _linear_shape(self, rows: Rows, found: tuple[int, ...]) -> tuple[int, int]:
        """(outputs, inputs); what no size gives is as found."""
        stored = found[:2] if len(found) >= 2 else (0, 0)
        outputs, inputs = stored[::-1] if rows.transposed else stored
        d_model = self.rows.get("d_model", inputs)
        if rows.blocks == ("o",):
            return self.rows.get("d_model", outputs), self.rows["n_heads"] * self.rows["d_value"]
        if rows.blocks == ("down",):
            return self.rows.get("d_model", outputs), self.rows.get("down", inputs)
        if set(rows.blocks) & set(MLP) and "up" not in self.rows:
            raise CheckpointError(self.path, f"no {self.given.missing('d_mlp')}; expected a positive integer")
        return rows.height(self.rows), self.rows[rows.reads] if rows.reads else d_model

    def _require_shape(self, name: str, expected: tuple[int, ...]) -> None:
        if self.checkpoint.shape(name) != expected:
            because = f"{self.checkpoint.config_path.name}: {self.given.because}"
            raise ShapeError(self.checkpoint.file(name), name, self.checkpoint.shape(name), expected, because)


def _any_layer(prefix: str, name: str) -> re.Pattern[str]:
    """A pattern for the name, which has ``{}`` for the number of a layer."""
    return re.compile(prefix + re.escape(name).replace(re.escape("{}"), r"(?P<layer>\d+)"), re.DOTALL)


def _is_layer(text: str, n_layers: int) -> bool:
    return len(text) <= len(str(n_layers)) and str(int(text)) == text and int(text) < n_layers
