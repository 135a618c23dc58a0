"""``rmtbase trajectory``: score the checkpoints of a training run, and find when each head departs from the null."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmtbase.terminal.command_line import COUNT, Fold, Subfolder, words
from rmtbase.terminal.completion import models, nulls, revisions_of
from rmtbase.terminal.scoring_options import (
    Baseline,
    Circuits,
    Components,
    Draws,
    Elements,
    Initialization,
    Matrices,
    Proof,
    Seed,
)

if TYPE_CHECKING:
    from rich.console import Console

    from rmtbase.results.trajectory.summary import StepSummary, TrajectorySummary

LEFT_OUT = 1
"""Exit status if the file is written without some of the checkpoints."""


def trajectory(
    model: Annotated[
        str,
        typer.Argument(
            help="A folder of checkpoints (step-N, checkpoint-N), a hub id, a known name (pythia-70m), or 'demo'.",
            autocompletion=models,
        ),
    ],
    revisions: Annotated[
        str,
        typer.Option(
            help="'all' whose names tell their steps, or names parted by commas: step0,step512; of another name its "
            "steps before it, 143000:main.",
            autocompletion=revisions_of,
        ),
    ] = "all",
    null: Annotated[
        str,
        typer.Option(
            help="'gaussian', 'kurtosis', 'signs', 'axes', or several separated by commas: every statistic "
            "against the first, and when each head left each.",
            autocompletion=nulls,
        ),
    ] = "gaussian",
    baseline: Baseline = None,
    subfolder: Subfolder = None,
    fold: Fold = None,
    circuits: Circuits = "qk",
    matrices: Matrices = "elements",
    components: Components = "layers",
    elements: Elements = "matrices",
    initialization: Initialization = "normal",
    draws: Draws = None,
    seed: Seed = 0,
    proof: Proof = True,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep what is fetched in the hub's cache; else each goes once it is scored.")
    ] = False,
    workers: Annotated[
        int | None, typer.Option(help="Score with that many local processes, one core each.", **COUNT)
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            help="Score on the workers of a Dask scheduler: HOST:PORT, or tls://HOST:PORT with Dask's own keys."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write. Default MODEL-trajectory.nc, here.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Begin anew where a file is there, and replace it, whatever it is.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Follow a training run: when did each head leave the null?

    Each checkpoint is fetched, scored and discarded. Those that are finished are kept beside the file until it is
    written: the same command after a kill goes on where it stood, and when the training has written more checkpoints
    it scores those alone. One that is missing, damaged or of another shape is named and left out, and the status is
    then 1.

    Example: rmtbase trajectory pythia-70m --revisions step0,step512,step4000,step143000 -o traj.nc

    A run of the Trainer: rmtbase trajectory runs/my-model --null gaussian,signs,axes -o traj.nc
    """
    from rmtbase.errors import ParameterError
    from rmtbase.models import find_series
    from rmtbase.nulls import OF_A_TABLE, find_null
    from rmtbase.results.trajectory.measure import trajectory as follow
    from rmtbase.results.trajectory.summary import summarize_trajectory
    from rmtbase.terminal.output import require_output, require_replaceable
    from rmtbase.terminal.streams import bars, out, print_json

    path = output or Path(f"{Path(model).name}-trajectory.nc")
    require_output(path, "netCDF")
    require_replaceable(path, "netCDF", overwrite, "trajectory", [Path(one) for one in (model, baseline) if one])
    options = {"initialization": initialization, "draws": draws, "seed": seed}
    nulls = [find_null(one, baseline=baseline if one in OF_A_TABLE else None, **options) for one in words(null)]
    if baseline is not None and not set(OF_A_TABLE) & set(words(null)):
        raise ParameterError("baseline", baseline, f"none: no table has the null {null}")
    series = find_series(model, words(revisions), subfolder, fold=words(fold or ""), proof=proof)
    with bars() as progress:
        tree = follow(
            series,
            output=path,
            nulls=nulls,
            matrices=matrices,  # type: ignore[arg-type]  # checked where it is used
            circuits=words(circuits),
            components=words(components),
            elements=elements,  # type: ignore[arg-type]  # as well
            keep=keep,
            workers=workers,
            scheduler=scheduler,
            overwrite=overwrite,
            progress=progress,
        )
    summary = summarize_trajectory(tree)
    if as_json:
        print_json(_summary_json(summary, path))
    else:
        _print_summary(summary, out())
    if summary.failed:
        raise typer.Exit(LEFT_OUT)


def _summary_json(summary: TrajectorySummary, path: Path) -> dict[str, Any]:
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


def _print_summary(summary: TrajectorySummary, console: Console) -> None:
    """Print a line for each checkpoint, then the departures from each null."""
    from rmtbase.statistics import SPECTRAL_STATISTICS
    from rmtbase.terminal.rows import UNTESTED, Column, print_rows
    from rmtbase.terminal.streams import cell

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
    from rmtbase.terminal.rows import UNTESTED

    number, tested = step.left[null], step.tested[null]
    if number is None:
        return UNTESTED
    return str(number) if tested == step.n_heads else f"{number} of {tested}"


COMMAND = trajectory
