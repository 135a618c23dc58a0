"""Trajectories on the terminal, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmtbase.report import DETAILS, UNTESTED, Column, Heading, Item, Rows
from rmtbase.results.trajectory.summary import against, summarize_trajectory

if TYPE_CHECKING:
    import xarray as xr

    from rmtbase.results.trajectory.summary import StepSummary


def as_json(tree: xr.DataTree, path: Path | None = None) -> dict[str, Any]:
    """Return every head at every step against the first null, and the summary of the run, as plain data."""
    from rmtbase.results.scores.summary import head_records
    from rmtbase.results.trajectory.schema import scores_at
    from rmtbase.tables import not_testable_json

    summary = summarize_trajectory(tree)
    return {
        "file": None if path is None else str(path),
        "model": summary.model,
        "heads": [
            {"step": step.step} | record
            for step in summary.steps
            for record in head_records(scores_at(tree, step.step))
        ],
        "steps": [step._asdict() for step in summary.steps],
        "departures": [
            departure._asdict() | {"not_testable": not_testable_json(departure.not_testable)}
            for departure in summary.departures
        ],
        "failed": summary.failed,
        "sentences": summary.sentences(),
    }


def report(tree: xr.DataTree) -> Iterator[Item]:
    """Say when heads began to differ, which differ most, and what failed; as details each checkpoint."""
    from rmtbase.statistics import SPECTRAL_STATISTICS

    summary = summarize_trajectory(tree)
    nulls = [departure.null for departure in summary.departures]
    columns = [Column("step"), Column("revision", "left"), *(Column(f"differ from {against(null)}") for null in nulls)]
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
    first, last = summary.steps[0].step, summary.steps[-1].step
    several = len(summary.steps) != 1
    yield Heading(f"{summary.model}: {len(rows)} checkpoint{'s' * several}, steps {first} to {last}")
    yield from summary.answer()
    yield DETAILS
    yield summary.level()
    yield Rows(columns, rows, named=2)


def _left(step: StepSummary, null: str) -> str:
    """Format the number of heads that differ from a null, with the number tested if not that of the first null."""
    number, tested = step.left[null], step.tested[null]
    if number is None:
        return UNTESTED
    return str(number) if tested == step.n_heads else f"{number} of {tested}"
