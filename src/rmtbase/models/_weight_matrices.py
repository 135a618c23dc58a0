"""What scoring needs of a model, wherever its weights are: in a checkpoint, or at hand as arrays."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from rmtbase.errors import ParameterError, RmtbaseError


@dataclass(frozen=True, kw_only=True)
class WeightMatrices(ABC):
    """The weight matrices of one model, layer by layer, each read when asked for.

    Attributes:
        name: what the model is called.
        revision: the revision, or None where it has none.
        architecture: of its layout, "" where there is none.
        n_layers: number of layers.
        n_heads: number of query heads of a layer.
        n_key_heads: number of key heads of a layer; each serves n_heads / n_key_heads query heads.
        d_model: width of the residual stream.
        d_head: head dimension.
        components: the weight matrices that each layer has, by the names of ``COMPONENTS``.
        notes: what must be known to read W_QK = W_QᵀW_K of this model rightly.
        heads_have_weights: whether it is known that no head is all zeros.
    """

    name: str
    revision: str | None
    architecture: str
    n_layers: int
    n_heads: int
    n_key_heads: int
    d_model: int
    d_head: int
    components: tuple[str, ...]
    notes: tuple[str, ...]
    heads_have_weights: ClassVar[bool] = False

    @abstractmethod
    def matrix(self, layer: int, component: str) -> Float[np.ndarray, "d_out d_in"]:
        """One weight matrix, shape (d_out, d_in): rows are outputs, whatever the stored orientation.

        Raises:
            ParameterError: there is no such layer or component.
        """

    @abstractmethod
    def least_sigma(self, layer: int, component: str) -> float:
        """The standard deviation below which a head's weights are rounding and not their shape."""

    @abstractmethod
    def refused(self, layer: int, head: int, found: str, expected: str) -> RmtbaseError:
        """The error that says that a head cannot be scored."""

    @abstractmethod
    def layer_digest(self, layer: int) -> bytes:
        """SHA-256 over the query and key weights of a layer, as they are stored."""

    def queries(self, layer: int) -> Float[np.ndarray, "n_heads d_head d_model"]:
        """The query matrices of a layer, shape (n_heads, d_head, d_model): q = W_Q x. Raises as :meth:`matrix`."""
        return self.matrix(layer, "attention_query").reshape(self.n_heads, self.d_head, self.d_model)

    def keys(self, layer: int) -> Float[np.ndarray, "n_key_heads d_head d_model"]:
        """The key matrices of a layer, shape (n_key_heads, d_head, d_model): k = W_K x. Raises as :meth:`matrix`."""
        return self.matrix(layer, "attention_key").reshape(self.n_key_heads, self.d_head, self.d_model)

    def key_head(self, head: int) -> int:
        """The key head that a query head is scored against: head // (n_heads / n_key_heads).

        Raises:
            ParameterError: there is no such head.
        """
        _require_index("head", head, self.n_heads)
        return head // (self.n_heads // self.n_key_heads)

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
        return tuple(self.layer_digest(layer) for layer in range(self.n_layers))

    def require_matrix(self, layer: int, component: str) -> None:
        """Raise :class:`~rmtbase.errors.ParameterError` unless the model has such a layer and component."""
        _require_index("layer", layer, self.n_layers)
        if component not in self.components:
            raise ParameterError("component", component, f"one of {', '.join(self.components)}")


def _require_index(name: str, index: int, count: int) -> None:
    if not isinstance(index, (int, np.integer)) or not 0 <= index < count:
        raise ParameterError(name, index, f"an integer from 0 to {count - 1}")
