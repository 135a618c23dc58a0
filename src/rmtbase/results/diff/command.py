"""``rmtbase diff``: what changed from one checkpoint to another, of which rank, and along which directions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console

from rmtbase.terminal.command_line import NUMBER, Overwrite
from rmtbase.terminal.completion import models, revisions
from rmtbase.terminal.rows import UNTESTED, Column, print_rows
from rmtbase.terminal.scoring_options import Component
from rmtbase.terminal.streams import bars, cell, out, print_json, say_written

if TYPE_CHECKING:
    import xarray as xr

    from rmtbase.tables import NotTestable

_SIDES = ("in", "out")


def diff(
    before: Annotated[
        str, typer.Argument(help="The earlier checkpoint: a folder, a hub id, or 'demo'.", autocompletion=models)
    ],
    after: Annotated[
        str, typer.Argument(help="The later one, of the same architecture and shape.", autocompletion=models)
    ],
    revision_before: Annotated[
        str | None, typer.Option(help="Revision of the earlier one.", autocompletion=revisions)
    ] = None,
    revision_after: Annotated[
        str | None, typer.Option(help="Revision of the later one.", autocompletion=revisions)
    ] = None,
    component: Component = None,
    level: Annotated[
        float,
        typer.Option(help="Of the tests of directions, and the false discovery rate of what is flagged.", **NUMBER),
    ] = 0.05,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write (netCDF4).")] = None,
    overwrite: Overwrite = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Show what changed between two checkpoints: how much, of which rank, and along old directions or new ones.

    Of every weight matrix, and of every head's part of it. Old directions are the strongest of the matrix before; a
    change that does not know them has no more along them than a random rotation of it would.

    Example: rmtbase diff demo demo --revision-before step-200 --revision-after final

    What did fine-tuning change? rmtbase diff BASE TUNED -o changes.nc, then rmtbase plot changes.nc
    """
    from rmtbase.models import open_model, require_other_files
    from rmtbase.results.diff.measure import diff
    from rmtbase.tables import write_table
    from rmtbase.terminal.output import require_output, require_replaceable

    if output is not None:
        require_output(output, "netCDF")
    opened = open_model(before, revision_before), open_model(after, revision_after)
    if output is not None:
        for one in opened:
            require_other_files([output], one)
        require_replaceable(output, "netCDF", overwrite, "changes", [one.path for one in opened])
    with bars() as progress:
        tree = diff(*opened, components=component or None, level=level, progress=progress)
    if output is not None:
        write_table(tree, output)
    summaries = {name: _summaries(tree[name].to_dataset(), level) for name in ("matrices", "heads") if name in tree}
    untested = {name: _not_testable(tree[name].to_dataset()) for name in summaries}
    if as_json:
        lists = [
            {"test": test, **one._asdict()}
            for tests in untested.values()
            for test, each in tests.items()
            for one in each
        ]
        print_json({"models": tree.attrs["model"], "level": level, **summaries, "not_testable": lists})
    else:
        _print(tree, summaries, untested, level, out())
    if output is not None:
        say_written(output)


def _summaries(group: xr.Dataset, level: float) -> list[dict[str, Any]]:
    """Summarize each component: medians over its matrices, and the number of flagged ones."""
    found = []
    for name in group["component"].values.tolist():
        one = group.sel(component=name)
        row: dict[str, Any] = {
            "component": name,
            "matrices": int(one["n_rows"].notnull().sum()),
            "unchanged": int((one["relative_change"] == 0).sum()),
            "directions_tested": int(one["first_p_value"].notnull().sum()),
        }
        numbers = ("relative_change", "cosine", "effective_rank", "n_directions")
        for variable in (*numbers, *(f"{word}_{side}" for side in _SIDES for word in ("old_share", "expected_share"))):
            values = one[variable].values
            row[variable] = None if np.isnan(values).all() else float(np.nanmedian(values))
        for side in _SIDES:
            row[f"tested_{side}"] = int(one[f"p_value_{side}"].notnull().sum())
            flagged = int((one[f"q_value_{side}"] < level).sum())
            row[f"flagged_{side}"] = flagged if row[f"tested_{side}"] else None
        found.append(row)
    return found


_OF = {
    "reason": "directions",
    "reason_in": "old directions of the inputs",
    "reason_out": "old directions of the outputs",
}


def _not_testable(group: xr.Dataset) -> dict[str, list[NotTestable]]:
    """List, for each test, the matrices of a group that could not be tested, each with its reason."""
    from rmtbase.tables import NotTestable, layer_names

    found = {}
    for variable, what in _OF.items():
        if variable not in group:
            continue
        layers, dims = layer_names(group), [str(dim) for dim in group[variable].dims]
        found[what] = []
        for place in np.argwhere(group[variable].values != "").tolist():
            at = dict(zip(dims, place, strict=True))
            head = f" head {group['head'].values[at['head']]}" if "head" in at else ""
            name = f"{layers[at['layer']]}{head} {group['component'].values[at['component']]}"
            found[what].append(NotTestable(name, str(group[variable].values[tuple(place)])))
    return found


def _print(
    tree: xr.DataTree,
    summaries: dict[str, list[dict[str, Any]]],
    untested: dict[str, dict[str, list[NotTestable]]],
    level: float,
    console: Console,
) -> None:
    from rmtbase.tables import not_testable_words

    console.print(cell(tree.attrs["model"], "bold"))
    console.print(
        "Medians over layers, or over all heads: the norm of the change over that before; its cosine with the matrix "
        "before; its effective rank, and its directions beyond noise; its share along the old directions of inputs and "
        f"outputs, with that of a random rotation, and of how many the share is larger (q < {level:g}). What takes the "
        "matrix before away, at a negative cosine, is along its directions, too."
    )
    columns = [Column("matrix", "left"), *map(Column, ("number", "change", "cosine", "eff. rank", "directions"))]
    columns += map(Column, ("old inputs", "by chance", "larger", "old outputs", "by chance", "larger"))
    for group, rows in summaries.items():
        texts = [
            (
                row["component"],
                str(row["matrices"]),
                *(_text(row[name], form) for name, form in _FORMS.items()),
                *(
                    text
                    for side in _SIDES
                    for text in (
                        _text(row[f"old_share_{side}"], ".3f"),
                        _text(row[f"expected_share_{side}"], ".3f"),
                        _of_tested(row[f"flagged_{side}"], row[f"tested_{side}"], row["matrices"]),
                    )
                ),
            )
            for row in rows
        ]
        print_rows(console, columns, texts, title={"matrices": "whole matrices", "heads": "of each head"}[group])
        total = sum(row["matrices"] for row in rows)
        noun = {"matrices": "matrix", "heads": "part of a head"}[group]
        for what, each in _alike(untested[group]).items():
            if each:
                console.print(cell(f"{what}: {not_testable_words(each, total, noun)}.", longest=10_000))
    unchanged = sum(row["unchanged"] for row in summaries["matrices"])
    if unchanged:
        console.print(f"{unchanged} matrices are the same in both.")


_FORMS = {"relative_change": ".3g", "cosine": "+.2f", "effective_rank": ".1f", "n_directions": ".0f"}


def _alike(untested: dict[str, list[NotTestable]]) -> dict[str, list[NotTestable]]:
    """Join tests that are not possible for the same matrices and the same reasons under one name."""
    names: dict[tuple[NotTestable, ...], list[str]] = {}
    for what, each in untested.items():
        names.setdefault(tuple(each), []).append(what)
    return {", ".join(whats): list(each) for each, whats in names.items()}


def _of_tested(flagged: int | None, tested: int, all_of_them: int) -> str:
    """Format the number of flagged matrices, with the number tested if some could not be tested."""
    if flagged is None:
        return UNTESTED
    return str(flagged) if tested == all_of_them else f"{flagged} of {tested}"


def _text(value: float | None, form: str) -> str:
    return UNTESTED if value is None else format(value, form)


COMMAND = diff
