"""One chunk of a plan, computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmtbase.linalg import without_noise
from rmtbase.montecarlo._draws._elements import element_statistics_chunk
from rmtbase.montecarlo._draws._runner import draw_spectra
from rmtbase.montecarlo._plans._plan import Chunk, Plan
from rmtbase.statistics import SPECTRAL_STATISTICS, spectral_statistics

Arrays = dict[str, NDArray[Any]]

OF_THE_SMALLEST = ("smallest_eigenvalue", "condition_number", "log_determinant", "condition_number_singular")
"""The statistics that the smallest singular value decides, unknown where it is rounding."""


def compute_chunk(
    plan: Plan,
    chunk: Chunk,
    solver: str | None = None,
    cores: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Arrays:
    """The draws of one chunk: a function of the plan and the chunk alone, to the bit on one kind of machine.

    Args:
        plan: of the run.
        chunk: which draws.
        solver: name of the eigen-solver; chosen if None.
        cores: how many to use; all that the process may use if None.
        progress: called with the number of draws finished since the last call.

    Returns:
        For spectra ``statistic`` (statistic, draw), ``eigenvalue`` (rank, draw), descending, and ``norm_squared``
        (factor, draw), each factor at σ = 1, raw; for elements those of :func:`element_statistics_chunk`.

        NaN stands for eigenvalues that are rounding (s_k ≤ r ε s_1, as in deep residual paths), and for the statistics
        :data:`OF_THE_SMALLEST` of such a draw; the others do not feel them.
    """
    ensemble = plan.ensembles[chunk.case]
    if plan.measure == "elements":
        return element_statistics_chunk(
            ensemble, plan.seed, None, chunk.start, chunk.count, progress=progress, cores=cores
        )
    arrays = {
        "statistic": np.empty((len(SPECTRAL_STATISTICS), chunk.count)),
        "eigenvalue": np.empty((ensemble.rank, chunk.count)),
        "norm_squared": np.empty((len(ensemble.factor_sizes), chunk.count)),
    }
    of_the_smallest = [list(SPECTRAL_STATISTICS).index(name) for name in OF_THE_SMALLEST]
    parts = draw_spectra(
        ensemble,
        chunk.count,
        plan.seed,
        start=chunk.start,
        precision=plan.precision,  # type: ignore[arg-type]  # checked when the plan was made
        solver=solver,
        cores=cores,
        progress=progress,
    )
    for part in parts:
        first = part.start - chunk.start
        place = slice(first, first + len(part.singular_values))
        rounding = without_noise(part.singular_values) == 0.0
        statistic = spectral_statistics(part.singular_values)
        statistic[np.ix_(rounding.any(axis=1), of_the_smallest)] = np.nan
        arrays["statistic"][:, place] = statistic.T
        arrays["eigenvalue"][:, place] = np.where(rounding, np.nan, part.singular_values**2).T
        arrays["norm_squared"][:, place] = part.norm_squared.T
    return arrays
