"""A trained model as its weight matrices."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32

from rmtbase.errors import CheckpointError, ParameterError
from rmtbase.models._checkpoint import Checkpoint
from rmtbase.models._config import read_architecture, read_layout_dimensions, rotary_dimensions
from rmtbase.models._files import read_json_object
from rmtbase.models._layouts import ATTENTION_PARTS, KINDS, LAYOUTS
from rmtbase.models._leftovers import (
    leftover_notes,
    require_known_attention,
    require_plain_tensors,
    require_unquantised,
)
from rmtbase.models._other_formats import refuse_other_formats
from rmtbase.models._stack import Stack
from rmtbase.models._tensor_file import least_sigma, require_digits
from rmtbase.shown import quoted

_CONTENT_PART = "rotary: W_QK is the content part at zero relative position"
_NORMS = "query/key norm present: recorded, not folded in"
_BIASES = "biases present: recorded, not folded in"
_ROUNDED = "stored in float64: rounded to float32"
_HEADS_UNSEEN = "split into heads: the configuration's word alone, no tensor shows the head size"


class _LastTensor:
    """Reads tensors and keeps the last one, since queries, keys and values may share it."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._last: tuple[str, Float32[np.ndarray, "..."]] | None = None

    def read(self, name: str) -> Float32[np.ndarray, "..."]:
        last = self._last
        if last is not None and last[0] == name:
            return last[1]
        self._last = last = None  # so that two tensors are never held at once
        values = _to_float32(self._checkpoint, name)
        values.flags.writeable = False
        self._last = (name, values)
        return values


@dataclass(frozen=True)
class Model:
    """The weight matrices of one trained model, each read from its checkpoint when asked for.

    The arrays are float32, read-only, and checked to be finite. One stored tensor is kept in memory, no more.

    Attributes:
        name: what the model was asked for as.
        revision: the revision, or None where it has none.
        path: the checkpoint's folder.
        architecture: the ``model_type`` of its configuration.
        config: the configuration.
        n_layers: number of layers.
        n_heads: number of query heads of a layer.
        n_key_heads: number of key heads of a layer; each serves n_heads / n_key_heads query heads.
        d_model: width of the residual stream.
        d_head: head dimension.
        components: the weight matrices that each layer has, by the names of ``COMPONENTS``.
        notes: what must be known to read W_QK = W_QᵀW_K of this model rightly.
    """

    name: str
    revision: str | None
    path: Path
    architecture: str
    config: dict[str, Any] = field(repr=False, compare=False)
    n_layers: int
    n_heads: int
    n_key_heads: int
    d_model: int
    d_head: int
    components: tuple[str, ...]
    notes: tuple[str, ...]
    _stack: Stack = field(repr=False, compare=False)
    _tensors: _LastTensor = field(repr=False, compare=False)

    @classmethod
    def from_folder(cls, folder: Path, name: str, revision: str | None = None, notes: tuple[str, ...] = ()) -> Model:
        """Read the configuration and the headers of a checkpoint folder, and check one against the other.

        Raises:
            CheckpointError: or one of its kinds, naming the file, the tensor, what was found and expected.
            MissingDependencyError: the weights are ``.bin`` files and torch 2.10 or later is not installed.
        """
        config_path = folder / "config.json"
        refuse_other_formats(folder)
        config = read_json_object(config_path)
        require_unquantised(config, config_path)
        architecture = read_architecture(config, config_path)
        layout = LAYOUTS[architecture]
        dimensions = read_layout_dimensions(config, layout, config_path)
        checkpoint = Checkpoint.open(folder)
        require_plain_tensors(checkpoint)
        stack = Stack.find(checkpoint, architecture, dimensions)
        components = stack.components()
        stack.require_shapes(components)
        require_known_attention(stack)
        rotated = rotary_dimensions(config, layout, dimensions.d_head, config_path)
        shows_heads = stack.shows_head_size(rotated)
        return cls(
            name=name,
            revision=revision,
            path=folder,
            architecture=architecture,
            config=config,
            n_layers=dimensions.n_layers,
            n_heads=dimensions.n_heads,
            n_key_heads=dimensions.n_key_heads,
            d_model=dimensions.d_model,
            d_head=dimensions.d_head,
            components=components,
            notes=(
                *_notes(stack),
                *(() if shows_heads else (_HEADS_UNSEEN,)),
                *checkpoint.notes,
                *leftover_notes(config, checkpoint),
                *notes,
            ),
            _stack=stack,
            _tensors=_LastTensor(checkpoint),
        )

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that hold the weights."""
        checkpoint = self._stack.checkpoint
        return tuple(sorted({checkpoint.file(name) for name in checkpoint.names}))

    def queries(self, layer: int) -> Float32[np.ndarray, "n_heads d_head d_model"]:
        """The query matrices of a layer, shape (n_heads, d_head, d_model): q = W_Q x.

        Raises:
            ParameterError: there is no such layer.
            CheckpointError: the tensor cannot be read, or is not finite.
        """
        return self.matrix(layer, "attention_query").reshape(self.n_heads, self.d_head, self.d_model)

    def keys(self, layer: int) -> Float32[np.ndarray, "n_key_heads d_head d_model"]:
        """The key matrices of a layer, shape (n_key_heads, d_head, d_model): k = W_K x.

        Raises:
            ParameterError: there is no such layer.
            CheckpointError: the tensor cannot be read, or is not finite.
        """
        return self.matrix(layer, "attention_key").reshape(self.n_key_heads, self.d_head, self.d_model)

    def key_head(self, head: int) -> int:
        """The key head that a query head is scored against: head // (n_heads / n_key_heads).

        Raises:
            ParameterError: there is no such head.
        """
        _require_index("head", head, self.n_heads)
        return head // (self.n_heads // self.n_key_heads)

    def matrix(self, layer: int, component: str) -> Float32[np.ndarray, "d_out d_in"]:
        """One weight matrix, shape (d_out, d_in): rows are outputs, whatever the stored orientation.

        Raises:
            ParameterError: there is no such layer or component.
            CheckpointError: the tensor cannot be read, or is not finite.
        """
        _require_index("layer", layer, self.n_layers)
        if component not in self.components:
            raise ParameterError("component", component, f"one of {', '.join(self.components)}")
        stored = self._stack.layout.components[component]
        whole = self._tensors.read(self._stack.tensor(layer, component))
        linear = whole.T if stored.transposed else whole
        if component in ATTENTION_PARTS:
            part = ATTENTION_PARTS.index(component)
            linear = KINDS[stored.kind](linear, part, self._stack.dimensions.part_rows, self.d_head)
        matrix = np.ascontiguousarray(linear)
        matrix.flags.writeable = False
        return matrix

    def least_sigma(self, layer: int, component: str) -> float:
        """The standard deviation below which weights of the stored type are rounding: see ``least_sigma``."""
        return least_sigma(self._stack.checkpoint.dtype(self._stack.tensor(layer, component)))

    def fingerprint(self) -> str:
        """SHA-256, in hexadecimal, over the stored query and key tensors of all layers, in order.

        Two checkpoints with the same fingerprint hold the same attention weights, whatever their names: some
        published revisions do (step 0 and step 1 of several Pythia models). Where the values share a tensor
        with queries and keys, they are in it. Reads all these tensors once.

        Raises:
            CheckpointError: a tensor cannot be read.
        """
        return hashlib.sha256(b"".join(self._layer_digests)).hexdigest()

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What is suspicious about the weights: layers whose queries and keys are the same to the byte.

        Reads all query and key tensors once, when first asked for.

        Raises:
            CheckpointError: a tensor cannot be read.
        """
        layers = defaultdict(list)
        for layer, digest in enumerate(self._layer_digests):
            layers[digest].append(str(layer))
        return tuple(
            f"layers {', '.join(same)} hold byte-identical query and key weights: they are one observation"
            for same in layers.values()
            if len(same) > 1
        )

    @cached_property
    def _layer_digests(self) -> tuple[bytes, ...]:
        return tuple(
            self._stack.checkpoint.digest(
                dict.fromkeys(self._stack.tensor(layer, part) for part in ATTENTION_PARTS[:2])
            )
            for layer in range(self.n_layers)
        )


def _require_index(name: str, index: int, count: int) -> None:
    if not isinstance(index, (int, np.integer)) or not 0 <= index < count:
        raise ParameterError(name, index, f"an integer from 0 to {count - 1}")


def _to_float32(checkpoint: Checkpoint, name: str) -> Float32[np.ndarray, "..."]:
    values = checkpoint.read(name)
    require_digits(checkpoint.file(name), name, values, checkpoint.dtype(name))
    try:
        # A few values that are lost beside larger ones change nothing; all of them have just been refused.
        with np.errstate(over="raise", under="ignore"):
            return values.astype(np.float32, copy=False)
    except FloatingPointError as error:
        raise CheckpointError(
            checkpoint.file(name),
            f"tensor {quoted(name)} holds values beyond the range of float32; expected weights, or rescale them",
        ) from error


def _notes(stack: Stack) -> tuple[str, ...]:
    checkpoint, names = stack.checkpoint, stack.of_each_layer(*ATTENTION_PARTS[:2])
    found = {
        _CONTENT_PART: stack.layout.rotary,
        _NORMS: any(norm in checkpoint for norm in stack.norms()),
        _BIASES: any(name.removesuffix("weight") + "bias" in checkpoint for name in names),
        _ROUNDED: any(checkpoint.dtype(name) == "F64" for name in names),
    }
    return tuple(note for note, holds in found.items() if holds)
