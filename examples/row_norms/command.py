"""``rmtbase row-norms``: is a row of a head's W_Q or W_K longer than chance makes it?"""

from functools import partial
from typing import Any

import xarray as xr
from rich.console import Console

from rmtbase.terminal.options import ModelArgument, Output


def row_norms(model: ModelArgument, output: Output = None) -> None:
    """Row norms: is one row of a head's W_Q or W_K longer than chance makes it?

    Example: rmtbase row-norms demo -o rows.nc, then rmtbase plot rows.nc
    """
    from rmtbase.results.row_norms.measure import row_norms

    from rmtbase.models import open_model
    from rmtbase.terminal.output import Outputs

    files = Outputs(output, "row_norms")
    opened = open_model(model)
    files.require_replaceable(opened)
    table = row_norms(opened)
    files.finish(table, partial(_as_json, table), partial(_print, table))


def _as_json(table: xr.Dataset) -> dict[str, Any]:
    from rmtbase.results.row_norms.rows import headline, row_norm_rows

    return {"sentence": headline(table), "heads": row_norm_rows(table)}


def _print(table: xr.Dataset, console: Console) -> None:
    from rmtbase.results.row_norms.rows import headline, row_norm_rows

    print(headline(table))
    for row in row_norm_rows(table)[:5]:
        print(f"layer {row['layer']} head {row['head']} {row['component']}: q = {row['q_value']:.2g}")


COMMAND = row_norms
