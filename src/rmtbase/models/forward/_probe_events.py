"""Records of a forward pass: linear maps, products and softmaxes, and the origins of tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, Protocol
from zlib import crc32

import numpy as np
import torch
from torch import Tensor

KEPT = 64
"""Number of tokens that are recorded where further ones show nothing more."""

_NORMED = 128  # tokens, and heads, of a norm's input that are recorded

TAG = 2.0**-36
"""Relative step between the tags of consecutive outputs."""


CONVOLUTION = "convolution"
"""Kind of the mark of a convolution, which is neither neutral nor a linear map of each token."""


@dataclass(frozen=True)
class Mark:
    """Neutral operation, or convolution, that a tensor has passed since the last linear map: its kind and its name."""

    kind: str
    name: str


@dataclass(frozen=True)
class Origin:
    """Origin of the values in a storage."""

    content: bool = False  # whether they depend on the model's inputs, rather than only on positions and parameters
    linear: bool = False  # whether they come from the output of a linear map
    marks: frozenset[Mark] = frozenset()  # neutral operations since the last linear map or product
    # for scores, the keys of the products of queries and keys that they are made of
    products: frozenset[str] = frozenset()
    softmax: frozenset[str] = frozenset()  # for attention weights, the keys of the softmaxes that they come from
    born: int = 0  # time of creation, in operations
    maps: frozenset[str] = frozenset()  # the weights of the linear maps that they come from


@dataclass(frozen=True)
class Weight:
    """Position of a map's weight in its parameter: output o and input i are at ``starts[o]`` + i · ``step``."""

    name: str
    starts: Tensor
    step: int
    n_inputs: int


class Copy(NamedTuple):
    """Copy of a parameter's entries, in the order of these axes."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    def addresses(self, places: Tensor) -> Tensor:
        """Return the positions in the parameter of the entries at these places of the copy."""
        each = torch.unravel_index(places, self.shape)
        return self.offset + sum((one * step for one, step in zip(each, self.stride, strict=True)), torch.tensor(0))


@dataclass
class Linear:
    """Linear map in a forward pass."""

    weight: Weight  # position of its weight
    first: int  # the number of its first output; the outputs are numbered consecutively
    rows: Tensor  # v[r] for each output
    given: Tensor  # its input, tokens first
    origin: Origin  # origin of its input
    marks: frozenset[Mark] = frozenset()  # the neutral part of the map itself: its bias


@dataclass
class Contraction:
    """Product of two activations, (n, m, d) and (n, d, s)."""

    left: Tensor  # (n, m, d)
    right: Tensor  # (n, s, d), transposed
    origins: tuple[Origin, Origin]  # origins of both operands
    first: int = 0  # for a product of attention weights and values, the number of its first entry; otherwise 0
    shape: tuple[int, int, int] = (0, 0, 0)  # shape of that product


@dataclass
class Softmax:
    """Softmax in a forward pass: its scores and their origin, its axis, and the modules that were running."""

    scores: Tensor
    axis: int
    origin: Origin
    modules: tuple[tuple[str, int], ...]


@dataclass
class Numbers:
    """Numbers of all outputs, which are the same in every pass."""

    first: dict[str, int] = field(default_factory=dict)
    size: int = 1

    def first_of(self, key: str, count: int) -> int:
        """Return the first of ``count`` consecutive numbers that belong to a key."""
        if key not in self.first:
            self.first[key] = self.size
            self.size += count
        return self.first[key]


@dataclass
class NormOutputs:
    """Inputs of norms, and outputs by which norms are recognised."""

    # in a pass that distinguishes norms, the norms and gains that are neutral nevertheless; every other one outputs
    # noise of its own. None in a pass in which all are neutral.
    neutral: frozenset[str] | None = None
    # the inputs of each norm by name, one for each use; only the first tokens and heads of long inputs
    given: dict[str, list[Tensor]] = field(default_factory=dict)
    _givers: dict[int, str] = field(default_factory=dict)

    def output(self, name: str, given: Tensor, giver: str) -> Tensor:
        """Return the output of a norm or a gain, recognisable as that of ``giver``; ``""`` if that is not a norm."""
        if self.neutral is None or name in self.neutral:
            return given
        number = len(self._givers)
        told = noise(f"norm {number}", given.shape)
        rows = told.reshape(-1, given.shape[-1]).numpy()
        self._givers |= {hash(row.tobytes()): giver for row in rows}
        return told

    def keep(self, name: str, given: Tensor) -> None:
        """Record the input of a norm."""
        self.given.setdefault(name, []).append(given[(*(slice(_NORMED),) * (given.ndim - 1),)].clone())

    def giver(self, row: np.ndarray) -> str | None:
        """Return the norm whose output a token's activations are, or None."""
        return self._givers.get(hash(row.tobytes()))


class RealMaps(Protocol):
    """Linear maps that are computed with their weights, and a receiver of the products of their outputs."""

    def holds(self, name: str) -> bool:
        """Return True if the map with this weight is to be computed."""
        ...

    def apply(
        self, name: str, given: Tensor, starts: Tensor, laid: Callable[[Tensor], Tensor], origin: Origin
    ) -> Tensor:
        """Apply the map to an input (tokens, inputs).

        ``starts`` are the positions of the outputs' first weights in the flat parameter, which ``laid`` arranges as
        (inputs, outputs).
        """
        ...

    def met(self, product: str, left: Tensor, right: Tensor) -> None:
        """Receive a product of (n, m, d) and (n, s, d)."""
        ...


def _generator(key: str) -> torch.Generator:
    return torch.Generator().manual_seed(crc32(key.encode()))


def noise(key: str, shape: torch.Size | tuple[int, ...]) -> Tensor:
    return torch.randn(shape, generator=_generator(key), dtype=torch.float64)


def row_values(key: str, count: int) -> Tensor:
    """Draw values between 1 and 2 or between -2 and -1, away from zero."""
    drawn = torch.rand(count, 2, generator=_generator(key), dtype=torch.float64)
    return (1 + drawn[:, 0]) * torch.where(drawn[:, 1] < 0.5, -1.0, 1.0)


@lru_cache(maxsize=4)
def tokens(count: int) -> Tensor:
    """Return u[t], the same for every map. The caller must not write to it."""
    return 1 + torch.rand(count, generator=_generator("tokens"), dtype=torch.float64)


def tensors_in(given: Any) -> list[Tensor]:
    """List the tensors in an operation's arguments or results, including those in lists and keyword arguments."""
    if isinstance(given, Tensor):
        return [given]
    if isinstance(given, dict):
        given = given.values()
    elif not isinstance(given, (list, tuple)):
        return []
    return [tensor for one in given for tensor in tensors_in(one)]


def contiguous(tensor: Tensor) -> Tensor:
    return tensor.clone(memory_format=torch.contiguous_format)


def sampled(operand: Tensor) -> Tensor:
    """Keep only the first tokens of queries or keys (n, token, d) if all tokens have the form u[t] · v[r]."""
    first = operand[:, :1]
    same = (operand * first[..., :1] - operand[..., :1] * first).abs().amax() < 1e-9 * operand.abs().amax() ** 2
    return operand[:, : KEPT if bool(same) else None].clone()
