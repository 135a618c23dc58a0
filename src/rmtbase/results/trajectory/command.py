"""``rmtbase trajectory``: score the checkpoints of a training run, and find when each head differs from the null."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from rmtbase.terminal.command_line import words
from rmtbase.terminal.completion import models, nulls, revisions_of
from rmtbase.terminal.options import (
    Circuits,
    Components,
    Draws,
    Elements,
    FailIf,
    Fold,
    Initialization,
    Matrices,
    Seed,
    Workers,
    executor_of,
)

_LEFT_OUT = 1  # exit status if the file is written without some of the checkpoints


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
            help="'all' whose names state their steps, or names separated by commas: step0,step512; put the number of "
            "steps before any other name: 143000:main.",
            autocompletion=revisions_of,
        ),
    ] = "all",
    null: Annotated[
        str,
        typer.Option(
            metavar="NAME|FILE,...",
            help="'gaussian', 'kurtosis', 'signs', 'axes', a baseline table, or several separated by commas: every "
            "statistic is compared with the first, and each head's first difference is reported for each.",
            autocompletion=nulls,
        ),
    ] = "gaussian",
    fold: Fold = None,
    circuits: Circuits = "qk",
    matrices: Matrices = "elements",
    components: Components = "layers",
    elements: Elements = "matrices",
    initialization: Initialization = "normal",
    draws: Draws = None,
    seed: Seed = 0,
    workers: Workers = None,
    fail_if: FailIf = None,
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output", "-o", help="File to write: .nc the table (default: MODEL-trajectory.nc), .html a page"
        ),
    ] = None,
) -> None:
    """Follow a training run: when does each head begin to differ from random heads?

    Each checkpoint is fetched, scored and discarded. Finished ones are kept beside the file until it is written: the
    same command continues after a kill, and scores only the new checkpoints when the training has written more. A
    checkpoint that is missing, damaged or of another shape is named and left out; the exit status is then 1.

    Example: rmtbase trajectory pythia-70m --revisions step0,step512,step4000,step143000 -o traj.nc

    A run of the Trainer: rmtbase trajectory runs/my-model --null gaussian,signs,axes -o traj.nc
    """
    from rmtbase.errors import CheckpointError
    from rmtbase.models import find_series
    from rmtbase.nulls import find_null
    from rmtbase.results.outputs import Outputs, places_of
    from rmtbase.results.trajectory._along_steps import failures
    from rmtbase.results.trajectory.measure import trajectory
    from rmtbase.results.trajectory.report import as_json, report

    files = Outputs(output, "trajectory", Path(f"{Path(model).name}-trajectory.nc"))
    path = cast("Path", files.table)
    files.require_replaceable(*(Path(name) for name in (model, *words(null))))
    against = [find_null(name, initialization=initialization, draws=draws, seed=seed) for name in words(null)]
    series = find_series(model, words(revisions), fold=words(fold or ""))
    if fail_if is not None:
        places: list[dict[str, Any]] = [{}]  # as far as they are known: nothing is fetched from the hub for that
        for revision in series.revisions if series.folder is not None else ():
            with suppress(CheckpointError):  # it will be left out
                places = places_of(series.open(revision))
                break
        steps = [] if path.exists() else series.revisions  # a file may hold further steps
        files.gate("trajectory", fail_if, [{"step": at.step} | place for at in steps for place in places] or places)
    tree = files.measure(
        trajectory,
        series,
        output=path,
        nulls=against,
        matrices=matrices,
        circuits=words(circuits),
        components=words(components),
        elements=elements,
        executor=executor_of(workers),
    )
    failed = failures(tree)
    files.finish(tree, partial(as_json, path=path), report, written=True, gated=not failed)
    if failed:
        raise typer.Exit(_LEFT_OUT)


COMMAND = trajectory
