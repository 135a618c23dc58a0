"""Trajectories on the terminal, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmtbase.reasons import not_testable_json
from rmtbase.report import DETAILS, UNTESTED, Column, Heading, Item, Rows
from rmtbase.results.scores.summary import head_records
from rmtbase.results.trajectory.schema import scores_at
from rmtbase.results.trajectory.summary import DIFFERS, against, summarize_trajectory
from rmtbase.statistics import SPECTRAL_STATISTICS
from rmtbase.words import counted

if TYPE_CHECKING:
    import xarray as xr

    from rmtbase.results.trajectory.summary import StepSummary


def as_json(tree: xr.DataTree, path: Path | None = None) -> dict[str, Any]:
    """Return every head at every step against the first null, and the summary of the run, as plain data."""
    summary = summarize_trajectory(tree)
    return {
        "file": None if path is None else str(path),
        "model": summary.model,
        "heads": [
            {"step": at.step} | record for at in summary.steps for record in head_records(scores_at(tree, at.step))
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

    def number(step: StepSummary, null: str) -> str:
        differing, tested = step.left[null], step.tested[null]
        if differing is None:
            return UNTESTED
        return str(differing) if tested == step.n_heads else f"{differing} of {tested}"

    def by(step: StepSummary) -> str:
        on_log_scale = bool(step.statistic) and SPECTRAL_STATISTICS[step.statistic].on_log_scale
        return f"ln {step.statistic}" if on_log_scale else step.statistic

    summary = summarize_trajectory(tree)
    steps = summary.steps
    columns = (
        Column("step", cell=lambda step: str(step.step)),
        Column("revision", "left", cell=lambda step: step.revision),
        *(
            Column(f"differ from {against(departure.null)}", cell=partial(number, null=departure.null))
            for departure in summary.departures
        ),
        Column("of testable heads", cell=lambda step: str(step.n_heads)),
        Column(
            "median NPR", form=".4f", cell=lambda step: step.median_participation_ratio if step.farthest else UNTESTED
        ),
        Column("farthest head", "left", cell=lambda step: step.farthest or UNTESTED),
        Column("by", "left", cell=by),
        Column("z", form="+.1f", cell=lambda step: step.distance),
        Column("", "left", cell=lambda step: f"as {step.duplicate_of}" if step.duplicate_of else ""),
    )
    yield Heading(f"{summary.model}: {counted(len(steps), 'checkpoint')}, steps {steps[0].step} to {steps[-1].step}")
    yield from summary.answer()
    yield DETAILS
    yield DIFFERS
    yield Rows.of(steps, *columns, named=2)
