"""The summary of a sample that is read again and again instead of being held: exact, in memory that does not grow."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rmtbase.errors import ParameterError
from rmtbase.parameters import require_real_numbers
from rmtbase.statistics._sample import SampleSummary

Array = NDArray[np.float64]
Keys = NDArray[np.uint64]
Blocks = Callable[[], Iterable[Array]]

_HELD = 1 << 14  # a cell of no more numbers than this is read as it is; a larger one is cut into smaller ones
_MOST_BITS = 14  # a cell is cut into 2^14 at most
_SIGN = np.uint64(1 << 63)


def summarize_stream(blocks: Blocks, probabilities: ArrayLike) -> SampleSummary:
    """As :func:`summarize`, of a sample that comes in blocks and is never held.

    Moments are sums about the mean of the first block, in units of its standard deviation. Quantiles are those of
    ``numpy.quantile``, to the bit, from :func:`quantiles_of_stream`.

    Args:
        blocks: called for each reading; yields the same arrays (row, draw) every time, some draws each. How the draws
            are cut into blocks shows in the rounding of the moments.
        probabilities: of the quantiles.

    Returns:
        Of every row: arrays (row,) and (row, probability).

    Raises:
        ParameterError: fewer than two draws; blocks or probabilities that are masked or no real numbers.
    """
    moments = _moments(blocks)
    return SampleSummary(*moments.summary(), _quantiles(blocks, probabilities, moments))


def quantiles_of_stream(blocks: Blocks, probabilities: ArrayLike) -> Array:
    """Quantiles (row, probability) of a sample that comes in blocks: ``numpy.quantile``'s, to the bit.

    Two readings or three: the numbers of each row are counted in cells of their range, and those of the cells that hold
    a wanted order statistic are collected; a cell that holds too many is counted in smaller ones first.

    Args:
        blocks: called for each reading; yields the same arrays (row, draw) every time.
        probabilities: between 0 and 1.

    Raises:
        ParameterError: fewer than two draws; blocks or probabilities that are masked or no real numbers.
    """
    return _quantiles(blocks, probabilities, _moments(blocks))


@dataclass(frozen=True)
class _Moments:
    """Power sums of one reading.

    Attributes:
        draws: how many.
        origin, unit: sums are those of x = (value - origin) / unit; (row,).
        sums: Σx, Σx², Σx³, Σx⁴, (4, row).
        smallest, largest: (row,); NaN where there is any.
    """

    draws: int
    origin: Array
    unit: Array
    sums: Array
    smallest: Array
    largest: Array

    def summary(self) -> tuple[Array, Array, Array, Array]:
        """Mean, standard deviation and the standard errors of both."""
        n = self.draws
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            m1, m2, m3, m4 = self.sums / n
            variance = np.maximum(m2 - m1**2, 0.0)
            fourth = m4 - 4 * m1 * m3 + 6 * m1**2 * m2 - 3 * m1**4
            unbiased = variance * n / (n - 1)
            std = self.unit * np.sqrt(unbiased)
            relative = np.where(unbiased > 0, fourth / unbiased**2 - (n - 3) / (n - 1), 0.0)
            std_error = 0.5 * std * np.sqrt(np.maximum(relative, 0.0) / n)
            return self.origin + self.unit * m1, std, std / np.sqrt(n), std_error


def _moments(blocks: Blocks) -> _Moments:
    found: _Moments | None = None
    for part in blocks():
        block = require_real_numbers("blocks", part)
        with np.errstate(invalid="ignore", over="ignore"):
            if found is None:
                origin, unit = block.mean(axis=1), block.std(axis=1)
                origin = np.where(np.isfinite(origin), origin, 0.0)
                unit = np.where(np.isfinite(unit) & (unit > 0), unit, 1.0)
                found = _Moments(0, origin, unit, np.zeros((4, len(block))), block[:, 0], block[:, 0])
            x = (block - found.origin[:, None]) / found.unit[:, None]
            square = x * x
            sums = np.stack([power.sum(axis=1) for power in (x, square, square * x, square * square)])
        found = _Moments(
            found.draws + block.shape[1],
            found.origin,
            found.unit,
            found.sums + sums,
            np.minimum(found.smallest, block.min(axis=1)),
            np.maximum(found.largest, block.max(axis=1)),
        )
    if found is None or found.draws < 2:
        raise ParameterError("draws", found.draws if found else 0, "at least 2 (a standard error needs a spread)")
    return found


@dataclass(frozen=True)
class _Cell:
    """The numbers of one row whose keys are low, …, low + 2^bits - 1.

    Attributes:
        row: whose.
        low: the smallest key.
        bits: of its width.
        below: how many numbers of the row lie under it.
        count: how many in it.
        ranks: the order statistics of the row that are looked for in it, from 0.
    """

    row: int
    low: int
    bits: int
    below: int
    count: int
    ranks: NDArray[np.int64]

    @property
    def cut(self) -> int:
        """Bits of the number of parts that it is cut into: some dozens of numbers in each."""
        return min(max(self.count.bit_length() - 6, 4), _MOST_BITS)

    @property
    def part_bits(self) -> int:
        """Of the width of a part."""
        return max(self.bits - self.cut, 0)


def _quantiles(blocks: Blocks, probabilities: ArrayLike, moments: _Moments) -> Array:
    position = (moments.draws - 1) * require_real_numbers("probabilities", probabilities)
    lower = np.floor(position).astype(np.int64)
    upper = np.minimum(lower + 1, moments.draws - 1)
    ranks, place = np.unique(np.concatenate([lower, upper]), return_inverse=True)
    found = _order_statistics(blocks, ranks, moments)[:, place]
    return _between(found[:, : lower.size], found[:, lower.size :], np.asarray(position - lower, dtype=float))


def _between(lower: Array, upper: Array, share: Array) -> Array:
    """Linear interpolation, from the nearer end: its rounding is then NumPy's."""
    with np.errstate(invalid="ignore"):
        step = upper - lower
        return np.where(share < 0.5, lower + step * share, upper - step * (1 - share))


def _order_statistics(blocks: Blocks, ranks: NDArray[np.int64], moments: _Moments) -> Array:
    """The order statistics of those ranks, from 0, of each row: (row, rank)."""
    found = np.full((moments.smallest.size, ranks.size), np.nan)
    lows, highs = _keys(moments.smallest), _keys(moments.largest)
    cells = [
        _Cell(row, int(low), (int(high) - int(low)).bit_length(), 0, moments.draws, ranks)
        for row, (low, high) in enumerate(zip(lows, highs, strict=True))
        if not np.isnan(moments.smallest[row])
    ]
    while cells:
        held, cut = [], []
        for cell in cells:
            if cell.bits == 0:  # all its numbers are equal
                _fill(found, ranks, cell, np.full(cell.ranks.size, cell.low, dtype=np.uint64))
            else:
                (held if cell.count <= _HELD else cut).append(cell)
        collected, counts = _read(blocks, held, cut)
        for cell, keys in zip(held, collected, strict=True):
            wanted = cell.ranks - cell.below
            keys.partition(wanted)
            _fill(found, ranks, cell, keys[wanted])
        cells = [piece for cell, one in zip(cut, counts, strict=True) for piece in _pieces(cell, one)]
    return found


def _fill(found: Array, ranks: NDArray[np.int64], cell: _Cell, keys: Keys) -> None:
    found[cell.row, np.searchsorted(ranks, cell.ranks)] = _values(keys)


def _pieces(cell: _Cell, counts: NDArray[np.int64]) -> list[_Cell]:
    """Those of the parts of a cell that hold a wanted rank."""
    below = cell.below + np.concatenate([[0], np.cumsum(counts)])
    part = np.searchsorted(below, cell.ranks, side="right") - 1
    width = cell.part_bits
    return [
        _Cell(cell.row, cell.low + (int(k) << width), width, int(below[k]), int(counts[k]), cell.ranks[part == k])
        for k in np.unique(part)
    ]


def _read(blocks: Blocks, held: list[_Cell], cut: list[_Cell]) -> tuple[list[Keys], list[NDArray[np.int64]]]:
    """One reading: all keys of the cells that are held, and the counts in the parts of those that are cut."""
    collected = [np.empty(cell.count, dtype=np.uint64) for cell in held]
    counts = [np.zeros(1 << cell.cut, dtype=np.int64) for cell in cut]
    filled = [0] * len(held)
    rows: dict[int, list[tuple[_Cell, int]]] = {}
    for number, cell in enumerate([*held, *cut]):
        rows.setdefault(cell.row, []).append((cell, number))
    for block in blocks() if rows else ():
        for row, cells in rows.items():
            is_sorted = len(cells) > 1  # then each cell is a slice
            keys = np.sort(_keys(block[row])) if is_sorted else _keys(block[row])
            for cell, number in cells:
                inside = _inside(keys, cell, is_sorted)
                if number < len(held):
                    collected[number][filled[number] : filled[number] + inside.size] = inside
                    filled[number] += inside.size
                else:
                    part = (inside - np.uint64(cell.low)) >> np.uint64(cell.part_bits)
                    counts[number - len(held)] += np.bincount(part.astype(np.int64), minlength=1 << cell.cut)
    return collected, counts


def _inside(keys: Keys, cell: _Cell, is_sorted: bool) -> Keys:
    first, last = np.uint64(cell.low), np.uint64(min(cell.low + (1 << cell.bits), 1 << 64) - 1)
    if is_sorted:
        return keys[int(keys.searchsorted(first)) : int(keys.searchsorted(last, "right"))]
    return keys[(keys >= first) & (keys <= last)]


def _keys(values: Array) -> Keys:
    """Integers in the order of the numbers: ±0 alike."""
    bits = np.ascontiguousarray(values + 0.0).view(np.uint64)
    return np.where(bits >= _SIGN, ~bits, bits | _SIGN)


def _values(keys: Keys) -> Array:
    return np.where(keys >= _SIGN, keys & ~_SIGN, ~keys).view(np.float64)
