"""Trajectories on the terminal, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmtbase.report import UNTESTED, Column, Heading, Item, Rows
from rmtbase.results.trajectory.summary import summarize_trajectory

if TYPE_CHECKING:
    import xarray as xr

    from rmtbase.results.trajectory.summary import StepSummary


def as_json(tree: xr.DataTree, path: Path | None = None) -> dict[str, Any]:
    """Return the summary of a training run as plain data."""
    from rmtbase.tables import not_testable_json

    summary = summarize_trajectory(tree)
    return {
        "file": None if path is None else str(path),
        "model": summary.model,
        "steps": [step._asdict() for step in summary.steps],
        "departures": [
            departure._asdict() | {"not_testable": not_testable_json(departure.not_testable)}
            for departure in summary.departures
        ],
        "failed": summary.failed,
        "sentences": summary.sentences(),
    }


def report(tree: xr.DataTree) -> Iterator[Item]:
    """Print a line for each checkpoint, then the departures from each null."""
    from rmtbase.statistics import SPECTRAL_STATISTICS

    summary = summarize_trajectory(tree)
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
    yield Heading(summary.model)
    yield Rows(columns, rows, named=2)
    yield from summary.sentences()


def _left(step: StepSummary, null: str) -> str:
    """Format the number of heads that differ from a null, with the number tested if not that of the first null."""
    number, tested = step.left[null], step.tested[null]
    if number is None:
        return UNTESTED
    return str(number) if tested == step.n_heads else f"{number} of {tested}"
