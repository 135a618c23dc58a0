"""``rmtbase published``: published tables as data, beside what their numbers are from first principles."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmtbase.terminal.command_line import Overwrite
from rmtbase.terminal.completion import one_of

if TYPE_CHECKING:
    from rich.console import Console

    from rmtbase.results.comparison import PublishedCheck, PublishedTable


def names(incomplete: str) -> list[str]:
    """Names of published tables."""
    from rmtbase.results.comparison import published_tables

    return one_of(*(table.name for table in published_tables()))(incomplete)


def published(
    name: Annotated[
        str | None, typer.Argument(help="Which table; without, a list of all.", autocompletion=names)
    ] = None,
    csv: Annotated[
        Path | None, typer.Option(help="Also write every cell as CSV, a row for each; '-': to stdout.")
    ] = None,
    overwrite: Overwrite = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print all of it as JSON.")] = False,
) -> None:
    """Print a published table beside what its numbers are from first principles, without a checkpoint.

    A number agrees where something that rounds to it, as printed, is what is expected: of laws of untrained weights,
    or of other published numbers. One "of untrained weights" stands beside a published one of trained weights: where
    they agree, the published one says nothing of training.

    Example: rmtbase published weibull-table-5
    """
    from rmtbase.errors import OutputError
    from rmtbase.results.comparison import checks, published_csv, published_table, published_tables
    from rmtbase.terminal.output import is_standard_output, require_replaceable, write_output
    from rmtbase.terminal.streams import out, print_json, say_written

    tables = published_tables() if name is None else (published_table(name),)
    if csv is not None and is_standard_output(csv) and as_json:
        raise OutputError("-", "stdout takes one output; name a file for the other")
    if csv is not None:
        if not is_standard_output(csv):
            require_replaceable(csv, "CSV of published tables", overwrite)
        write_output(published_csv(tables).encode(), csv)
    if as_json:
        page = [_table_json(table, checks(table)) for table in tables]
        print_json(page[0] if name is not None else page)
    elif csv is None or not is_standard_output(csv):
        if name is None:
            _print_list(tables, out())
        else:
            _print_one(tables[0], out())
    if csv is not None and not is_standard_output(csv):
        say_written(csv)


def _table_json(table: PublishedTable, found: tuple[PublishedCheck, ...]) -> dict[str, Any]:
    source = {field: getattr(table, field) for field in ("name", "title", "place", "citation", "link", "license")}
    return {
        **source,
        "columns": {name: column._asdict() for name, column in table.columns.items()},
        "rows": [dict(row) for row in table.rows],
        "first_principles": [
            {
                "row": check.row,
                "column": check.column,
                "published": check.printed,
                "low": check.expected.interval.low,
                "high": check.expected.interval.high,
                "agrees": check.agrees,
                "untrained": check.expected.untrained,
                "basis": check.expected.basis,
            }
            for check in found
        ],
    }


def _print_list(tables: tuple[PublishedTable, ...], console: Console) -> None:
    from rmtbase.results.comparison import checks
    from rmtbase.terminal.rows import Column, print_rows

    rows = []
    for table in tables:
        derived = [check for check in checks(table) if not check.expected.untrained]
        agreeing = sum(check.agrees for check in derived)
        rows.append((table.name, table.title, table.place, f"{agreeing} of {len(derived)}" if derived else ""))
    columns = [Column("table", "left"), Column("of", "left"), Column("place", "left"), Column("derived, and agree")]
    print_rows(console, columns, rows)
    console.print("rmtbase published NAME prints one beside what its numbers are from first principles.", style="dim")


def _print_one(table: PublishedTable, console: Console) -> None:
    """The table as printed, then each number that is known from first principles."""
    from rmtbase.results.comparison import checks, our_name
    from rmtbase.terminal.rows import Column, print_rows
    from rmtbase.terminal.streams import cell

    console.print(cell(f"{table.title}: {table.place}", "bold"))
    console.print(cell(", ".join(part for part in (table.citation, table.link, table.license) if part)))
    ours = [our_name(label) for label in table.labels]
    heading = [*(column.words + (f", {column.unit}" if column.unit else "") for column in table.columns.values())]
    heading += ["here"] if any(ours) else []
    texts = any(ours) or table.name.endswith("-text")
    columns = [Column(words, "left" if texts or not place else "right") for place, words in enumerate(heading)]
    cells = [(*row.values(), *([own] if any(ours) else [])) for row, own in zip(table.rows, ours, strict=True)]
    print_rows(console, columns, cells)
    found = checks(table)
    if not found:
        return
    several = len({check.column for check in found}) > 1
    rows = [
        (
            check.row,
            *([check.column] if several else []),
            check.printed,
            _shown(check),
            ("yes" if check.agrees else "no"),
            ("untrained: " if check.expected.untrained else "") + check.expected.basis,
        )
        for check in found
    ]
    columns = [Column("of", "left"), *([Column("column", "left")] if several else [])]
    columns += [Column("published"), Column("from first principles"), Column("agrees"), Column("which is", "left")]
    print_rows(console, columns, rows, named=1 + several, title="From first principles")


def _shown(check: PublishedCheck) -> str:
    """A point, or both ends of an interval, to two digits more than are printed."""
    mantissa, _, exponent = check.printed.partition("e")
    places = len(mantissa.partition(".")[2]) + 2
    low, high = (f"{end * 10 ** -int(exponent or 0):.{places}f}" for end in check.expected.interval)
    if "." not in mantissa:
        low, high = (f"{end:.{places}f}".rstrip("0").rstrip(".") for end in check.expected.interval)
    power = f"e{exponent}" if exponent else ""
    return f"{low}{power}" if low == high else f"{low} to {high}{power}"
