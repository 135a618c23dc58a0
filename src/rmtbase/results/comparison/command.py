"""``rmtbase compare``: compare scored models with each other, and with published ones."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from rmtbase.terminal.command_line import COUNT, words
from rmtbase.terminal.options import Output, Seed

if TYPE_CHECKING:
    import xarray as xr

    from rmtbase.results.comparison._training_budget import Training


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
    training: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE=RATE,DECAY,STEPS",
            help="Peak learning rate, weight decay and steps of a model's training by AdamW; repeat for each.",
        ),
    ] = None,
    initial: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="A model before training; repeat. Default: the models without a head that differs from random.",
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
    from rmtbase.terminal.streams import bars

    members = {name: [Path(one) for one in words(text)] for name, text in _pairs("--group", group or (), "FILE,FILE")}
    given = {name: _training(text) for name, text in _pairs("--training", training or (), "RATE,DECAY,STEPS")}
    paths = list(dict.fromkeys([*(files or ()), *(path for group in members.values() for path in group)]))
    if not paths:
        raise ParameterError("FILE", "none", "scores files, or groups of them")
    names = _names(paths)
    told = {"--training": [Path(one) for one in given], "--initial": initial or []}
    for option, one in ((option, one) for option, some in told.items() for one in some):
        if one not in names:
            raise ParameterError(option, str(one), f"one of {', '.join(map(str, names))}")
    outputs = Outputs(output, "comparison")
    outputs.require_replaceable(*paths)
    with bars() as progress:
        tree = compare(
            {names[path]: cast("xr.DataTree", open_table(path, "scores", "trajectory")) for path in paths},
            {name: [names[path] for path in group] for name, group in members.items()},
            {names[Path(one)]: settings for one, settings in given.items()},
            [names[one] for one in initial] if initial else None,
            published=published,
            permutations=permutations,
            seed=seed,
            progress=progress,
            paired=paired,
        )
    outputs.finish(tree, partial(as_json, tree), partial(report, tree))


def _pairs(option: str, given: Sequence[str], value: str) -> list[tuple[str, str]]:
    """Parse options NAME=VALUE, in which each name occurs once."""
    from rmtbase.errors import ParameterError

    found: dict[str, str] = {}
    for text in given:
        name, equals, rest = text.partition("=")
        if not equals or not name or not rest:
            raise ParameterError(option, text, f"NAME={value}")
        if name in found:
            raise ParameterError(option, name, "a name for each")
        found[name] = rest
    return list(found.items())


def _training(text: str) -> Training:
    from rmtbase.errors import ParameterError
    from rmtbase.results.comparison._training_budget import Training
    from rmtbase.terminal.command_line import count, number

    parts = words(text)
    if len(parts) != 3:
        raise ParameterError("--training", text, "three numbers: peak learning rate, weight decay, steps")
    return Training(number(parts[0]), number(parts[1]), count(parts[2]))


def _names(paths: Sequence[Path]) -> dict[Path, str]:
    """Name each file by its stem, or by its whole path if two have the same stem."""
    from rmtbase.shown import shown

    stems = [path.stem for path in paths]
    each = zip(paths, stems, strict=True)
    return {path: shown(stem if stems.count(stem) == 1 else path) for path, stem in each}


COMMAND = compare
