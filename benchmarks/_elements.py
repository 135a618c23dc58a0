"""Statistics of the elements of one W_QK: streamed by rows, the naive way, and the bare matrix product below both.

Each way runs in a process of its own, for its peak memory; ``measure`` gives seconds per matrix. The naive way forms
the matrix and asks NumPy and SciPy for the same numbers: histogram, moments, and the Weibull fit by sorting.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from _machine import recorded, run_process


def measure(d_model: int = 4096, d_head: int = 128, draws: int = 8) -> dict[str, dict[str, Any]]:
    """Seconds and processor seconds per matrix, and the peak memory of the process, of each way."""
    found = {}
    for way in WAYS:
        run = run_process([sys.executable, __file__, way, str(d_model), str(d_head), str(draws)])
        found[way] = recorded(run) | json.loads(run.output)
    return found


def _product(d_model: int, d_head: int, draws: int) -> Callable[[], object]:
    q, k = _factors(d_model, d_head)
    out = np.empty((d_model, d_model))
    return lambda: [np.matmul(q, k, out=out) for _ in range(draws)]


def _naive(d_model: int, d_head: int, draws: int) -> Callable[[], object]:
    from scipy import stats

    from rmtbase.laws import weibull_fit

    def one() -> None:
        q, k = _factors(d_model, d_head)
        w = (q @ k).ravel()
        reach = 6 * d_head**0.5
        np.histogram(w, 120, (-reach, reach))
        _ = w.mean(), w.std(ddof=1), stats.skew(w), stats.kurtosis(w), np.abs(w).max(), weibull_fit(w)

    return lambda: [one() for _ in range(draws)]


def _streamed(d_model: int, d_head: int, draws: int) -> Callable[[], object]:
    from rmtbase.ensembles import low_rank_product
    from rmtbase.montecarlo import draw_elements

    ensemble = low_rank_product(d_model, d_head, method="dense")
    next(draw_elements(ensemble, 1, 0))  # compiled before it is timed
    return lambda: list(draw_elements(ensemble, draws, 0))


def _factors(d_model: int, d_head: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((d_model, d_head)), rng.standard_normal((d_head, d_model))


WAYS = {"product": _product, "naive": _naive, "streamed": _streamed}


def _main(way: str, *numbers: str) -> None:
    d_model, d_head, draws = map(int, numbers)
    call = WAYS[way](d_model, d_head, draws)
    if way == "product":
        call()
    begin, own = time.perf_counter(), time.process_time()
    call()
    seconds, own = time.perf_counter() - begin, time.process_time() - own
    print(json.dumps({"seconds_per_matrix": seconds / draws, "cpu_seconds_per_matrix": own / draws}))


if __name__ == "__main__":
    _main(*sys.argv[1:])
