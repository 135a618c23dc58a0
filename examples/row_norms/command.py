"""``rmtbase row-norms``: is a row of a head's W_Q or W_K longer than chance makes it?"""

from pathlib import Path
from typing import Annotated

import typer

from rmtbase.terminal.command_line import Overwrite
from rmtbase.terminal.scoring_options import ModelArgument


def row_norms(
    model: ModelArgument,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write (netCDF4).")] = None,
    overwrite: Overwrite = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print every head as JSON.")] = False,
) -> None:
    """Row norms: is one row of a head's W_Q or W_K longer than chance makes it?

    Example: rmtbase row-norms demo -o rows.nc, then rmtbase plot rows.nc
    """
    from rmtbase.results.row_norms.measure import row_norms as measure
    from rmtbase.results.row_norms.rows import headline, row_norm_rows

    from rmtbase.models import open_model, require_other_files
    from rmtbase.tables import write_table
    from rmtbase.terminal.output import require_output, require_replaceable
    from rmtbase.terminal.streams import print_json, say_written

    opened = open_model(model)
    if output is not None:
        require_output(output, "netCDF")
        require_other_files([output], opened)
        require_replaceable(output, "netCDF", overwrite, "row_norms", [opened.path])
    table = measure(opened)
    if output is not None:
        write_table(table, output)
    if as_json:
        print_json({"sentence": headline(table), "heads": row_norm_rows(table)})
    else:
        print(headline(table))
        for row in row_norm_rows(table)[:5]:
            print(f"layer {row['layer']} head {row['head']} {row['component']}: q = {row['q_value']:.2g}")
    if output is not None:
        say_written(output)


COMMAND = row_norms
