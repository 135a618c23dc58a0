"""``rmtbase row-norms``: is a row of a head's W_Q or W_K longer than chance makes it?"""

from rmtbase.terminal.options import ModelArgument, Output


def row_norms(model: ModelArgument, output: Output = None) -> None:
    """Row norms: is one row of a head's W_Q or W_K longer than chance makes it?

    Example: rmtbase row-norms demo -o rows.nc -o rows.html, then rmtbase plot rows.nc
    """
    from rmtbase.results.outputs import Outputs

    Outputs(output, "row_norms").run(model)


COMMAND = row_norms
