"""Memory, disk space and files that a run needs, checked before anything is drawn."""

from __future__ import annotations

import math
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from rmtbase.errors import OutputError, ParameterError
from rmtbase.montecarlo._chunks import Chunk, Chunks
from rmtbase.montecarlo._compute import chunk_layout
from rmtbase.montecarlo._memory import (
    binary_size,
    elements_bytes,
    host_memory,
    require_draw_fits,
    require_elements_fit,
    require_results_fit,
    require_workers,
    spectrum_bytes,
)
from rmtbase.montecarlo._plan import Plan

_MOST_CHUNKS = 10**7  # files of one folder
_HEADER = 512  # approximate bytes of a chunk's file before its numbers
_PACKED = 3  # copies of a chunk in memory while it is written: its arrays, their bytes, the file's
_JOINED = 2  # copies of a table's sample in memory while its cases are joined
_COMPRESSED = 0.75  # smallest compressed share of a sample: the digits of random numbers have no pattern
_WORKER = 2**28  # bytes of a worker process before it has drawn anything


@dataclass(frozen=True)
class Cost:
    """Least resources that a run takes."""

    memory: int  # bytes of the writing process at its peak
    disk: int  # bytes of the chunks
    table: int  # bytes of the sample in the table
    files: int  # number of chunks

    def __str__(self) -> str:
        files = f"{self.files:,} file{'s' if self.files != 1 else ''}"
        sample = f", {binary_size(self.table)} for the table's sample" if self.table else ""
        return f"{binary_size(self.disk)} of disk in {files}{sample}, and {binary_size(self.memory)} of memory"


def cost(plan: Plan, chunks: Chunks) -> Cost:
    """Estimate the cost of drawing these chunks of a plan and making its table."""
    numbers = sum(chunks.of_case(case).total_draws * each for case, each in enumerate(_draw_bytes(plan)))
    drawing = max(map(sum, zip(_working_bytes(plan), _chunk_memory(plan), strict=True)))
    table = _table_bytes(plan)
    return Cost(max(drawing, _JOINED * table), numbers + _HEADER * chunks.size, table, chunks.size)


def require_possible_in_memory(plan: Plan) -> None:
    """Refuse a run in memory whose draws do not fit there."""
    _require_few_chunks(plan)
    _require_draws_fit(plan)
    drawn = sum(case.draws * each for case, each in zip(plan.cases, _draw_bytes(plan), strict=True))
    most = max(plan.draws)
    require_results_fit(most, math.ceil((drawn + _JOINED * _table_bytes(plan)) / most), "run_plan keeps them on disk")


def require_possible(plan: Plan, chunks: Chunks, output: Path, chunk_folder: Path, workers: int | None) -> None:
    """Refuse a run through a store that cannot complete."""
    _require_few_chunks(plan)
    memory = host_memory()
    if workers is not None:
        _require_draws_fit(plan)
        each = _WORKER + max(_working_bytes(plan))
        if require_workers("workers", workers) > 1 and workers * each > memory:
            raise ParameterError(
                "workers", workers, f"at most {memory // each}: each takes {binary_size(each)} of {_there(memory)}"
            )
    for case, needed in zip(plan.cases, _chunk_memory(plan), strict=True):
        if needed > memory:
            raise ParameterError(
                "chunk", case.chunk, f"at most {memory * case.chunk // needed}, which fill {_there(memory)}"
            )
    if plan.keep_sample:
        each = _JOINED * _table_bytes(plan) // max(plan.draws)
        require_results_fit(max(plan.draws), each, "with keep_sample = false memory does not grow with them")
    _require_disk(cost(plan, chunks), output, chunk_folder)


def _require_few_chunks(plan: Plan) -> None:
    if plan.chunks.size > _MOST_CHUNKS:
        raise ParameterError(
            "chunk",
            min(case.chunk for case in plan.cases),
            f"more draws in each chunk: there would be {plan.chunks.size:,} chunks, each a file, and one folder may "
            f"hold {_MOST_CHUNKS:,} at most",
        )


def _require_draws_fit(plan: Plan) -> None:
    for case in plan.cases:
        if plan.measure == "elements":
            require_elements_fit(case.ensemble)
        else:
            require_draw_fits(case.ensemble, plan.precision)


def _require_disk(needed: Cost, output: Path, chunk_folder: Path) -> None:
    folder = chunk_folder.resolve()  # it may be a link to another disk
    disk, table_disk = folder.stat().st_dev, output.resolve().parent.stat().st_dev
    table = int(_COMPRESSED * needed.table)
    room = {disk: needed.disk}
    room[table_disk] = room.get(table_disk, 0) + table
    for place, device in ((folder, disk), (output.resolve().parent, table_disk)):
        free = shutil.disk_usage(place).free
        if room[device] > free:
            raise OutputError(
                output,
                f"the run takes {needed} at least, and {binary_size(free)} are free on that disk; make room, write to "
                "another disk, or ask for fewer draws",
            )
    if hasattr(os, "statvfs"):
        files = os.statvfs(folder)
        if files.f_files and needed.files > files.f_favail:  # some file systems report no number of files
            raise OutputError(
                output,
                f"the run takes {needed.files:,} files, and that disk has room for {files.f_favail:,} more; write to "
                "another disk, or set a larger chunk in the plan",
            )


def _draw_bytes(plan: Plan) -> list[int]:
    """Bytes of the results of one draw, for each case."""
    layouts = [chunk_layout(plan, Chunk(case, 0, 1)) for case in range(len(plan.cases))]
    return [sum(8 * math.prod(shape) for _, shape in layout.values()) for layout in layouts]


def _chunk_memory(plan: Plan) -> list[int]:
    return [_PACKED * case.chunk * each for case, each in zip(plan.cases, _draw_bytes(plan), strict=True)]


def _working_bytes(plan: Plan) -> list[int]:
    if plan.measure == "elements":
        return [elements_bytes(case.ensemble) for case in plan.cases]
    return [spectrum_bytes(case.ensemble, plan.precision) for case in plan.cases]


def _table_bytes(plan: Plan) -> int:
    """Bytes of the sample in the table; for W_QK at each σ, with the estimates of both σ."""
    if not plan.keep_sample:
        return 0
    rows = chunk_layout(plan, Chunk(0, 0, 1))["statistic"][1][0]
    return sum(8 * case.draws * (len(case.sigmas) * (rows + 2) if plan.is_baseline else rows) for case in plan.cases)


def _there(memory: int) -> str:
    return f"the {binary_size(memory)} of memory available"
