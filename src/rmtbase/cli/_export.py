"""``rmtbase export``: any table as CSV, Parquet or LaTeX."""

from pathlib import Path
from typing import Annotated

import typer

from rmtbase.terminal.command_line import words
from rmtbase.terminal.completion import one_of

_SUFFIXES = {".csv": "csv", ".parquet": "parquet", ".tex": "latex"}


def export(
    file: Annotated[Path, typer.Argument(help="Any file that rmtbase writes, except an atlas.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write; '-', or none: stdout.")] = None,
    file_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="csv, parquet (which needs pyarrow) or latex. Default: by the output's name (.csv, .parquet, .tex), "
            "else csv.",
            autocompletion=one_of("csv", "parquet", "latex"),
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            help="Kind of row: heads (a row for each statistic), by_head (a row for each head), elements, matrices, "
            "experts, super_weights, departures, models, components, pairs, drifts, groups, or a further circuit; an "
            "unknown name lists them. Default: the first."
        ),
    ] = None,
    statistics: Annotated[
        str | None,
        typer.Option(
            "--statistic", help="Only rows of these statistics: names, separated by commas, with * as a wildcard."
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(help="These columns, separated by commas. Default: all; for LaTeX those that suit print."),
    ] = None,
) -> None:
    r"""Write a table for other programs: one row for each thing measured, as CSV, Parquet or LaTeX (booktabs).

    Example: rmtbase export scores.nc --group by_head -o heads.csv

    For a paper: rmtbase export gpt2.nc -o gpt2.tex; a few rows: rmtbase export scores.nc --statistic effective_rank
    """
    from rmtbase.errors import ParameterError
    from rmtbase.results import open_table
    from rmtbase.tables import EXPORT_FORMATS, require_replaceable, require_writable, write_bytes
    from rmtbase.tables import export as exported
    from rmtbase.terminal.output import JSON, is_standard_output, write_to_standard_output
    from rmtbase.terminal.streams import print_json, say_written

    named = None if output is None or is_standard_output(output) else output
    by_name = _SUFFIXES.get(named.suffix.lower()) if named is not None else None
    if file_format and by_name and file_format != by_name and file_format in EXPORT_FORMATS:
        raise ParameterError("--format", file_format, f"{by_name}, as {named} ends, or another name")
    kind = file_format or by_name or "csv"
    if named is not None:
        require_writable(named)
    table = open_table(file)
    content = exported(
        table,
        "json" if JSON.get() and named is None else kind,  # type: ignore[arg-type]  # checked where it is used
        group=group,
        statistics=None if statistics is None else words(statistics),
        columns=None if columns is None else words(columns),
    )
    if named is None:
        write_to_standard_output(content)
    else:
        titles = content.partition(b"\n")[0].decode(errors="replace")
        variants = {"csv": [titles], "parquet": [table.attrs["kind"]]}.get(kind, ())
        require_replaceable(named, kind, inputs=[file], variants=variants)
        say_written(write_bytes(content, named))
        if JSON.get():
            print_json([str(named)])
