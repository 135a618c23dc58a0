"""The elements of a matrix as fits take them: checked, in blocks of doubles, with a spread of about 1."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray

from rmtbase.errors import ParameterError
from rmtbase.parameters import require_real_array

_BLOCK = 1 << 13  # elements widened to float64 at a time: they stay in the cache, and BLAS adds them up in one thread
_SAMPLE = 1 << 17  # elements from which a fit's first steps are taken
_WIDEST = 1e40  # spreads: with a scale down to 1e-9 of them, sums of sixth powers of elements are doubles
_NORMAL_QUARTILE = 0.6744897501960817


@dataclass(frozen=True)
class Elements:
    """n elements w of any real dtype.

    Attributes:
        flat: the elements, in the order in which they lie in memory.
        centre, spread: median and deviation, the latter from the quartiles, of a sample; z = (w - centre)/spread.
    """

    flat: NDArray
    centre: float
    spread: float

    @property
    def count(self) -> int:
        """The number n."""
        return self.flat.size

    def standardized(self) -> Iterator[Float[np.ndarray, " number"]]:
        """All z, block by block."""
        for block in _blocks(self.flat):
            yield (block - self.centre) / self.spread

    def sample(self) -> Elements:
        """At most 2¹⁷ of the elements, spread over the whole matrix."""
        return Elements(_sample(self.flat), self.centre, self.spread)

    def mean_of(self, terms: Callable[[Float[np.ndarray, " number"]], Any]) -> Float[np.ndarray, "..."]:
        """Mean over all z of functions of one z; ``terms`` maps a block to their sums over the block."""
        return np.sum([terms(z) for z in self.standardized()], axis=0) / self.count


def require_elements(matrix: ArrayLike) -> Elements:
    """The elements of a matrix, or a ParameterError unless they are real, finite and not all equal."""
    array = require_real_array("matrix", matrix)
    flat = array.ravel(order="K")
    if flat.size == 0:
        raise ParameterError("matrix", f"shape {array.shape}", "at least two elements")
    finite, low, high = 0, np.inf, -np.inf
    for block in _blocks(flat):
        finite += int(np.count_nonzero(np.isfinite(block)))
        low, high = min(low, block.min()), max(high, block.max())
    if finite < flat.size:
        raise ParameterError("matrix", f"{flat.size - finite} of {flat.size} elements not finite", "finite elements")
    if low == high:
        raise ParameterError("matrix", f"{flat.size} elements, all {low:g}", "elements that are not all equal")
    lower, centre, upper = np.quantile(_sample(flat).astype(np.float64), (0.25, 0.5, 0.75))
    spread = (upper - lower) / (2 * _NORMAL_QUARTILE)
    if spread == 0:  # half of the sample or more is one value
        spread = np.sqrt(np.mean([np.mean(((block - centre) / (high - low)) ** 2) for block in _blocks(flat)]))
        spread *= high - low
    if max(high - centre, centre - low) > _WIDEST * spread:
        raise ParameterError(
            "matrix", f"elements from {low:g} to {high:g}", f"none beyond {_WIDEST:g} times their spread"
        )
    return Elements(flat, float(centre), float(spread))


def _sample(flat: NDArray) -> NDArray:
    step = -(-flat.size // _SAMPLE) | 1  # odd: it shares no factor with the usual widths, and meets all columns
    return flat[::step]


def _blocks(flat: NDArray) -> Iterator[Float[np.ndarray, " number"]]:
    for start in range(0, flat.size, _BLOCK):
        yield flat[start : start + _BLOCK].astype(np.float64)
