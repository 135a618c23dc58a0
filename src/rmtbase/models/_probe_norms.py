"""What the norms of a network learn, by what each does to noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import permutations
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn

from rmtbase.models._probe_events import Mark, NormOutputs
from rmtbase.models._probe_forward import ForwardPass
from rmtbase.models._probe_places import NORM_KINDS
from rmtbase.models._probe_rows import decode
from rmtbase.models._sites import PLAIN, Norm

_DIVIDING = ("rsqrt", "linalg_vector_norm")
_TOLERANCE = 1e-4  # some norms compute in float32


class Measured(NamedTuple):
    """A norm: x̂ ⊙ (offset + gain) + bias, x̂ being a multiple of x, or where it is centred of x less its mean.

    Attributes:
        norm: by the names of the network's parameters.
        size: how many gains there are.
        centred: whether it takes the mean off.
    """

    norm: Norm
    size: int
    centred: bool


@dataclass(frozen=True)
class Norms:
    """The norms of a network: its modules by name, and what its passes showed of them.

    Attributes:
        modules: by name.
        plain: what norms were given.
        tagged: the same, by which the rows are told.
        apart: the pass that tells norms apart.
    """

    modules: Mapping[str, nn.Module]
    plain: NormOutputs
    tagged: NormOutputs
    apart: ForwardPass
    _known: dict[str, Measured | None] = field(default_factory=dict)

    def before(self, linear: str) -> Norm | None:
        """The norm whose output is the input of a map, by key; PLAIN where it is no norm's, None where not known."""
        if linear not in self.apart.linears:
            return None
        given = self.apart.linears[linear].given
        giver, *others = {self.apart.norms.giver(row) for row in given.reshape(-1, given.shape[-1]).numpy()}
        if giver is None and not others:
            return PLAIN
        measured = self._measured(giver) if giver and not others else None
        return measured and measured.norm

    def behind(self, operand: frozenset[Mark], maps: frozenset[Mark], rows: Int[np.ndarray, "head d"]) -> Norm | None:
        """The norm of queries, keys or values with these rows, which came through these marks.

        None where it is not known, or does more than divide and multiply by gains in the order of the rows.
        """
        if any(mark.kind == "inner" for mark in maps) or any(mark.kind == "gain" for mark in operand):
            return None
        found = [mark for mark in operand if mark.kind in NORM_KINDS]
        if all(mark.kind in _DIVIDING for mark in found):
            return PLAIN
        name = found[0].name
        measured = self._measured(name) if len(found) == 1 else None
        if measured is None or measured.centred or measured.norm.bias is not None:
            return None
        if measured.norm.gain is None:
            return PLAIN
        return measured.norm if self._in_order(name, measured.size, rows.ravel().tolist()) else None

    def _in_order(self, name: str, size: int, rows: list[int]) -> bool:
        """Whether the gain of row i is number i modulo their number, in some use of a norm."""
        for plain, tagged in zip(self.plain.given[name], self.tagged.given.get(name, ()), strict=False):
            if plain.shape != tagged.shape or plain.numel() % size:
                continue
            numbers = decode(plain.numpy(), tagged.numpy()).reshape(-1, size)
            places = {number: place for each in numbers.tolist() for place, number in enumerate(each)}
            if all(places.get(row) == place % size for place, row in enumerate(rows)):
                return True
        return False

    def _measured(self, name: str) -> Measured | None:
        """What a module learns; None where it does something else than a norm of the last axis."""
        if name not in self._known:
            try:
                found = _measure(self.modules[name], name, tuple(self.plain.given[name][0].shape))
            except Exception:  # whatever a module raises: it is none of the kind
                found = None
            self._known[name] = found
        return self._known[name]


def _measure(module: nn.Module, name: str, shape: tuple[int, ...]) -> Measured | None:
    """Its parameters are given values in turn; which of them is the gain, and which the bias, is what fits."""
    generator = torch.Generator().manual_seed(3)
    parameters = {key: tuple(one.shape) for key, one in module.named_parameters()}
    x = 3 * torch.randn(shape, generator=generator, dtype=torch.float64) + 1
    noise = {key: torch.randn(size, generator=generator, dtype=torch.float64) for key, size in parameters.items()}

    def given(values: Mapping[str, Tensor]) -> Tensor:
        with torch.no_grad():
            return torch.func.functional_call(module, dict(values), (x,))

    if not parameters:
        centred = _is_centred(given({}), x)
        return None if centred is None else Measured(Norm(None), 0, centred)
    zeros = {key: torch.zeros_like(one) for key, one in noise.items()}
    without = given(zeros)
    for gain, *bias in permutations(parameters):
        normalised = given({**zeros, gain: torch.ones_like(noise[gain])}) - without
        centred = _is_centred(normalised, x)
        if len(bias) > 1 or centred is None or x.shape[-len(parameters[gain]) :] != parameters[gain]:
            continue
        offset = float((without * normalised).sum() / normalised.square().sum())
        expected = normalised * (round(offset) + noise[gain]) + (noise[bias[0]] if bias else 0)
        if torch.allclose(given(noise), expected, rtol=_TOLERANCE, atol=_TOLERANCE):
            names = [f"{name}.{one}" for one in (gain, *bias)]
            return Measured(Norm(names[0], *names[1:], offset=float(round(offset))), noise[gain].numel(), centred)
    return None


def _is_centred(normalised: Tensor, x: Tensor) -> bool | None:
    """Whether a multiple of x less its mean, rather than of x itself; None where it is neither."""
    for centred in (False, True):
        one = x - x.mean(-1, keepdim=True) if centred else x
        factor = (normalised * one).sum(-1, keepdim=True) / one.square().sum(-1, keepdim=True)
        if bool((factor > 0).all()) and torch.allclose(factor * one, normalised, rtol=_TOLERANCE, atol=_TOLERANCE):
            return centred
    return None
