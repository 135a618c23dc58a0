"""``rmtbase doctor``: what is installed, and whether it computes as it should."""

import typer


def doctor() -> None:
    """Print what is installed, on which devices it runs and by which solvers, and check double precision.

    Example: rmtbase doctor --json
    """
    from rmtbase.diagnosis import examine
    from rmtbase.shown import shown
    from rmtbase.terminal.output import show

    facts, lines = examine(), []
    for section, entries in facts.items():
        lines += [section, *(f"  {shown(name):<28} {shown(value)}" for name, value in entries.items())]
    show(lambda: facts, lambda console: print(*lines, sep="\n"))
    if facts["precision"]["verdict"] != "good":
        raise typer.Exit(1)
