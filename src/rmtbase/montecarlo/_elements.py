"""Statistics of the elements of random matrices, drawn a few rows at a time without holding a whole matrix."""

from __future__ import annotations

import builtins
from collections.abc import Generator
from contextlib import closing
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Key
from numpy.typing import NDArray

from rmtbase.ensembles import Ensemble
from rmtbase.errors import ParameterError
from rmtbase.linalg import available_cores, reproducible_jax
from rmtbase.montecarlo._compiled_sampler import COMPILER_OPTIONS
from rmtbase.montecarlo._keys import case_key, require_indices
from rmtbase.montecarlo._machine import in_order
from rmtbase.montecarlo._memory import (
    ELEMENTS_AT_ONCE,
    elements_bytes,
    host_memory,
    require_elements_fit,
    require_workers,
)
from rmtbase.parameters import require_bins, require_interval, require_positive_integer
from rmtbase.progress import SILENT, Progress
from rmtbase.shown import in_one_line
from rmtbase.statistics import (
    MAGNITUDE_BINS,
    CentralSums,
    SignedBins,
    entropy_of_counts,
    kl_of_counts,
    magnitude_bins,
    weibull_fit_of_bins,
)

BINS = 120
_REACH = 6.0  # half width of the histogram, in standard deviations of one element


@runtime_checkable
class ElementEnsemble(Protocol):
    """Ensemble whose draws come in blocks of rows."""

    @property
    def name(self) -> str:
        """Name, as of an :class:`~rmtbase.ensembles.Ensemble`."""
        ...

    @property
    def element_shape(self) -> tuple[int, int]:
        """(rows, columns) of the whole matrix."""
        ...

    @property
    def element_std(self) -> float:
        """Standard deviation of one element."""
        ...

    def row_context(self, key: Key[Array, ""]) -> Any:
        """Return the input of :meth:`rows` for one draw, a pytree."""
        ...

    def rows(self, context: Any, start: ArrayLike, count: int) -> Float[Array, "{count} columns"]:
        """Rows ``start``, …, ``start + count - 1`` of the draw."""
        ...


@in_one_line
class ElementChunk(NamedTuple):
    """Element statistics of consecutive draws."""

    start: int  # index of the first draw
    statistics: NDArray[np.float64]  # (draw, statistic), in the order of ``tables.ELEMENT_FORMULAS``
    histogram: NDArray[np.int64]  # number of elements in each bin, (draw, bin)


class _Sums(NamedTuple):
    """Sums and counts that the device keeps of one matrix."""

    powers: Float[Array, " 4"]  # Σ(w - pivot)^k, k = 1, …, 4
    smallest: Float[Array, ""]
    largest: Float[Array, ""]
    histogram: Array  # the last entry counts elements outside
    magnitudes: tuple[Array, Array, Array]


def draw_elements(
    ensemble: ElementEnsemble | Ensemble,
    draws: int,
    seed: int,
    case: str | None = None,
    bins: int = BINS,
    range: tuple[float, float] | None = None,
    *,
    start: int = 0,
    chunk: int = 1,
    cores: int | None = None,
    block: int = ELEMENTS_AT_ONCE,
    progress: Progress = SILENT,
) -> Generator[ElementChunk, None, None]:
    """Element statistics of draws start, …, start + draws - 1.

    Each matrix is drawn and reduced in blocks of rows, ``block`` elements or one row if that is longer, in one compiled
    function. The result depends only on (seed, case, draw). Compared with the statistics of the whole matrix, counts
    and extremes are equal (except for an element within rounding of a bin's edge), moments agree to 1e-12 of their
    scale, and the Weibull fit agrees to a relative 1e-6, usually 1e-8 (``statistics.weibull_fit_of_bins``).

    Memory does not grow with the draws. As many matrices as cores are drawn at a time, each with its factors and some
    10 MB; the results of a chunk take 8 bytes for each statistic and bin of its draws.
    """
    ensemble = require_element_ensemble(ensemble)
    first, draws = require_indices(start, draws)
    chunk, block = require_positive_integer("chunk", chunk), require_positive_integer("block", block)
    edges = element_edges(ensemble, bins, range)
    key = case_key(seed, ensemble.name if case is None else case)
    cores = available_cores() if cores is None else require_workers("cores", cores)
    require_elements_fit(ensemble)
    at_once = max(1, min(cores, host_memory() // elements_bytes(ensemble)))

    def measured(draw: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        with reproducible_jax():
            pivot, sums = _reduce(ensemble, key, np.uint32(draw), edges[0], edges[-1], edges.size - 1, block)
        return _numbers(ensemble, pivot, sums, edges)

    def chunks() -> Generator[ElementChunk, None, None]:
        indices, advance = builtins.range(first, first + draws), progress.bar("drawing", draws)
        with closing(in_order(measured, indices, at_once, at_once, "rmtbase-elements")) as drawn:
            for begin in indices[::chunk]:
                rows = [draw.result() for draw in islice(drawn, chunk)]
                statistics, histogram = zip(*rows, strict=True)
                yield ElementChunk(begin, np.stack(statistics), np.stack(histogram))
                advance(len(rows))

    return chunks()


def element_edges(
    ensemble: ElementEnsemble, bins: int = BINS, range: tuple[float, float] | None = None
) -> NDArray[np.float64]:
    """Edges of the histogram's equal bins, (bin + 1,)."""
    if range is None:
        reach = _REACH * ensemble.element_std
        if not np.isfinite(reach):
            raise ParameterError(
                "range", None, "(low, high): the elements have no standard deviation to derive it from"
            )
        range = (-reach, reach)
    return np.linspace(*require_interval("range", range), require_bins(bins) + 1)


def require_element_ensemble(ensemble: object) -> ElementEnsemble:
    """Return the ensemble; raise :class:`~rmtbase.errors.ParameterError` if its matrices cannot be drawn by rows."""
    if not isinstance(ensemble, ElementEnsemble):
        name = getattr(ensemble, "name", ensemble)
        raise ParameterError(
            "ensemble", name, "one whose matrix is drawn by rows, such as low_rank_product with method = 'dense'"
        )
    return ensemble


# One core per draw: sharing work among threads changes the order of XLA's additions, and is no faster.
@partial(jax.jit, static_argnames=("bins", "block"), compiler_options=COMPILER_OPTIONS)
def _reduce(
    ensemble: ElementEnsemble, key: Key[Array, ""], draw: ArrayLike, low: float, high: float, bins: int, block: int
) -> tuple[Array, _Sums]:
    """Return a pivot near the mean, and the sums of one draw about it."""
    context = ensemble.row_context(jax.random.fold_in(key, draw))
    rows, columns = ensemble.element_shape
    count = _rows_at_a_time(rows, max(1, block // columns))
    pivot = jnp.mean(ensemble.rows(context, 0, 1).astype(float))

    def add(sums: _Sums, start: ArrayLike, count: int) -> _Sums:
        w = ensemble.rows(context, start, count).astype(float).reshape(-1)
        deviation = w - pivot
        square = deviation * deviation
        powers = [power.sum() for power in (deviation, square, square * deviation, square * square)]
        inside = (w >= low) & (w <= high)
        place = jnp.where(inside, jnp.minimum(jnp.floor((w - low) * (bins / (high - low))), bins - 1), bins)
        bits = jax.lax.bitcast_convert_type(jnp.abs(w), jnp.int64)
        bin_, distance = magnitude_bins(bits)
        bin_ = bin_.astype(jnp.int32)
        number, first, second = sums.magnitudes
        return _Sums(
            powers=sums.powers + jnp.stack(powers),
            smallest=jnp.minimum(sums.smallest, w.min()),
            largest=jnp.maximum(sums.largest, w.max()),
            histogram=tally(sums.histogram, place.astype(jnp.int32), 1),
            magnitudes=(tally(number, bin_, 1), tally(first, bin_, distance), tally(second, bin_, distance * distance)),
        )

    def tally(totals: Array, place: Array, amount: Array | int) -> Array:
        return totals.at[place].add(amount, mode="promise_in_bounds")

    nothing = jnp.zeros(MAGNITUDE_BINS, dtype=jnp.int64)
    empty = _Sums(
        powers=jnp.zeros(4),
        smallest=jnp.asarray(jnp.inf),
        largest=jnp.asarray(-jnp.inf),
        histogram=jnp.zeros(bins + 1, dtype=jnp.int64),
        magnitudes=(nothing, nothing, nothing),
    )
    sums = jax.lax.fori_loop(0, rows // count, lambda i, sums: add(sums, i * count, count), empty)
    left = rows % count
    return pivot, add(sums, rows - left, left) if left else sums


def _rows_at_a_time(rows: int, most: int) -> int:
    """Return the largest divisor of ``rows`` in the upper half of the allowed range, or else the range's maximum."""
    allowed = range(min(rows, most), most // 2, -1)
    return next((count for count in allowed if rows % count == 0), allowed.start)


def _numbers(
    ensemble: ElementEnsemble, pivot: Array, reduced: _Sums, edges: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the statistics of one draw, and its histogram."""
    rows, columns = ensemble.element_shape
    sums = jax.tree.map(np.asarray, reduced)
    if not np.isfinite(sums.powers).all():
        raise ParameterError("ensemble", ensemble.name, "elements that are finite, with finite fourth powers")
    extremes = float(sums.smallest), float(sums.largest)
    central = CentralSums.about(float(pivot), rows * columns, sums.powers.tolist(), *extremes)
    moments, counts, spread = central.moments(), sums.histogram[:-1], central.root_mean_square
    weibull = weibull_fit_of_bins(SignedBins.of_magnitudes(*sums.magnitudes), spread)
    statistics = (
        moments.mean,
        moments.std,
        moments.skewness,
        moments.excess_kurtosis,
        moments.largest_magnitude,
        entropy_of_counts(counts, edges),
        kl_of_counts(counts, edges, spread),
        weibull.shape,
        weibull.scale,
        weibull.r_squared,
    )
    return np.array(statistics), counts
