"""``rmtbase depth``: the residual path that each weight matrix of a checkpoint is most like."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def depth(
    model: Annotated[str, typer.Argument(help="A checkpoint folder, a hub id, or 'demo' (bundled).")],
    sigma: Annotated[
        list[float] | None,
        typer.Option(help="Sigma of the blocks; several: the best of them. Default 1, critical initialisation."),
    ] = None,
    max_depth: Annotated[
        int | None, typer.Option(help="Deepest candidate. Default 32; for the update as far as its law goes.")
    ] = None,
    part: Annotated[
        str, typer.Option(help="'path': the product of the blocks; 'update': without its direct term.")
    ] = "path",
    distance: Annotated[str, typer.Option(help="'wasserstein' or 'kolmogorov_smirnov'.")] = "wasserstein",
    component: Annotated[
        list[str] | None, typer.Option(help="A weight matrix, 'mlp_in' say; several; default all.")
    ] = None,
    draws: Annotated[int, typer.Option(help="Draws of each fitted path, for the p-value and the interval.")] = 99,
    level: Annotated[float, typer.Option(help="A depth fits where its p-value is above this level.")] = 0.05,
    width: Annotated[
        int | None, typer.Option(help="Width of the draws. Default the matrix's own, 512 at most.")
    ] = None,
    revision: Annotated[str | None, typer.Option(help="Revision of a hub id or of 'demo'.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the draws.")] = 0,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write (netCDF4).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """Effective depth: which residual path is each weight matrix most like, and is it like enough?

    Example: rmtbase depth demo -o depth.nc
    """
    from rmtbase.cli._depth_tables import depth_json, print_depths
    from rmtbase.cli._terminal import bars, note, out, print_json
    from rmtbase.models import check_outputs, open_model
    from rmtbase.parameters import require_positive_integer
    from rmtbase.scoring import effective_depths
    from rmtbase.shown import shown
    from rmtbase.tables import check_writable, write_table

    depths = None if max_depth is None else range(1, require_positive_integer("max_depth", max_depth) + 1)
    if output is not None:
        check_writable(output)
    opened = open_model(model, revision)
    check_outputs([] if output is None else [output], opened)
    with bars() as progress:
        table = effective_depths(
            opened,
            sigma=sigma or 1.0,
            depths=depths,
            part=part,
            distance=distance,
            draws=draws,
            level=level,
            width=width,
            seed=seed,
            components=component or None,
            progress=progress,
        )
    if output is not None:
        write_table(table, output)
    if as_json:
        print_json(depth_json(table))
    else:
        print_depths(table, out())
    if output is not None:
        note(f"wrote {shown(output)}")
