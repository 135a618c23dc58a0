"""``rmtbase doctor``: what is installed, and whether it computes as it should."""

import typer


def doctor() -> None:
    """Print what is installed, on which devices it runs and by which solvers, and check double precision.

    Example: rmtbase doctor --json
    """
    from rmtbase.diagnosis import examine
    from rmtbase.shown import shown
    from rmtbase.terminal.output import show

    facts = examine()

    def print_facts(console: object) -> None:
        for section, entries in facts.items():
            print(section)
            for name, value in entries.items():
                print(f"  {shown(name):<28} {shown(value)}")

    show(lambda: facts, print_facts)
    if facts["precision"]["verdict"] != "good":
        raise typer.Exit(1)
