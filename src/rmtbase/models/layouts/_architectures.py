"""Attention sites of a checkpoint by the table of architectures, from only names and shapes, without torch."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import prod
from pathlib import Path
from typing import Any

from rmtbase.errors import CheckpointError, MissingTensorError, ShapeError
from rmtbase.models.files._checkpoint import Checkpoint
from rmtbase.models.layouts._expressions import Expression, Product, Stacked, Tensor, take_rows
from rmtbase.models.layouts._layout_table import MLP, Entry, Rows, entries, unread
from rmtbase.models.layouts._sites import BIASES, CONTENT_PART, NORMS, PLAIN, Inventory, Norm, Place, Site, bias_notes
from rmtbase.models.layouts._sizes import Sizes
from rmtbase.shown import quoted, shown

_WORDS: Mapping[str, tuple[str, ...]] = {
    "vision": ("vision", "visual", "vit", "image", "img"),
    "image": ("vision", "visual", "vit", "image", "img"),
    "audio": ("audio", "speech", "sound"),
    "text": ("text", "language"),
}  # possible beginnings of names of a part's tensors, by the first word of its key in the configuration


class SeveralStacks(CheckpointError):  # noqa: N818
    def __init__(self, path: Path | str, message: str, tensors: tuple[str, ...]) -> None:
        self.tensors = tensors
        super().__init__(path, message)


LATENT_NORMS = "norms between the factors of latent queries and keys: recorded, not folded in"
ROUNDED = "stored in float64: rounded to float32"
HEADS_UNSEEN = "split into heads by the configuration only: no tensor shows the head size"
_SHOWN = 3  # names in a message
# Tensors in an attention module that do not affect queries and keys: masks and rotary tables.
_BYSTANDERS = re.compile(r"bias|masked_bias|rotary_emb\..+")
_OLDER_NAMES = (("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta"))
_PARTS = {"q": "attention_query", "k": "attention_key", "v": "attention_value", "o": "attention_output"}


def find_inventory(config: Mapping[str, Any], checkpoint: Checkpoint, path: Path, model_type: str) -> Inventory:
    """Find the attention sites of a checkpoint and its other matrices; only headers are read."""
    stacks_of_type = list(entries(config, model_type, path))
    words = {word for entry in stacks_of_type for word in entry.inside}
    left = unread(config, model_type, path)
    sites: list[Site] = []
    other_matrices: dict[Place, dict[str, Expression]] = {}
    matrices_held: set[Expression] = set()
    notes: dict[str, None] = {}
    silent: list[str] = []  # reasons why stacks have no sites
    for entry in stacks_of_type:
        stack = _Stack(checkpoint, model_type, entry, Sizes(entry, path), path)
        if entry.attends and not stack.attending():
            silent += [f"{key} = {quoted(entry.config.get(key))}: no layer has attention" for key in entry.attends]
            continue
        stack.find(words - set(entry.inside), left)
        sites += stack.sites()
        of_stack = stack.others()
        for place, matrices in of_stack.items():
            # Layers with both self-attention and cross-attention are in two stacks but have one MLP.
            new_matrices = {name: matrix for name, matrix in matrices.items() if matrix not in matrices_held}
            other_matrices.setdefault(place, {}).update(new_matrices)
        matrices_held.update(matrix for matrices in of_stack.values() for matrix in matrices.values())
        stack.require_known_attention()
        notes |= dict.fromkeys(stack.notes())
    if silent and not sites:
        raise CheckpointError(path, f"{'; '.join(silent)}; expected at least one")
    notes |= dict.fromkeys(silent)
    if left:
        notes[f"parts that are not read: {', '.join(left)}"] = None
    other_matrices = {place: components for place, components in other_matrices.items() if components}
    return Inventory(sites=tuple(sites), others=other_matrices, notes=tuple(notes))


@dataclass
class _Stack:
    checkpoint: Checkpoint
    architecture: str
    entry: Entry
    given: Sizes
    path: Path
    prefix: str = ""
    rows: Mapping[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.layout, self.rows = self.entry.layout, self.given.rows()

    def find(self, other_words: set[str], left: Sequence[str]) -> None:
        (first, *_) = self.layout.holding("q")
        query = self.layout.layer + first
        of_any = _any_layer(r"(?P<prefix>|.*\.)", query)
        matches = (of_any.fullmatch(name) for name in self.checkpoint.names)
        stacks = {match["prefix"]: match[0] for match in matches if match}
        if self.entry.inside:  # prefixes that name the part of the stack, or else those that name no other
            parts = {prefix: set(prefix.split(".")) for prefix in stacks}
            stems = tuple(word for key in left for word in _WORDS.get(key.split("_")[0], (key.split("_")[0],)))
            named = [prefix for prefix in stacks if set(self.entry.inside) <= parts[prefix]] or [
                prefix
                for prefix in stacks
                if not other_words & parts[prefix]
                and not any(part.startswith(stems) for part in parts[prefix] if stems)
            ]
            stacks = {prefix: stacks[prefix] for prefix in named}
        if not stacks:
            raise MissingTensorError(self.checkpoint.path, query.format(0), self.architecture)
        if len(stacks) > 1:
            listed = ", ".join(map(quoted, list(stacks.values())[:_SHOWN]))
            described = f"tensors {listed}; expected one stack of layers, not {len(stacks)}"
            raise SeveralStacks(self.checkpoint.path, described, tuple(stacks.values()))
        self.prefix = next(iter(stacks))
        n_layers = self.given.sizes["n_layers"]
        of_any = _any_layer(re.escape(self.prefix), self.layout.layer)
        matches = ((of_any.match(name), name) for name in self.checkpoint.names)
        tensor_of = {match["layer"]: name for match, name in matches if match}
        missing = next(layer for layer in count() if str(layer) not in tensor_of)
        if missing < n_layers:
            because = f"{self.checkpoint.config_path.name}: {n_layers} layers, but tensors of only {len(tensor_of)}"
            raise MissingTensorError(self.checkpoint.path, self._tensor(missing, "q"), self.architecture, because)
        beyond = sorted(
            (len(layer), layer)
            for layer in tensor_of
            if len(layer) > len(str(n_layers)) or str(int(layer)) != layer or int(layer) >= n_layers
        )
        if beyond:
            query = self.prefix + self.layout.layer.format(beyond[0][1]) + first
            name = query if query in self.checkpoint else tensor_of[beyond[0][1]]
            listed = ", ".join(shown(layer) for _, layer in beyond[:_SHOWN]) + (", …" if len(beyond) > _SHOWN else "")
            raise CheckpointError(
                self.checkpoint.path,
                f"tensor {quoted(name)} is there; expected none beyond the {n_layers} layers of the configuration "
                f"(numbered besides: {listed}): if these are layers of the model, correct the configuration; "
                "if they are not (draft layers, say), take them out",
            )

    def sites(self) -> list[Site]:
        sizes, layers = self.given.sizes, self.attending()
        present = [part for part in _PARTS if self._has(part, layers)]
        return [self._site(layer, present, sizes) for layer in layers]

    def others(self) -> dict[Place, dict[str, Expression]]:
        layers = range(self.given.sizes["n_layers"])
        present = [symbol for symbol in MLP if self._has(symbol, [] if self.entry.mixed else list(layers))]
        return {
            Place(self.entry.stack, layer): {
                MLP[symbol]: self._expression(layer, symbol)
                for symbol in present
                if self._tensor(layer, symbol) in self.checkpoint
            }
            for layer in layers
        }

    def notes(self) -> tuple[str, ...]:
        checkpoint, layers = self.checkpoint, self.attending()
        symbols = [symbol for symbol in ("q", "k", "n") if self.layout.holding(symbol)]
        names = [self._tensor(layer, symbol) for layer in layers for symbol in symbols]
        of_norms = (*self.layout.norms, *self.layout.norms_of_heads)
        norms = [self._name(layer, name) for layer in layers for name in of_norms]
        beside = [tensor for tensor in self.layout.beside if "norm" not in tensor.lower()]
        beside_stored = [name for name in beside if any(self._name(layer, name) in checkpoint for layer in layers)]
        notes = {
            CONTENT_PART: self.entry.rotated is not None,
            NORMS: any(norm in checkpoint for norm in norms),
            BIASES: any(name.removesuffix("weight") + "bias" in checkpoint for name in names),
            LATENT_NORMS: bool(self.layout.holding("n")),
            f"beside queries and keys: {', '.join(beside_stored)}: recorded, not folded in": bool(beside_stored),
            ROUNDED: any(checkpoint.dtype(name) == "F64" for name in names),
            HEADS_UNSEEN: not self._shows_head_size(),
        }
        maps = [symbol for symbol in self.entry.biases if self.layout.holding(symbol)]
        tensors = {symbol: [self._tensor(layer, symbol) for layer in layers] for symbol in maps}
        source = checkpoint.config_path.name
        biases = bias_notes(
            self.entry.biases,
            tensors,
            checkpoint,
            lambda name, why: MissingTensorError(checkpoint.path, name, self.architecture, f"{source}: {why}"),
        )
        return (*(note for note, holds in notes.items() if holds), *biases)

    def _shows_head_size(self) -> bool:
        """Return True if a norm or rotary frequencies show the size of a head, which the weights do not."""
        rotated, layers = self.given.rotated(), self.attending()
        sizes = {name: (self.rows[size],) for name, size in self.layout.norms.items() if size}
        norms = {self._name(layer, name): shape for layer in layers for name, shape in sizes.items()}
        expected = dict(norms)
        if rotated is not None and self.layout.module:
            name = f"{self.layout.module}rotary_emb.inv_freq"
            expected |= {self._name(layer, name): ((rotated + 1) // 2,) for layer in layers}
        stored = [name for name in expected if name in self.checkpoint]
        for name in stored:
            self._require_shape(name, expected[name])
        missing = [norm for norm in norms if norm not in self.checkpoint]
        if 0 < len(missing) < len(norms):
            raise MissingTensorError(self.checkpoint.path, missing[0], self.architecture)
        sized = [name for name, size in self.layout.norms.items() if size == "d_head"]
        of_heads = {self._name(layer, name) for name in sized for layer in layers}
        return any(name not in norms or name in of_heads for name in stored)

    def _site(self, layer: int, present: Sequence[str], sizes: Mapping[str, int]) -> Site:
        parts = {part: self._expression(layer, part) for part in present}
        query, key = (parts[part].shape(self.checkpoint.shape) for part in "qk")
        turns = self.entry.turns(layer, sizes["n_layers"])
        return Site(
            place=Place(self.entry.stack, layer),
            module=self._tensor(layer, "q").rsplit(".", 2)[0],
            n_heads=sizes["n_heads"],
            n_key_heads=sizes["n_key_heads"],
            d_head=sizes["d_head"],
            d_query=query[1],
            d_key=key[1],
            d_value=sizes["d_value"],
            d_output=parts["o"].shape(self.checkpoint.shape)[0] if "o" in parts else None,
            query=parts["q"],
            key=parts["k"],
            value=parts.get("v"),
            output=parts.get("o"),
            logit_scale=self.given.scale(),
            rotated=self.given.rotated() if turns else None if turns is None else 0,
            query_input_norm=self._norm("query_input_norm", layer, query),
            key_input_norm=self._norm("key_input_norm", layer, key),
            query_norm=self._norm("query_norm", layer, query),
            key_norm=self._norm("key_norm", layer, key),
        )

    def _norm(self, name: str, layer: int, shape: tuple[int, int]) -> Norm | None:
        by_layer = self.entry.norms.get(name)
        if by_layer is None:
            return None
        norm = by_layer[min(layer, len(by_layer) - 1)]
        behind = not name.endswith("_input_norm")
        if "gain" not in norm:
            norms = [tensor for tensor in self.layout.norms if tensor.endswith("weight")]
            gains = [self._name(layer, tensor) for tensor in norms if tensor.split(".")[-2].startswith(name[0])]
            return None if behind and any(gain in self.checkpoint for gain in gains) else PLAIN
        gain = self._stored_norm(norm["gain"], layer)
        bias = self._stored_norm(norm.get("bias", norm["gain"].removesuffix("weight") + "bias"), layer)
        if gain is None or (bias is not None and "bias" not in norm):
            return None
        gains = prod(self.checkpoint.shape(gain))
        fits = shape[0] % gains == 0 if behind else shape[1] == gains
        return Norm(gain, bias, norm.get("offset", 0.0)) if fits else None

    def _stored_norm(self, text: str, layer: int) -> str | None:
        name = self.prefix + text.replace("{}", str(layer)).replace("{-1}", str(layer - 1))
        older = (name.removesuffix(new) + old for new, old in _OLDER_NAMES if name.endswith(new))
        return next((stored_name for stored_name in (name, *older) if stored_name in self.checkpoint), None)

    def _expression(self, layer: int, symbol: str) -> Expression:
        if symbol == "k" and not self.layout.holding("k"):
            upper, latent, rotary = (self._expression(layer, part) for part in ("n", "c", "r"))
            assert isinstance(upper, Product)  # the key is [W_UK W_DKV; W_KR], with the rows W_KR shared by all heads
            n_heads, size = self.rows["n_heads"], self.rows["n"] // self.rows["n_heads"]
            of_heads = [take_rows(upper.of[0], range(head * size, (head + 1) * size)) for head in range(n_heads)]
            return Stacked(tuple(part for of_head in of_heads for part in (Product((of_head, latent)), rotary)))
        name = self._tensor(layer, symbol)
        rows = self.layout.tensors[name.removeprefix(self._name(layer, ""))]
        self.checkpoint.require_supported(name)
        shape = self.checkpoint.shape(name)
        outputs, inputs = self._linear_shape(rows, shape)
        trailing = shape[2:] if len(shape) > 2 and all(size == 1 for size in shape[2:]) else ()
        self._require_shape(name, ((inputs, outputs) if rows.transposed else (outputs, inputs)) + trailing)
        bias = name.removesuffix("weight") + "bias"
        if name.endswith("weight") and bias in self.checkpoint:
            self._require_shape(bias, (outputs,))
        matrix: Expression = Tensor(name, rows.transposed)
        if rows.blocks != (symbol,):
            matrix = take_rows(matrix, rows.indices(symbol, self.rows))
        return Product((matrix, self._expression(layer, rows.reads))) if rows.reads else matrix

    def _has(self, symbol: str, layers: Sequence[int]) -> bool:
        """Return whether the layers have a matrix: all or none of them, and all must have queries and keys."""
        needed = symbol in "qk"
        if symbol == "k" and not self.layout.holding("k"):
            symbol = "n"
        if not self.layout.holding(symbol):
            return False
        missing = [layer for layer in layers if self._tensor(layer, symbol) not in self.checkpoint]
        if missing and (needed or len(missing) < len(layers)):
            layer, name, because = missing[0], self._tensor(missing[0], symbol), ""
            kind = next((kind for kind in (_PARTS, MLP) if symbol in kind and symbol != "v"), {})
            names = {self._tensor(layer, part) for part in kind if self.layout.holding(part)} - {name}
            if names and all(name in self.checkpoint for name in names):  # no network lacks only this one
                because = f"layer {layer} has the other tensors of its {'MLP' if kind is MLP else 'attention'}"
            raise MissingTensorError(self.checkpoint.path, name, self.architecture, because)
        return not missing

    def attending(self) -> list[int]:
        return self.entry.attending(self.given.sizes["n_layers"], self.path)

    def _name(self, layer: int, tensor: str) -> str:
        return f"{self.prefix}{self.layout.layer.format(layer)}{tensor}"

    def _tensor(self, layer: int, symbol: str) -> str:
        possible = [self._name(layer, name) for name in self.layout.holding(symbol)]
        return next((name for name in possible if name in self.checkpoint), possible[0])

    def require_known_attention(self) -> None:
        """Raise unless every tensor in the attention modules is used, or is known not to affect queries and keys."""
        module = self.layout.module
        if not module:
            return
        known_tensors = {*self.layout.norms, *self.layout.beside}
        of_heads = {_any_number(name) for name in self.layout.norms_of_heads}
        for new, old in _OLDER_NAMES:
            known_tensors |= {name.removesuffix(new) + old for name in known_tensors if name.endswith(new)}
        attending = set(self.attending())
        for tensor in self.layout.tensors:
            known_tensors |= {tensor, tensor.removesuffix("weight") + "bias"}
        before = re.escape(self.prefix) + _pattern(self.layout.layer)
        inside = re.compile(f"{before}(?P<name>{re.escape(module)}(?P<own>.+))", re.DOTALL)
        for name in self.checkpoint.names:
            match = inside.fullmatch(name)
            if not match or int(match["layer"]) not in attending or match["name"] in known_tensors:
                continue
            if _any_number(match["name"]) not in of_heads and not _BYSTANDERS.fullmatch(match["own"]):
                raise CheckpointError(
                    self.checkpoint.file(name),
                    f"tensor {quoted(name)} is not part of the attention of a {self.architecture} model, and may "
                    "change its queries and keys; expected plain attention, or pass the effective matrices to "
                    "rmtbase.score_heads",
                )

    def _linear_shape(self, rows: Rows, shape: tuple[int, ...]) -> tuple[int, int]:
        stored = shape[:2] if len(shape) >= 2 else (0, 0)
        outputs, inputs = stored[::-1] if rows.transposed else stored
        crossed = self.entry.stack == "cross" and bool({"k", "v"} & set(rows.blocks))
        d_model = inputs if crossed else self.rows.get("d_model", inputs)
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


def _any_number(name: str) -> str:
    return re.sub(r"\.\d+\.", ".{}.", name)


def _any_layer(prefix: str, name: str) -> re.Pattern[str]:
    return re.compile(prefix + _pattern(name), re.DOTALL)


def _pattern(name: str) -> str:
    return re.escape(name).replace(re.escape("{}"), r"(?P<layer>\d+)")
