"""``rmtbase diff``: what changed from one checkpoint to another, its rank, and along which directions."""

from __future__ import annotations

from typing import Annotated

import typer

from rmtbase.terminal.command_line import NUMBER
from rmtbase.terminal.completion import models
from rmtbase.terminal.options import Component, Output


def diff(
    before: Annotated[
        str,
        typer.Argument(
            metavar="BEFORE[@REVISION]",
            help="The earlier checkpoint: a folder, a hub id, or 'demo'.",
            autocompletion=models,
        ),
    ],
    after: Annotated[
        str,
        typer.Argument(
            metavar="AFTER[@REVISION]",
            help="The later one, of the same architecture and shape, or a LoRA adapter of the earlier one.",
            autocompletion=models,
        ),
    ],
    component: Component = None,
    level: Annotated[
        float,
        typer.Option(help="Level of the tests of directions, and false discovery rate of what is flagged.", **NUMBER),
    ] = 0.05,
    output: Output = None,
) -> None:
    """Show what changed between two checkpoints: how much, of which rank, and along old directions or new ones.

    For every weight matrix, and every head's part of it. Old directions are the strongest directions of the earlier
    matrix; a change unrelated to them has no larger share along them than a random rotation of it. Heads with more
    than their share of the change of their matrix are named.

    Example: rmtbase diff demo@step-200 demo@final

    What did fine-tuning change? rmtbase diff BASE TUNED -o changes.nc, then rmtbase plot changes.nc

    Which heads did a LoRA adapter change? rmtbase diff BASE ADAPTER
    """
    from rmtbase.results.outputs import Outputs

    files = Outputs(output, "changes")
    files.run(before, after, shown={"level": level}, components=component or None, level=level)


COMMAND = diff
