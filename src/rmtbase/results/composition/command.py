"""``rmtbase composition``: which heads read what which others write, against chance."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from rmtbase.terminal.command_line import COUNT, NUMBER, Fold, Overwrite, Subfolder, words
from rmtbase.terminal.completion import revisions, some_of
from rmtbase.terminal.rows import UNTESTED, Column, print_rows
from rmtbase.terminal.scoring_options import ModelArgument
from rmtbase.terminal.streams import bars, cell, out, print_json, say_written

if TYPE_CHECKING:
    import xarray as xr

    from rmtbase.results.composition.summary import CompositionSummary, KindSummary

_LONGEST_LINE = 10_000
_NAMES = {"q": "queries", "k": "keys", "v": "values"}


def composition(
    model: ModelArgument,
    kinds: Annotated[
        str,
        typer.Option(
            help="By what the later head reads, letters parted by commas: its queries, 'q', keys, 'k', or values, 'v'.",
            autocompletion=some_of("q", "k", "v"),
        ),
    ] = "q,k,v",
    level: Annotated[
        float, typer.Option(help="False discovery rate of the pairs that are said to compose.", **NUMBER)
    ] = 0.05,
    listed: Annotated[int, typer.Option("--listed", help="Pairs to print, the strongest first.", **COUNT)] = 12,
    revision: Annotated[
        str | None, typer.Option(help="Revision of a hub id or of 'demo'.", autocompletion=revisions)
    ] = None,
    subfolder: Subfolder = None,
    fold: Fold = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write (netCDF4).")] = None,
    csv: Annotated[
        Path | None, typer.Option(help="Also write all pairs as CSV; '-': to stdout, in the summary's place.")
    ] = None,
    overwrite: Overwrite = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Composition: which heads read what which earlier heads write, more than by chance?

    Of every two heads of different layers the composition score, its p-value under a random rotation of the one against
    the other, exact mean and variance, and q-values over all pairs that hold though pairs share heads.

    Example: rmtbase composition demo -o composition.nc, then rmtbase plot composition.nc

    Of keys alone, as induction heads have it: rmtbase composition MODEL --kinds k
    """
    from rmtbase.errors import OutputError
    from rmtbase.models import open_model, require_other_files
    from rmtbase.results.composition.measure import composition as compose
    from rmtbase.results.composition.summary import summarize_composition
    from rmtbase.tables import export, write_table
    from rmtbase.terminal.output import is_standard_output, require_output, require_replaceable, write_output

    to_stdout = is_standard_output(csv)
    if to_stdout and as_json:
        raise OutputError("-", "stdout takes one output; name a file for the other")
    files = {kind: path for kind, path in (("netCDF", output), ("CSV of pairs", csv)) if path is not None}
    if to_stdout:
        del files["CSV of pairs"]
    for kind, path in files.items():
        require_output(path, kind)
    if len({path.resolve() for path in files.values()}) < len(files):
        raise OutputError(next(iter(files.values())), "it is named for two outputs; expected a name for each")
    opened = open_model(model, revision, subfolder=subfolder, fold=fold or ())
    require_other_files(list(files.values()), opened)
    for kind, path in files.items():
        require_replaceable(path, kind, overwrite, "composition", [opened.path])
    with bars() as progress:
        table = compose(opened, words(kinds), progress=progress)
    summary = summarize_composition(table, level)
    if output is not None:
        write_table(table, output)
    if csv is not None:
        write_output(export(table, "csv"), csv)
    if as_json:
        print_json(_as_json(table, summary))
    elif not to_stdout:
        _print_summary(table, summary, listed, out())
    for path in files.values():
        say_written(path)


def _as_json(table: xr.Dataset, summary: CompositionSummary) -> dict[str, Any]:
    from rmtbase.tables import not_testable_json

    lists = ("not_testable", "overlaps_not_testable")
    return {
        **{name: table.attrs[name] for name in ("model", "revision", "null")},
        "warnings": json.loads(table.attrs["warnings"]),
        **{name: not_testable_json(getattr(summary, name)) for name in lists},
        "sentences": [f"{summary.headline()}."],
        "level": summary.level,
        "kinds": [_kind_json(one) for one in summary.kinds],
        "surviving": [asdict(one) for one in summary.surviving],
    }


def _kind_json(kind: KindSummary) -> dict[str, Any]:
    """Convert the counts of a kind for JSON; null where no pair of it could be tested."""
    sizes = ("kind", "pairs", "not_testable", "overlaps")
    return {
        name: value if name in sizes or (kind.overlaps if name == "overlapping" else kind.pairs) else None
        for name, value in asdict(kind).items()
    }


def _print_summary(table: xr.Dataset, summary: CompositionSummary, listed: int, console: Console) -> None:
    """Print how many pairs of each kind compose beyond chance, and the strongest pairs."""
    from rmtbase.tables import not_testable_words

    attributes, level = table.attrs, f"{summary.level:g}"
    title = attributes["model"] + (f", revision {attributes['revision']}" if attributes["revision"] else "")
    pairs, surviving = sum(one.pairs for one in summary.kinds), len(summary.surviving)
    untested = bool(summary.not_testable)
    console.print(cell(title, "bold"))
    chance = f" Of a model whose heads know nothing of each other none would, but for a chance of {level} at most."
    console.print(cell(f"{summary.headline()}.{chance if pairs else ''}", longest=_LONGEST_LINE))
    columns = [Column("the later head's", "left"), *map(Column, ("testable pairs",) if untested else ("pairs",))]
    columns += map(Column, ("not testable",) if untested else ())
    columns += map(Column, (f"p < {level}", "by chance", "survive"))
    columns += map(Column, ("if independent", "family-wise", "avoid", "subspaces overlap"))
    rows = [
        (
            _NAMES[one.kind],
            str(one.pairs),
            *((str(one.not_testable),) if untested else ()),
            *(
                str(number) if one.pairs else UNTESTED
                for number in (one.small, round(one.pairs * summary.level), one.surviving, one.surviving_independent)
            ),
            *(str(number) if one.pairs else UNTESTED for number in (one.surviving_family, one.avoiding)),
            f"{one.overlapping}{f' of {one.overlaps}' if one.overlaps != one.pairs else ''}"
            if one.overlaps
            else UNTESTED,
        )
        for one in summary.kinds
    ]
    print_rows(console, columns, rows)
    overlaps = summary.overlaps_not_testable
    if overlaps and [one.place for one in overlaps] != [one.place for one in summary.not_testable]:
        total = sum(one.overlaps for one in summary.kinds) + len(overlaps)
        words = not_testable_words(overlaps, total, "overlap of subspaces")
        console.print(cell(f"{words}.", longest=_LONGEST_LINE))
    if not summary.surviving or not listed:
        return
    columns = [Column("the later head's", "left"), Column("earlier", "left"), Column("later", "left")]
    columns += map(Column, ("score", "by chance", "z", "p", "q", "overlap"))
    rows = [
        (
            _NAMES[one.kind],
            one.earlier,
            one.later,
            f"{one.score:.4f}",
            f"{one.expected_score:.4f}",
            f"{one.z_score:+.1f}",
            f"{one.p_value:.1e}",
            f"{one.q_value:.1e}",
            f"{one.overlap:.3f}",
        )
        for one in summary.surviving[:listed]
    ]
    print_rows(console, columns, rows, named=3)
    if surviving > listed:
        console.print(f"{surviving - listed} more; --listed {surviving} prints all, --csv FILE writes every pair.")


COMMAND = composition
