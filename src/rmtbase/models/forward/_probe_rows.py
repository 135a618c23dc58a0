"""Rows of stored tensors behind the values in a product, and parameters of norms, found from their effect on noise."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby, permutations
from math import prod
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import nn

from rmtbase.models.forward._probe_events import TAG, Contraction, Mark, NormOutputs, Softmax, Weight, tokens
from rmtbase.models.forward._probe_forward import ForwardPass
from rmtbase.models.forward._probe_places import NORM_KINDS
from rmtbase.models.layouts._expressions import Tensor
from rmtbase.models.layouts._sites import PLAIN, Norm


class NoReading(Exception):  # noqa: N818
    """Error: a softmax cannot be read as attention of stored queries and keys; the message is the reason."""


class Heads(NamedTuple):
    """Query or key operands: number and factor (with the tokens' u[t]) of each coordinate, (n, token, d)."""

    numbers: Int[np.ndarray, "n token d"]
    factors: Float[np.ndarray, "n token d"]
    marks: frozenset[Mark]
    turned: Bool[np.ndarray, " d"] | None


def decode(plain: np.ndarray, tagged: np.ndarray) -> np.ndarray:
    """Return the number i of the output behind each value, tagged = plain · (1 + i · 2⁻³⁶); 0 if there is none."""
    with np.errstate(all="ignore"):
        raw = (tagged / plain - 1) / TAG
        numbers = np.rint(raw)
        is_known = np.isfinite(raw) & (np.abs(raw - numbers) < 1e-3) & (numbers > 0) & (numbers < 2**36)
    return np.where(is_known, numbers, 0).astype(np.int64)


def batches(seen: Float[np.ndarray, "n m s"], nbatches: int) -> list[int] | None:
    """Return the batch n of the scores behind each batch of weights; scores are m + 1 + n / (2 · nbatches)."""
    part = (seen - np.floor(seen + 1e-9)) * 2 * nbatches
    result = []
    for batch, inside in zip(part, np.abs(seen) > 1e-12, strict=True):
        if not inside.any():
            return None
        batch_seen = batch[inside]
        n = round(float(batch_seen[0]))
        if np.abs(batch_seen - n).max() > 1e-6 or not 0 <= n < nbatches:
            return None
        result.append(n)
    return result


def content_product(products: Mapping[str, Contraction], softmax: Softmax) -> str | None:
    origins = {key: products[key].origins for key in softmax.origin.products}
    for kind in ("content", "linear"):
        fitting = [key for key, (left, right) in origins.items() if getattr(left, kind) and getattr(right, kind)]
        if fitting:
            return fitting[0] if len(fitting) == 1 else None
    return None


def scale_of(plain: Softmax, tagged: Softmax | None) -> tuple[float, bool]:
    """Return the factor of q·k before a softmax, and whether the keys are the right operand.

    The scores show the index of the left operand. If this is the query's, it is the same along each row of scores and
    differs from row to row; if it is the key's, the same along each column. Only entries of the same batch of the
    product are compared, since a row may be put together from several, as in overlapping windows.
    """
    if tagged is None or tagged.scores.shape != plain.scores.shape:
        raise NoReading("its control flow depends on the values")
    scores = plain.scores.numpy()
    with np.errstate(invalid="ignore", over="ignore"):
        seen = tagged.scores.numpy() - scores
        seen = np.where((np.abs(scores) < 1e30) & (np.abs(seen) > 1e-12), seen, np.nan)  # without masks and sinks
        if np.all(np.isnan(seen)):
            raise NoReading("scores do not depend on the product of queries and keys")
        scale = float(np.nanmin(np.abs(seen)))
        index = np.floor(seen / scale + 1e-6)
        batch = seen / scale - index
        along: dict[bool, set[bool]] = {True: set(), False: set()}  # whether the index changes along and across rows
        for axis in range(seen.ndim):
            of_same_batch = np.abs(np.diff(batch, axis=axis)) < 1e-6
            along[axis == plain.axis % seen.ndim] |= {*(np.diff(index, axis=axis)[of_same_batch] != 0).tolist()}
    if along[True] == {False} or (not along[True] and along[False] == {True}):
        return scale, True
    if along[True] <= {True} and along[False] <= {False} and (along[True] or along[False]):
        return scale, False
    if not along[True] and not along[False]:
        raise NoReading(ONE_TOKEN)
    raise NoReading("neither rows nor columns of its scores belong to one token each: queries are not told from keys")


ONE_TOKEN = "one query meets one key: they are not told from each other"
"""Reason why a softmax is not read if the inputs are too short."""


def pairs(
    queries: np.ndarray, keys: np.ndarray, stored: Callable[[tuple[int, ...]], tuple[tuple[str, int], ...]]
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    met: dict[tuple[int, ...], tuple[int, ...]] = {}
    for of_queries, of_keys in zip(queries, keys, strict=True):
        key_rows = {row for row in _distinct(of_keys) if min(row) > 0}
        if not key_rows:
            raise NoReading("keys are no outputs of linear maps")
        if len(maps := {stored(row) for row in key_rows}) < len(key_rows):
            names = ", ".join(sorted({name for map_of_rows in maps for name, _ in map_of_rows}))
            raise NoReading(f"{names} is applied to {len(key_rows) // len(maps)} inputs, which are joined as keys")
        if len(key_rows) > 1:
            raise NoReading("keys of different maps are joined")
        (key,) = key_rows
        for row in _distinct(of_queries):
            if min(row) <= 0:
                raise NoReading("some queries are no outputs of linear maps")
            if met.setdefault(row, key) != key:
                raise NoReading("a query head meets several key heads")
    return list(met.items())


def _distinct(rows: np.ndarray) -> list[tuple[int, ...]]:
    return list(dict.fromkeys(map(tuple, (rows[:1] if (rows == rows[:1]).all() else rows).tolist())))


def grouped(served: list[tuple[int, ...]]) -> tuple[np.ndarray, int]:
    """Return the key heads such that query head i uses key head i // (n_heads / n_key_heads), and their number."""
    runs = [key for key, _ in groupby(served)]
    group = len(served) // len(runs)
    regular = len(served) % len(runs) == 0 and all(key == runs[i // group] for i, key in enumerate(served))
    rows = np.array(runs if regular else served)  # if not regular, one key head for each query head
    return rows, len(rows)


def factors_of(operand: Heads, rows: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the factor of the first coordinate, and the ratio of each coordinate's factor to it, (head, d)."""
    first = {tuple(row): None for row in rows.tolist()}
    relative: dict[tuple[int, ...], np.ndarray] = {}
    scales = []
    for numbers, factors in zip(operand.numbers, operand.factors, strict=True):
        for row, factor in zip(map(tuple, numbers.tolist()), factors, strict=True):
            if row in first:
                relative.setdefault(row, factor / factor[0])
                if np.abs(factor / factor[0] - relative[row]).max() > 1e-9 * np.abs(relative[row]).max():
                    raise NoReading("factors of queries or keys differ from token to token")
                scales.append(factor[0])
    factor = token_factor(np.unique(scales))
    if factor is None:
        raise NoReading("queries or keys are mixed over tokens")
    return factor, np.array([[*map(rounded, relative[tuple(row)])] for row in rows.tolist()])


def token_factor(values: Float[np.ndarray, " n"]) -> float | None:
    order, token_values = _sorted_tokens()
    # Candidates are in the order of u, because searching for sorted numbers is fast.
    candidates, turns = np.append(values[0] / token_values, 1.0), np.append(order, -1)
    for factor in values:
        sought = factor / candidates
        at = np.clip(np.searchsorted(token_values, sought), 1, len(token_values) - 1)
        near = np.minimum(np.abs(token_values[at] - sought), np.abs(token_values[at - 1] - sought)) < 1e-11
        candidates, turns = candidates[near], turns[near]
    return float(candidates[turns.argmin()]) if len(candidates) else None


@cache
def _sorted_tokens() -> tuple[Int[np.ndarray, " t"], Float[np.ndarray, " t"]]:
    of_tokens = tokens(1 << 16).numpy()
    order = np.argsort(of_tokens)
    return order, of_tokens[order]


def stored_rows(
    weight: Weight, outputs: Int[np.ndarray, " output"], shapes: Mapping[str, tuple[int, ...]]
) -> list[tuple[Tensor, np.ndarray, np.ndarray]]:
    """Return the stored tensors, as matrices, that hold outputs of a map, with the outputs and the rows in each."""
    shape = list(shapes[weight.name])
    while len(shape) > 2 and shape[-1] == 1:
        shape.pop()
    at = weight.starts.numpy()[outputs]
    for axes in range(1, len(shape)):
        if weight.step == 1 and prod(shape[-axes:]) == weight.n_inputs and not np.any(at % weight.n_inputs):
            return [(Tensor(weight.name, n_inputs=axes), np.arange(len(at)), at // weight.n_inputs)]
    for skipped in (0, 1):
        inner_shape = shape[skipped:]
        index, within = np.divmod(at, prod(inner_shape))
        for axes in range(1, len(inner_shape)):
            before, behind = prod(inner_shape[:axes]), prod(inner_shape[axes:])
            if (behind, before) == (weight.step, weight.n_inputs) and np.all(within < weight.step):
                by_number = ((number, np.flatnonzero(index == number)) for number in np.unique(index).tolist())
                return [
                    (Tensor(weight.name, True, number if skipped else None, axes), among, within[among])
                    for number, among in by_number
                ]
    raise NoReading(f"outputs are neither rows nor columns of {weight.name}")


def rounded(factor: float) -> float:
    return float(f"{factor:.12g}")


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
        if linear not in self.apart.linears:
            return None
        values = self.apart.linears[linear].given
        giver, *other_givers = {self.apart.norms.giver(row) for row in values.reshape(-1, values.shape[-1]).numpy()}
        if giver is None and not other_givers:
            return PLAIN
        measured = self._measured(giver) if giver and not other_givers else None
        return measured and measured.norm

    def behind(self, operand: frozenset[Mark], maps: frozenset[Mark], rows: Int[np.ndarray, "head d"]) -> Norm | None:
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

    def given(values: Mapping[str, torch.Tensor]) -> torch.Tensor:
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


def _is_centred(normalised: torch.Tensor, x: torch.Tensor) -> bool | None:
    """Return whether the output is a multiple of x minus its mean, rather than of x; None if it is neither."""
    for centred in (False, True):
        x_centred = x - x.mean(-1, keepdim=True) if centred else x
        factor = (normalised * x_centred).sum(-1, keepdim=True) / x_centred.square().sum(-1, keepdim=True)
        is_close = torch.allclose(factor * x_centred, normalised, rtol=_TOLERANCE, atol=_TOLERANCE)
        if is_close and bool((factor > 0).all()):
            return centred
    return None
