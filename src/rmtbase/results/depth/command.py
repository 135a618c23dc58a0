"""``rmtbase depth``: the residual path nearest to each weight matrix of a checkpoint."""

from functools import partial
from typing import Annotated

import typer

from rmtbase.terminal.command_line import COUNT, INTEGER, NUMBER
from rmtbase.terminal.completion import one_of
from rmtbase.terminal.options import Component, ModelArgument, Output, Seed


def depth(
    model: ModelArgument,
    sigma: Annotated[
        list[float] | None,
        typer.Option(
            help="Sigma of the blocks; repeat it to choose the best of several. Default: 1, critical initialization.",
            **NUMBER,
        ),
    ] = None,
    max_depth: Annotated[
        int | None,
        typer.Option(help="Deepest candidate. Default: 32; for the update, as far as its law is known.", **INTEGER),
    ] = None,
    part: Annotated[
        str,
        typer.Option(
            help="'path': the product of the blocks; 'update': the same without its direct term.",
            autocompletion=one_of("path", "update"),
        ),
    ] = "path",
    component: Component = None,
    draws: Annotated[
        int, typer.Option(help="Draws of each fitted path, for the p-value and the interval.", **COUNT)
    ] = 99,
    level: Annotated[float, typer.Option(help="A depth fits if its p-value is above this level.", **NUMBER)] = 0.05,
    seed: Seed = 0,
    output: Output = None,
) -> None:
    """Effective depth: which residual path is each weight matrix most like, and is it like enough?

    All weight matrices of every layer, or those named by --component.

    Example: rmtbase depth demo -o depth.nc
    """
    from rmtbase.parameters import require_positive_integer
    from rmtbase.results.depth.measure import depth
    from rmtbase.results.depth.report import as_json, report
    from rmtbase.results.outputs import Outputs

    depths = None if max_depth is None else range(1, require_positive_integer("max_depth", max_depth) + 1)
    files = Outputs(output, "effective_depth")
    opened = files.open(model)
    table = files.measure(
        depth,
        opened,
        sigma=sigma or 1.0,
        depths=depths,
        part=part,
        draws=draws,
        level=level,
        seed=seed,
        components=component or None,
    )
    files.finish(table, as_json, partial(report, components=opened.components))


COMMAND = depth
