"""What one chunk of a plan holds, with which solver it is computed, and its computation."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmtbase.linalg import without_noise
from rmtbase.montecarlo._chunks import Chunk
from rmtbase.montecarlo._elements import BINS, element_statistics_chunk
from rmtbase.montecarlo._plan import Plan
from rmtbase.montecarlo._solver_choice import choose_solver
from rmtbase.montecarlo._spectra import draw_spectra
from rmtbase.statistics import SPECTRAL_STATISTICS, spectral_statistics
from rmtbase.tables import ELEMENT_FORMULAS

Arrays = dict[str, NDArray[Any]]
Layout = dict[str, tuple[str, tuple[int, ...]]]
"""Name of an array -> its dtype, as NumPy writes it, and its shape."""

OF_THE_SMALLEST = ("smallest_eigenvalue", "condition_number", "log_determinant", "condition_number_singular")
"""The statistics that the smallest singular value decides, unknown where it is rounding."""


def choose_solvers(plan: Plan, cores: int | None = None) -> list[str]:
    """The solver of each case, chosen where it will be used; none for elements, whose spectra nobody asks for."""
    if plan.measure == "elements":
        return ["none"] * len(plan.cases)
    return [choose_solver(ensemble, plan.precision, cores=cores).name for ensemble in plan.ensembles]


def chunk_layout(plan: Plan, chunk: Chunk) -> Layout:
    """What :func:`compute_chunk` gives for a chunk."""
    number, count = np.dtype(np.float64).str, chunk.count
    if plan.measure == "elements":
        histogram = (np.dtype(np.int64).str, (BINS, count))
        return {"statistic": (number, (len(ELEMENT_FORMULAS), count)), "histogram": histogram}
    ensemble = plan.ensembles[chunk.case]
    rows = {
        "statistic": len(SPECTRAL_STATISTICS),
        "eigenvalue": ensemble.rank,
        "norm_squared": len(ensemble.factor_sizes),
    }
    return {name: (number, (length, count)) for name, length in rows.items()}


def compute_chunk(
    plan: Plan,
    chunk: Chunk,
    solver: str | None = None,
    cores: int | None = None,
    advance: Callable[[int], None] = lambda count: None,
) -> Arrays:
    """The draws of one chunk: a function of the plan and the chunk alone, to the bit on one kind of machine.

    Args:
        plan: of the run.
        chunk: which draws.
        solver: name of the eigen-solver; chosen if None.
        cores: how many to use; all that the process may use if None.
        advance: called with the number of draws finished since the last call.

    Returns:
        For spectra ``statistic`` (statistic, draw), ``eigenvalue`` (rank, draw), descending, and ``norm_squared``
        (factor, draw), each factor at σ = 1, raw; for elements those of :func:`element_statistics_chunk`.

        NaN stands for eigenvalues that are rounding (s_k ≤ r ε s_1, as in deep residual paths), and for the statistics
        :data:`OF_THE_SMALLEST` of such a draw; the others do not feel them.
    """
    ensemble = plan.ensembles[chunk.case]
    if plan.measure == "elements":
        return element_statistics_chunk(
            ensemble, plan.seed, None, chunk.start, chunk.count, advance=advance, cores=cores
        )
    arrays = {name: np.empty(shape, dtype) for name, (dtype, shape) in chunk_layout(plan, chunk).items()}
    of_the_smallest = [list(SPECTRAL_STATISTICS).index(name) for name in OF_THE_SMALLEST]
    drawn = draw_spectra(
        ensemble,
        chunk.count,
        plan.seed,
        start=chunk.start,
        precision=plan.precision,  # type: ignore[arg-type]  # checked when the plan was made
        solver=solver,
        cores=cores,
    )
    with closing(drawn) as parts:  # an interrupt anywhere below ends its threads, too
        for part in parts:
            first = part.start - chunk.start
            place = slice(first, first + len(part.singular_values))
            rounding = without_noise(part.singular_values) == 0.0
            statistic = spectral_statistics(part.singular_values)
            statistic[np.ix_(rounding.any(axis=1), of_the_smallest)] = np.nan
            arrays["statistic"][:, place] = statistic.T
            arrays["eigenvalue"][:, place] = np.where(rounding, np.nan, part.singular_values**2).T
            arrays["norm_squared"][:, place] = part.norm_squared.T
            advance(len(part.singular_values))
    return arrays
