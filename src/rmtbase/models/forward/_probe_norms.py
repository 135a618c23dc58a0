"""Learned parameters of a network's norms, found from the effect of each norm on noise."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import permutations
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn

from rmtbase.models.forward._probe_events import Mark, NormOutputs
from rmtbase.models.forward._probe_forward import ForwardPass
from rmtbase.models.forward._probe_places import NORM_KINDS
from rmtbase.models.forward._probe_rows import decode
from rmtbase.models.layouts._sites import PLAIN, Norm

_DIVIDING = ("rsqrt", "linalg_vector_norm")
_TOLERANCE = 1e-4  # some norms compute in float32


class Measured(NamedTuple):
    """Norm x̂ ⊙ (offset + gain) + bias, where x̂ is a multiple of x or, if centred, of x minus its mean."""

    norm: Norm  # the norm, with the names of the network's parameters
    size: int  # number of gains
    centred: bool  # whether it subtracts the mean


@dataclass(frozen=True)
class Norms:
    modules: Mapping[str, nn.Module]  # the modules by name
    plain: NormOutputs  # inputs of norms in the plain pass
    tagged: NormOutputs  # inputs of norms in the tagged pass, which identifies the rows
    apart: ForwardPass  # the pass that distinguishes norms
    _known: dict[str, Measured | None] = field(default_factory=dict)

    def before(self, linear: str) -> Norm | None:
        """Return the norm whose output is the input of a map, PLAIN if there is no such norm, or None if unknown."""
        if linear not in self.apart.linears:
            return None
        values = self.apart.linears[linear].given
        giver, *other_givers = {self.apart.norms.giver(row) for row in values.reshape(-1, values.shape[-1]).numpy()}
        if giver is None and not other_givers:
            return PLAIN
        measured = self._measured(giver) if giver and not other_givers else None
        return measured and measured.norm

    def behind(self, operand: frozenset[Mark], maps: frozenset[Mark], rows: Int[np.ndarray, "head d"]) -> Norm | None:
        """Return the norm of queries, keys or values with these rows, given the marks that they have passed."""
        if any(mark.kind == "inner" for mark in maps) or any(mark.kind == "gain" for mark in operand):
            return None
        marks = [mark for mark in operand if mark.kind in NORM_KINDS]
        if all(mark.kind in _DIVIDING for mark in marks):
            return PLAIN
        name = marks[0].name
        measured = self._measured(name) if len(marks) == 1 else None
        if measured is None or measured.centred or measured.norm.bias is not None:
            return None
        if measured.norm.gain is None:
            return PLAIN
        return measured.norm if self._in_order(name, measured.size, rows.ravel().tolist()) else None

    def _in_order(self, name: str, size: int, rows: list[int]) -> bool:
        """Return True if, in some use of a norm, row i has the gain with the number i modulo the number of gains."""
        for plain, tagged in zip(self.plain.given[name], self.tagged.given.get(name, ()), strict=False):
            if plain.shape != tagged.shape or plain.numel() % size:
                continue
            numbers = decode(plain.numpy(), tagged.numpy()).reshape(-1, size)
            places = {number: place for row_numbers in numbers.tolist() for place, number in enumerate(row_numbers)}
            if all(places.get(row) == place % size for place, row in enumerate(rows)):
                return True
        return False

    def _measured(self, name: str) -> Measured | None:
        if name not in self._known:
            try:
                measured = _measure(self.modules[name], name, tuple(self.plain.given[name][0].shape))
            except Exception:  # a module that raises anything is not such a norm
                measured = None
            self._known[name] = measured
        return self._known[name]


def _measure(module: nn.Module, name: str, shape: tuple[int, ...]) -> Measured | None:
    generator = torch.Generator().manual_seed(3)
    parameters = {key: tuple(parameter.shape) for key, parameter in module.named_parameters()}
    x = 3 * torch.randn(shape, generator=generator, dtype=torch.float64) + 1
    noise = {key: torch.randn(size, generator=generator, dtype=torch.float64) for key, size in parameters.items()}

    def given(values: Mapping[str, Tensor]) -> Tensor:
        with torch.no_grad():
            return torch.func.functional_call(module, dict(values), (x,))

    if not parameters:
        centred = _is_centred(given({}), x)
        return None if centred is None else Measured(Norm(None), 0, centred)
    zeros = {key: torch.zeros_like(values) for key, values in noise.items()}
    without = given(zeros)
    for gain, *bias in permutations(parameters):
        normalised = given({**zeros, gain: torch.ones_like(noise[gain])}) - without
        centred = _is_centred(normalised, x)
        if len(bias) > 1 or centred is None or x.shape[-len(parameters[gain]) :] != parameters[gain]:
            continue
        offset = float((without * normalised).sum() / normalised.square().sum())
        expected = normalised * (round(offset) + noise[gain]) + (noise[bias[0]] if bias else 0)
        if torch.allclose(given(noise), expected, rtol=_TOLERANCE, atol=_TOLERANCE):
            names = [f"{name}.{key}" for key in (gain, *bias)]
            return Measured(Norm(names[0], *names[1:], offset=float(round(offset))), noise[gain].numel(), centred)
    return None


def _is_centred(normalised: Tensor, x: Tensor) -> bool | None:
    """Return whether the output is a multiple of x minus its mean, rather than of x; None if it is neither."""
    for centred in (False, True):
        x_centred = x - x.mean(-1, keepdim=True) if centred else x
        factor = (normalised * x_centred).sum(-1, keepdim=True) / x_centred.square().sum(-1, keepdim=True)
        is_close = torch.allclose(factor * x_centred, normalised, rtol=_TOLERANCE, atol=_TOLERANCE)
        if is_close and bool((factor > 0).all()):
            return centred
    return None
