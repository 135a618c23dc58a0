"""``rmtbase doctor``: what is installed, and whether it computes as it should."""

from __future__ import annotations

from typing import Annotated

import typer


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False) -> None:
    """Say what is installed, on which devices it runs, how it would solve, and check that double precision holds.

    Example: rmtbase doctor --json
    """
    from rmtbase.diagnosis import examine
    from rmtbase.shown import shown
    from rmtbase.terminal.streams import print_json

    facts = examine()
    if as_json:
        print_json(facts)
    else:
        for section, entries in facts.items():
            print(section)
            for name, value in entries.items():
                print(f"  {shown(name):<28} {shown(value)}")
    if facts["precision"]["verdict"] != "good":
        raise typer.Exit(1)
