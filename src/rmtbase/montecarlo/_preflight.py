"""Memory and disk space that a run needs, checked before anything is drawn."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from pathlib import Path

from rmtbase.errors import OutputError, ParameterError
from rmtbase.executors import Executor, LocalProcesses, Scheduler
from rmtbase.montecarlo._compute import chunk_layout
from rmtbase.montecarlo._memory import (
    binary_size,
    elements_bytes,
    host_memory,
    require_draw_fits,
    require_elements_fit,
    require_results_fit,
    spectrum_bytes,
)
from rmtbase.montecarlo._plan import Chunk, Plan

_HEADER = 512  # approximate bytes of a chunk's file before its numbers
_PACKED = 3  # copies of a chunk in memory while it is written: its arrays, their bytes, the file's
_JOINED = 2  # copies of a table's sample in memory while its cases are joined
_COMPRESSED = 0.75  # smallest compressed share of a sample: the digits of random numbers have no pattern
_WORKER = 2**28  # bytes of a worker process before it has drawn anything


def require_possible_in_memory(plan: Plan) -> None:
    """Refuse a run in memory whose draws do not fit there."""
    _require_draws_fit(plan)
    drawn = sum(case.draws * size for case, size in zip(plan.cases, _draw_bytes(plan), strict=True))
    most = max(plan.draws)
    require_results_fit(most, math.ceil((drawn + _JOINED * _table_bytes(plan)) / most), "run_plan keeps them on disk")


def require_possible(plan: Plan, chunks: Sequence[Chunk], output: Path, folder: Path, executor: Executor) -> None:
    """Refuse a run through a store that cannot complete."""
    memory = host_memory()
    available = f"the {binary_size(memory)} of memory available"
    if not isinstance(executor, Scheduler):
        _require_draws_fit(plan)
    if isinstance(executor, LocalProcesses) and executor.count > 1:
        worker = _WORKER + max(_working_bytes(plan))
        if executor.count * worker > memory:
            expected = f"at most {memory // worker}: each takes {binary_size(worker)} of {available}"
            raise ParameterError("workers", executor.count, expected)
    sizes = _draw_bytes(plan)
    for case, size in zip(plan.cases, sizes, strict=True):
        if (needed := _PACKED * case.chunk * size) > memory:
            expected = f"at most {memory * case.chunk // needed}, which fill {available}"
            raise ParameterError("chunk", case.chunk, expected)
    table = _table_bytes(plan)
    if table:
        most = max(plan.draws)
        require_results_fit(most, _JOINED * table // most, "with keep_sample = false memory does not grow with them")
    folders = folder.resolve(), output.resolve().parent  # one may be a link to another disk
    disks = [place.stat().st_dev for place in folders]
    needs = [sum(chunk.count * sizes[chunk.case] + _HEADER for chunk in chunks), int(_COMPRESSED * table)]
    for place, disk in zip(folders, disks, strict=True):
        needed, free = (
            sum(need for need, on in zip(needs, disks, strict=True) if on == disk),
            shutil.disk_usage(place).free,
        )
        if needed > free:
            raise OutputError(
                output,
                f"the run takes {binary_size(needed)} of disk at least, and {binary_size(free)} are free on that disk; "
                "make room, write to another disk, or ask for fewer draws",
            )


def _require_draws_fit(plan: Plan) -> None:
    for case in plan.cases:
        if plan.measure == "elements":
            require_elements_fit(case.ensemble)
        else:
            require_draw_fits(case.ensemble, plan.precision)


def _draw_bytes(plan: Plan) -> list[int]:
    """Bytes of the results of one draw, for each case."""
    layouts = [chunk_layout(plan, Chunk(case, 0, 1)) for case in range(len(plan.cases))]
    return [sum(8 * math.prod(shape) for _, shape in layout.values()) for layout in layouts]


def _working_bytes(plan: Plan) -> list[int]:
    if plan.measure == "elements":
        return [elements_bytes(case.ensemble) for case in plan.cases]
    return [spectrum_bytes(case.ensemble, plan.precision) for case in plan.cases]


def _table_bytes(plan: Plan) -> int:
    """Bytes of the sample in the table, 0 without one; for W_QK at each σ, with the estimates of both σ."""
    if not plan.keep_sample:
        return 0
    rows = chunk_layout(plan, Chunk(0, 0, 1))["statistic"][1][0]
    return sum(8 * case.draws * (len(case.sigmas) * (rows + 2) if plan.is_baseline else rows) for case in plan.cases)
