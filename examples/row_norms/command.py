"""``rmtbase row-norms``: is a row of a head's W_Q or W_K longer than chance makes it?"""

from functools import partial

from rmtbase.terminal.options import ModelArgument, Output


def row_norms(model: ModelArgument, output: Output = None) -> None:
    """Row norms: is one row of a head's W_Q or W_K longer than chance makes it?

    Example: rmtbase row-norms demo -o rows.nc -o rows.html, then rmtbase plot rows.nc
    """
    from rmtbase.results.row_norms.measure import row_norms
    from rmtbase.results.row_norms.report import as_json, report

    from rmtbase.models import open_model
    from rmtbase.results.outputs import Outputs

    files = Outputs(output, "row_norms")
    opened = open_model(model)
    files.require_replaceable(opened)
    table = row_norms(opened)
    files.finish(table, partial(as_json, table), partial(report, table))


COMMAND = row_norms
