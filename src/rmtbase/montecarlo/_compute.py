"""Computation of one chunk of a plan: contents, solver and draws."""

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmtbase.linalg import without_noise
from rmtbase.montecarlo._elements import ElementChunk, draw_elements, element_edges, require_element_ensemble
from rmtbase.montecarlo._plan import Chunk, Plan
from rmtbase.montecarlo._solver_choice import choose_solver
from rmtbase.montecarlo._spectra import draw_spectra
from rmtbase.progress import SILENT
from rmtbase.statistics import SPECTRAL_STATISTICS, spectral_statistics
from rmtbase.tables import ELEMENT_FORMULAS

Arrays = dict[str, NDArray[Any]]
Layout = Mapping[str, tuple[str, tuple[int, ...]]]
"""Name of an array -> its dtype, as NumPy writes it, and its shape."""

OF_THE_SMALLEST = ("smallest_eigenvalue", "condition_number", "log_determinant", "condition_number_singular")
"""Statistics that depend on the smallest singular value, and are unknown if it is rounding noise."""

_SILENT_BAR = SILENT.bar("drawing", 0)


def choose_solvers(plan: Plan, cores: int | None = None) -> list[str]:
    if plan.measure == "elements":
        return ["none"] * len(plan.cases)
    return [choose_solver(case.ensemble, plan.precision, cores=cores).name for case in plan.cases]


def chunk_layout(plan: Plan, chunk: Chunk) -> Layout:
    number = np.dtype(np.float64).str
    if plan.measure == "elements":
        counts = (np.dtype(np.int64).str, (plan.bins, chunk.count))
        return {"statistic": (number, (len(ELEMENT_FORMULAS), chunk.count)), "histogram": counts}
    ensemble = plan.cases[chunk.case].ensemble
    rows = len(SPECTRAL_STATISTICS), ensemble.rank, len(ensemble.factor_sizes)
    names = ("statistic", "eigenvalue", "norm_squared")
    return {name: (number, (length, chunk.count)) for name, length in zip(names, rows, strict=True)}


def compute_chunk(
    plan: Plan,
    chunk: Chunk,
    solver: str | None = None,
    cores: int | None = None,
    advance: Callable[[int], None] = _SILENT_BAR,
) -> Arrays:
    """Compute the draws of one chunk, which depend only on the plan and the chunk."""
    # Rounding noise (s_k ≤ r ε s_1, as in deep residual paths) is NaN, and so are the statistics OF_THE_SMALLEST of the
    # draw.
    ensemble, start = plan.cases[chunk.case].ensemble, chunk.start
    arrays = {name: np.empty(shape, dtype) for name, (dtype, shape) in chunk_layout(plan, chunk).items()}
    where: dict[str, Any] = {"start": start, "cores": cores}
    if plan.measure == "elements":
        edges = element_edges(require_element_ensemble(ensemble), plan.bins, plan.range)
        drawn = draw_elements(ensemble, chunk.count, plan.seed, edges, **where)
    else:
        drawn = draw_spectra(ensemble, chunk.count, plan.seed, precision=plan.precision, solver=solver, **where)
    of_the_smallest = [list(SPECTRAL_STATISTICS).index(name) for name in OF_THE_SMALLEST]
    with closing(drawn) as parts:  # an interrupt anywhere below also ends its threads
        for part in parts:
            if isinstance(part, ElementChunk):
                numbers = {"statistic": part.statistics, "histogram": part.histogram}
            else:
                values = part.singular_values
                rounding, statistic = without_noise(values) == 0.0, spectral_statistics(values)
                statistic[np.ix_(rounding.any(axis=1), of_the_smallest)] = np.nan
                eigenvalue = np.where(rounding, np.nan, values**2)
                numbers = {"statistic": statistic, "eigenvalue": eigenvalue, "norm_squared": part.norm_squared}
            count = len(numbers["statistic"])
            for name, rows in numbers.items():
                arrays[name][:, part.start - start : part.start - start + count] = rows.T
            advance(count)
    return arrays
