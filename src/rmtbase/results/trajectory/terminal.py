"""Trajectories on the terminal, and as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from rmtbase.terminal.rows import UNTESTED, Column, print_rows
from rmtbase.terminal.streams import cell

if TYPE_CHECKING:
    from rmtbase.results.trajectory.summary import StepSummary, TrajectorySummary


def as_json(summary: TrajectorySummary, path: Path) -> dict[str, Any]:
    """Return the summary of a training run as plain data."""
    from rmtbase.tables import not_testable_json

    return {
        "file": str(path),
        "model": summary.model,
        "steps": [step._asdict() for step in summary.steps],
        "departures": [
            departure._asdict() | {"not_testable": not_testable_json(departure.not_testable)}
            for departure in summary.departures
        ],
        "failed": summary.failed,
        "sentences": summary.sentences(),
    }


def print_trajectory(summary: TrajectorySummary, console: Console) -> None:
    """Print a line for each checkpoint, then the departures from each null."""
    from rmtbase.statistics import SPECTRAL_STATISTICS

    nulls = [departure.null for departure in summary.departures]
    columns = [Column("step"), Column("revision", "left"), *(Column(f"left {null}") for null in nulls)]
    columns += [
        Column("of testable heads"),
        Column("median NPR"),
        Column("farthest head", "left"),
        Column("by", "left"),
    ]
    columns += [Column("z"), Column("", "left")]
    rows = []
    for one in summary.steps:
        on_log_scale = one.statistic and SPECTRAL_STATISTICS[one.statistic].on_log_scale
        rows.append(
            (
                str(one.step),
                one.revision,
                *(_left(one, null) for null in nulls),
                str(one.n_heads),
                f"{one.median_participation_ratio:.4f}" if one.farthest else UNTESTED,
                one.farthest or UNTESTED,
                f"{'ln ' if on_log_scale else ''}{one.statistic}",
                f"{one.distance:+.1f}" if one.farthest else "",
                f"as {one.duplicate_of}" if one.duplicate_of else "",
            )
        )
    print_rows(console, columns, rows, named=2, title=summary.model)
    for line in summary.sentences():
        console.print(cell(line, longest=10_000))


def _left(step: StepSummary, null: str) -> str:
    """Format the number of heads that differ from a null, with the number tested if not that of the first null."""
    number, tested = step.left[null], step.tested[null]
    if number is None:
        return UNTESTED
    return str(number) if tested == step.n_heads else f"{number} of {tested}"
