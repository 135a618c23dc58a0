"""Statistics of the elements of random matrices, drawn a few rows at a time without holding a whole matrix."""

from collections.abc import Generator
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Key
from numpy.typing import NDArray

from rmtbase import statistics
from rmtbase.ensembles import Ensemble
from rmtbase.errors import ParameterError
from rmtbase.linalg import available_cores, reproducible_jax
from rmtbase.montecarlo import _machine
from rmtbase.montecarlo._compiled_sampler import COMPILER_OPTIONS
from rmtbase.montecarlo._keys import case_key, require_indices
from rmtbase.montecarlo._machine import in_order
from rmtbase.parameters import require_bins, require_interval, require_positive_integer
from rmtbase.shown import in_one_line

Floats = NDArray[np.float64]

BINS = 120
_REACH = 6.0  # half width of the histogram, in standard deviations of one element


@runtime_checkable
class ElementEnsemble(Protocol):
    """Ensemble whose draws come in blocks of rows, which :meth:`rows` makes of the context of a draw."""

    @property
    def name(self) -> str: ...
    @property
    def element_shape(self) -> tuple[int, int]: ...
    @property
    def element_std(self) -> float: ...
    def row_context(self, key: Key[Array, ""]) -> Any: ...
    def rows(self, context: Any, start: ArrayLike, count: int) -> Float[Array, "{count} columns"]: ...


@in_one_line
class ElementChunk(NamedTuple):
    start: int  # index of the draw
    statistics: NDArray[np.float64]  # (1, statistic), in the order of ``tables.ELEMENT_FORMULAS``
    histogram: NDArray[np.int64]  # number of elements in each bin, (1, bin)


class _Sums(NamedTuple):  # that the device keeps of one matrix
    powers: Float[Array, " 4"]  # Σ(w - pivot)^k, k = 1, …, 4
    smallest: Float[Array, ""]
    largest: Float[Array, ""]
    histogram: Array  # the last entry counts elements outside
    magnitudes: tuple[Array, Array, Array]


def draw_elements(
    ensemble: ElementEnsemble | Ensemble,
    draws: int,
    seed: int,
    edges: NDArray[np.float64] | None = None,
    *,
    start: int = 0,
    cores: int | None = None,
    block: int = _machine.ELEMENTS_AT_ONCE,
) -> Generator[ElementChunk, None, None]:
    """Element statistics, and histograms of these edges, of draws start, …, start + draws - 1."""
    # Beside the whole matrix's, moments agree to 1e-12 of their scale, the Weibull fit to a relative 1e-6, usually
    # 1e-8.
    ensemble = require_element_ensemble(ensemble)
    first, draws = require_indices(start, draws)
    block = require_positive_integer("block", block)
    bins = element_edges(ensemble) if edges is None else edges
    key = case_key(seed, ensemble.name)
    cores = available_cores() if cores is None else _machine.require_workers("cores", cores)
    _machine.require_elements_fit(ensemble)
    at_once = max(1, min(cores, _machine.host_memory() // _machine.elements_bytes(ensemble)))

    def measured(draw: int) -> ElementChunk:
        with reproducible_jax():
            pivot, sums = _reduce(ensemble, key, np.uint32(draw), bins[0], bins[-1], bins.size - 1, block)
        numbers, histogram = _numbers(ensemble, pivot, sums, bins)
        return ElementChunk(draw, numbers[None], histogram[None])

    def chunks() -> Generator[ElementChunk, None, None]:
        with closing(in_order(measured, range(first, first + draws), at_once, at_once, "rmtbase-elements")) as drawn:
            for draw in drawn:
                yield draw.result()

    return chunks()


def element_edges(ensemble: ElementEnsemble, bins: int = BINS, range: tuple[float, float] | None = None) -> Floats:
    if range is None:
        reach = _REACH * ensemble.element_std
        if not np.isfinite(reach):
            expected = "(low, high): the elements have no standard deviation to derive it from"
            raise ParameterError("range", None, expected)
        range = (-reach, reach)
    return np.linspace(*require_interval("range", range), require_bins(bins) + 1)


def require_element_ensemble(ensemble: object) -> ElementEnsemble:
    if not isinstance(ensemble, ElementEnsemble):
        expected = "one whose matrix is drawn by rows, such as low_rank_product with method = 'dense'"
        raise ParameterError("ensemble", getattr(ensemble, "name", ensemble), expected)
    return ensemble


# One core per draw: sharing work among threads changes the order of XLA's additions, and is no faster.
@partial(jax.jit, static_argnames=("bins", "block"), compiler_options=COMPILER_OPTIONS)
def _reduce(
    ensemble: ElementEnsemble, key: Key[Array, ""], draw: ArrayLike, low: float, high: float, bins: int, block: int
) -> tuple[Array, _Sums]:
    context = ensemble.row_context(jax.random.fold_in(key, draw))
    rows, columns = ensemble.element_shape
    # The largest divisor of ``rows`` in the upper half of the allowed range, or else the range's maximum.
    most = max(1, block // columns)
    allowed = range(min(rows, most), most // 2, -1)
    count = next((count for count in allowed if rows % count == 0), allowed.start)
    pivot = jnp.mean(ensemble.rows(context, 0, 1).astype(float))

    def add(sums: _Sums, start: ArrayLike, count: int) -> _Sums:
        w = ensemble.rows(context, start, count).astype(float).reshape(-1)
        deviation = w - pivot
        square = deviation * deviation
        powers = [power.sum() for power in (deviation, square, square * deviation, square * square)]
        inside = (w >= low) & (w <= high)
        place = jnp.where(inside, jnp.minimum(jnp.floor((w - low) * (bins / (high - low))), bins - 1), bins)
        bits = jax.lax.bitcast_convert_type(jnp.abs(w), jnp.int64)
        bin_, distance = statistics.magnitude_bins(bits)
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

    nothing = jnp.zeros(statistics.MAGNITUDE_BINS, dtype=jnp.int64)
    extremes, histogram = (jnp.asarray(jnp.inf), jnp.asarray(-jnp.inf)), jnp.zeros(bins + 1, dtype=jnp.int64)
    empty = _Sums(jnp.zeros(4), *extremes, histogram, (nothing, nothing, nothing))
    sums = jax.lax.fori_loop(0, rows // count, lambda i, sums: add(sums, i * count, count), empty)
    left = rows % count
    return pivot, add(sums, rows - left, left) if left else sums


def _numbers(ensemble: ElementEnsemble, pivot: Array, device: _Sums, edges: Floats) -> tuple[Floats, NDArray[np.int64]]:
    rows, columns = ensemble.element_shape
    sums = jax.tree.map(np.asarray, device)
    if not np.isfinite(sums.powers).all():
        raise ParameterError("ensemble", ensemble.name, "elements that are finite, with finite fourth powers")
    extremes = float(sums.smallest), float(sums.largest)
    central = statistics.CentralSums.about(float(pivot), rows * columns, sums.powers.tolist(), *extremes)
    moments, counts, spread = central.moments(), sums.histogram[:-1], central.root_mean_square
    weibull = statistics.weibull_fit_of_bins(statistics.SignedBins.of_magnitudes(*sums.magnitudes), spread)
    numbers = [
        *(moments.mean, moments.std, moments.skewness, moments.excess_kurtosis, moments.largest_magnitude),
        *(statistics.entropy_of_counts(counts, edges), statistics.kl_of_counts(counts, edges, spread)),
        *(weibull.shape, weibull.scale, weibull.r_squared),
    ]
    return np.array(numbers), counts
