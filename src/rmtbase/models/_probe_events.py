"""What is met in a forward pass: linear maps, products and softmaxes, and where tensors come from."""

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
"""Tokens of what is met, where the others show nothing more."""

_NORMED = 128  # tokens, and heads, of what a norm is given

TAG = 2.0**-36
"""Relative step from one output's number to the next."""


@dataclass(frozen=True)
class Mark:
    """Something neutral that a tensor came through since the last linear map: ``kind``, and what it is called."""

    kind: str
    name: str


@dataclass(frozen=True)
class Origin:
    """Where the values of a storage came from.

    Attributes:
        content: whether from the model's inputs at all, rather than from positions and parameters alone.
        linear: whether from the output of a linear map.
        marks: what was stepped over since the last linear map or product.
        products: of scores, the products of queries and keys that they are made of, by key.
        softmax: of attention weights, the softmax that they come from.
        born: when, counted in operations.
        maps: the weights of the linear maps that it comes from.
    """

    content: bool = False
    linear: bool = False
    marks: frozenset[Mark] = frozenset()
    products: frozenset[str] = frozenset()
    softmax: frozenset[str] = frozenset()
    born: int = 0
    maps: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Weight:
    """How a map's weight lies in its parameter: that of output o and input i at ``starts[o]`` + i · ``step``."""

    name: str
    starts: Tensor
    step: int
    n_inputs: int


class Copy(NamedTuple):
    """A parameter's entries, copied in the order of these axes."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    def addresses(self, places: Tensor) -> Tensor:
        """Where the entries at these places of the copy lie in the parameter."""
        each = torch.unravel_index(places, self.shape)
        return self.offset + sum((one * step for one, step in zip(each, self.stride, strict=True)), torch.tensor(0))


@dataclass
class Linear:
    """One linear map as it was met.

    Attributes:
        weight: where its weight is stored.
        first: the number of its first output; the following have the following.
        rows: v[r], of each output.
        given: its input, tokens first.
        origin: of its input.
        marks: what is neutral in the map itself: its bias.
    """

    weight: Weight
    first: int
    rows: Tensor
    given: Tensor
    origin: Origin
    marks: frozenset[Mark] = frozenset()


@dataclass
class Contraction:
    """A product of two activations, (n, m, d) and (n, d, s).

    Attributes:
        left: (n, m, d).
        right: (n, s, d), transposed.
        first: of the output of attention weights and values, the number of its first element; else 0.
        shape: of that output.
        origins: of both.
    """

    left: Tensor
    right: Tensor
    origins: tuple[Origin, Origin]
    first: int = 0
    shape: tuple[int, int, int] = (0, 0, 0)


@dataclass
class Softmax:
    """A softmax: what it was given, along which axis, and from which products of which modules."""

    scores: Tensor
    axis: int
    origin: Origin
    modules: tuple[tuple[str, int], ...]


@dataclass
class Numbers:
    """The numbers of all outputs: the same in every pass."""

    first: dict[str, int] = field(default_factory=dict)
    size: int = 1

    def of(self, key: str, count: int) -> int:
        """The first of as many as a key has."""
        if key not in self.first:
            self.first[key] = self.size
            self.size += count
        return self.first[key]


@dataclass
class NormOutputs:
    """What norms were given, and how their outputs are known again.

    Attributes:
        neutral: of a pass that tells norms apart, the norms and gains that are stepped over all the same; every other
            gives noise of its own. None of a pass in which all are stepped over.
        given: by the norm's name what it was given at each use, of long inputs the first tokens and heads.
    """

    neutral: frozenset[str] | None = None
    given: dict[str, list[Tensor]] = field(default_factory=dict)
    _givers: dict[int, str] = field(default_factory=dict)

    def of(self, name: str, given: Tensor, giver: str) -> Tensor:
        """What a norm or a gain gives, to be known as the giver's: ``""`` where that is no norm of its own."""
        if self.neutral is None or name in self.neutral:
            return given
        number = len(self._givers)
        told = noise(f"norm {number}", given.shape)
        rows = told.reshape(-1, given.shape[-1]).numpy()
        self._givers |= {hash(row.tobytes()): giver for row in rows}
        return told

    def keep(self, name: str, given: Tensor) -> None:
        """What a norm was given."""
        self.given.setdefault(name, []).append(given[(*(slice(_NORMED),) * (given.ndim - 1),)].clone())

    def giver(self, row: np.ndarray) -> str | None:
        """Whose output a token's activations are; None where they are no norm's."""
        return self._givers.get(hash(row.tobytes()))


class RealMaps(Protocol):
    """What computes some linear maps with their weights, and takes the products of what comes of them."""

    def holds(self, name: str) -> bool:
        """Whether the map of this weight is to be computed."""
        ...

    def apply(self, name: str, given: Tensor, laid: Callable[[Tensor], Tensor], origin: Origin) -> Tensor:
        """Of the input (tokens, inputs), from an origin; ``laid`` makes (inputs, outputs) of the flat parameter."""
        ...

    def met(self, product: str, left: Tensor, right: Tensor) -> None:
        """A product of (n, m, d) and (n, s, d)."""
        ...


def _generator(key: str) -> torch.Generator:
    return torch.Generator().manual_seed(crc32(key.encode()))


def noise(key: str, shape: torch.Size | tuple[int, ...]) -> Tensor:
    return torch.randn(shape, generator=_generator(key), dtype=torch.float64)


def row_values(key: str, count: int) -> Tensor:
    """Between 1 and 2 or -2 and -1: never near nothing."""
    drawn = torch.rand(count, 2, generator=_generator(key), dtype=torch.float64)
    return (1 + drawn[:, 0]) * torch.where(drawn[:, 1] < 0.5, -1.0, 1.0)


@lru_cache(maxsize=4)
def tokens(count: int) -> Tensor:
    """u[t], the same for every map. Not to be written to."""
    return 1 + torch.rand(count, generator=_generator("tokens"), dtype=torch.float64)


def tensors_in(given: Any) -> list[Tensor]:
    """Of an operation's arguments or results: tensors alone, in lists and by keyword, as ATen's schemas have them."""
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
    """Of queries or keys (n, token, d) the first tokens, where the others are of the same head: u[t] · v[r] all."""
    first = operand[:, :1]
    same = (operand * first[..., :1] - operand[..., :1] * first).abs().amax() < 1e-9 * operand.abs().amax() ** 2
    return operand[:, : KEPT if bool(same) else None].clone()
