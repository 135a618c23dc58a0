"""Records of a forward pass: linear maps, products and softmaxes, and the origins of tensors."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, Protocol
from zlib import crc32

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

KEPT = 64  # number of tokens that are recorded where further ones show nothing more

_NORMED = 128  # tokens, and heads, of a norm's input that are recorded

TAG = 2.0**-36  # relative step between the tags of consecutive outputs


CONVOLUTION = "convolution"
"""Kind of the mark of a convolution, which is neither neutral nor a linear map of each token."""


@dataclass(frozen=True)
class Mark:
    """Neutral operation, or convolution, that a tensor has passed since the last linear map: its kind and its name."""

    kind: str
    name: str


@dataclass(frozen=True)
class Origin:
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
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    def addresses(self, places: Tensor) -> Tensor:
        indices = torch.unravel_index(places, self.shape)
        offsets = (index * step for index, step in zip(indices, self.stride, strict=True))
        return self.offset + sum(offsets, torch.tensor(0))


@dataclass
class Linear:
    weight: Weight  # position of its weight
    first: int  # the number of its first output; the outputs are numbered consecutively
    rows: Tensor  # v[r] for each output
    given: Tensor  # its input, tokens first
    origin: Origin  # origin of its input
    marks: frozenset[Mark] = frozenset()  # the neutral part of the map itself: its bias


@dataclass
class Contraction:
    left: Tensor  # (n, m, d)
    right: Tensor  # (n, s, d), transposed
    origins: tuple[Origin, Origin]  # origins of both operands
    first: int = 0  # for a product of attention weights and values, the number of its first entry; otherwise 0
    shape: tuple[int, int, int] = (0, 0, 0)  # shape of that product


@dataclass
class Softmax:
    scores: Tensor
    axis: int
    origin: Origin
    modules: tuple[tuple[str, int], ...]


@dataclass
class Numbers:
    first: dict[str, int] = field(default_factory=dict)
    size: int = 1

    def first_of(self, key: str, count: int) -> int:
        if key not in self.first:
            self.first[key] = self.size
            self.size += count
        return self.first[key]


@dataclass
class NormOutputs:
    # in a pass that distinguishes norms, the norms and gains that are neutral nevertheless; every other one outputs
    # noise of its own. None in a pass in which all are neutral.
    neutral: frozenset[str] | None = None
    # the inputs of each norm by name, one for each use; only the first tokens and heads of long inputs
    given: dict[str, list[Tensor]] = field(default_factory=dict)
    _givers: dict[int, str] = field(default_factory=dict)

    def output(self, name: str, values: Tensor, giver: str) -> Tensor:
        """Return the output of a norm or a gain, recognisable as that of ``giver``; ``""`` if that is not a norm."""
        if self.neutral is None or name in self.neutral:
            return values
        number = len(self._givers)
        output = noise(f"norm {number}", values.shape)
        rows = output.reshape(-1, values.shape[-1]).numpy()
        self._givers |= {hash(row.tobytes()): giver for row in rows}
        return output

    def keep(self, name: str, values: Tensor) -> None:
        self.given.setdefault(name, []).append(values[(*(slice(_NORMED),) * (values.ndim - 1),)].clone())

    def giver(self, row: np.ndarray) -> str | None:
        return self._givers.get(hash(row.tobytes()))


Laid = Callable[[Tensor], Tensor]  # function that lays the numbers of a stored tensor out as (inputs, outputs)


class RealMaps(Protocol):
    """Linear maps that are computed with their weights, and a receiver of the products of their outputs."""

    @property
    def maps(self) -> Collection[str]: ...  # names of their weights

    def apply(self, name: str, values: Tensor, starts: Tensor, laid: Laid, origin: Origin) -> Tensor: ...

    def met(self, product: str, left: Tensor, right: Tensor) -> None: ...


@dataclass(frozen=True)
class PassKind:
    tagged: frozenset[str] | None = None  # products of queries and keys that count double; None in a plain pass
    neutral: bool = True  # whether rotation is neutral
    real: RealMaps | None = None  # computes chosen maps with their weights; None if all outputs are made up
    norms: NormOutputs | None = None  # in which norms are distinguished; None if they are neutral


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


def tensors_in(arguments: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(arguments) if isinstance(leaf, Tensor)]


def contiguous(tensor: Tensor) -> Tensor:
    return tensor.clone(memory_format=torch.contiguous_format)


def sampled(operand: Tensor) -> Tensor:
    """Keep only the first tokens of queries or keys (n, token, d) if all tokens have the form u[t] · v[r]."""
    first = operand[:, :1]
    is_same = (operand * first[..., :1] - operand[..., :1] * first).abs().amax() < 1e-9 * operand.abs().amax() ** 2
    return operand[:, : KEPT if bool(is_same) else None].clone()
