"""One chunk of a plan, computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmtbase.montecarlo._draws._elements import element_statistics_chunk
from rmtbase.montecarlo._draws._runner import draw_spectra
from rmtbase.montecarlo._plans._plan import Chunk, Plan
from rmtbase.statistics import SPECTRAL_STATISTICS, spectral_statistics

Arrays = dict[str, NDArray[Any]]


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
        arrays["statistic"][:, place] = spectral_statistics(part.singular_values).T
        arrays["eigenvalue"][:, place] = part.singular_values.T**2
        arrays["norm_squared"][:, place] = part.norm_squared.T
    return arrays
