"""``rmtbase compare``: compare scored models with each other, and with published ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from rmtbase.terminal.command_line import COUNT, words
from rmtbase.terminal.options import Output, Seed

if TYPE_CHECKING:
    import xarray as xr


def compare(
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE]...", help="Scores files, of one model each, or trajectories.")
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE,FILE,...",
            help="Models of one recipe with several seeds; repeat for each: groups are compared with an error bar.",
        ),
    ] = None,
    published: Annotated[
        bool, typer.Option("--published", help="Also compare with the twelve published models of arXiv:2605.18898.")
    ] = False,
    paired: Annotated[
        bool,
        typer.Option(
            "--paired", help="The k-th files of all groups share a seed (initial weights, order of the data)."
        ),
    ] = False,
    permutations: Annotated[int, typer.Option(help="Permutations of each test.", **COUNT)] = 9_999,
    seed: Seed = 0,
    output: Output = None,
) -> None:
    """Set scored models beside each other: the Weibull framework's diagnostics, each with its null, and tests.

    For every two models: are they copies, or do they share initial weights? Do their heads differ?

    Example: rmtbase compare small.nc large.nc --published

    Do two recipes differ? rmtbase compare --group mha=a1.nc,a2.nc,a3.nc,a4.nc --group gqa=b1.nc,b2.nc,b3.nc,b4.nc
    """
    from rmtbase.errors import ParameterError
    from rmtbase.results import open_table
    from rmtbase.results.comparison.measure import compare
    from rmtbase.results.comparison.report import as_json, report
    from rmtbase.results.outputs import Outputs
    from rmtbase.shown import shown

    members: dict[str, list[Path]] = {}
    for text in group or ():
        name, _, listed = text.partition("=")
        if not name or not listed:
            raise ParameterError("--group", text, "NAME=FILE,FILE")
        if name in members:
            raise ParameterError("--group", name, "a name for each")
        members[name] = [Path(file) for file in words(listed)]
    paths = list(dict.fromkeys([*(files or ()), *(path for group in members.values() for path in group)]))
    if not paths:
        raise ParameterError("FILE", "none", "scores files, or groups of them")
    stems = [path.stem for path in paths]  # a whole path where two have the same stem
    names = {path: shown(path.stem if stems.count(path.stem) == 1 else path) for path in paths}
    outputs = Outputs(output, "comparison")
    outputs.require_replaceable(*paths)
    tree = outputs.measure(
        compare,
        {names[path]: cast("xr.DataTree", open_table(path, "scores", "trajectory")) for path in paths},
        {name: [names[path] for path in group] for name, group in members.items()},
        published=published,
        permutations=permutations,
        seed=seed,
        paired=paired,
    )
    outputs.finish(tree, as_json, report)


COMMAND = compare
