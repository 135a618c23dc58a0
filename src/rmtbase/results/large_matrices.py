"""Estimate of the time that large matrices take, from a trial of small ones on this machine."""

import time
from collections.abc import Callable, Iterable

import numpy as np

from rmtbase.linalg import available_cores, matrix_singular_values
from rmtbase.models import WeightMatrices, opened_from
from rmtbase.progress import Progress

_TRIAL, _BLOCK = 512, 4096  # rows and columns of the matrix that is tried, and rows of one whose elements are
_LARGE_ELEMENTS, _LARGE_PRODUCTS = 10**9, 10**12  # work below which nothing is tried: seconds


def tell_of_large(
    model: WeightMatrices,
    components: Iterable[str] | None,
    progress: Progress,
    times: int,
    trial: Callable[..., object],
) -> None:
    """Note, before large matrices are read, how many there are and about how long they will take."""
    shapes = [shape for part in opened_from(model) for shape in part.layer_shapes(components)]
    elements = sum(rows * columns for rows, columns in shapes)
    products = times * sum(rows * columns * min(rows, columns) for rows, columns in shapes)
    if elements < _LARGE_ELEMENTS and products < _LARGE_PRODUCTS:
        return
    block = np.random.default_rng(0).standard_normal((_BLOCK, _TRIAL), dtype=np.float32)
    seconds = elements / block.size * _seconds(lambda: trial(block)) / available_cores()
    if times:
        square = block[:_TRIAL].astype(np.float64)
        seconds += products / _TRIAL**3 * _seconds(lambda: matrix_singular_values(square))
    words = f"{max(seconds, 1.0):.0f} s"
    for unit, size in (("min", 60.0), ("h", 3600.0)):
        if seconds >= 1.5 * size:
            words = f"{seconds / size:.2g} {unit}" if seconds < 100 * size else f"{seconds / size:.0f} {unit}"
    rows, columns = max(shapes, key=lambda shape: shape[0] * shape[1])
    progress.note(
        f"{len(shapes)} matrices of {elements:.2g} elements will be read, the largest {rows} × {columns}: "
        f"{'their spectra' if times else 'their elements'} take about {words}, by a trial of a small one"
    )


def _seconds(work: Callable[[], object]) -> float:
    """Time the second of two runs, as the first also loads libraries."""
    work()
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin
