"""``rmtbase doctor``: what is installed, and whether it computes as it should."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console


def doctor() -> None:
    """Print what is installed, on which devices it runs and by which solvers, and check double precision.

    Example: rmtbase doctor --json
    """
    from rmtbase.diagnosis import examine
    from rmtbase.terminal.output import show

    facts = examine()
    show(lambda: facts, partial(_print_facts, facts))
    if facts["precision"]["verdict"] != "good":
        raise typer.Exit(1)


def _print_facts(facts: dict[str, Any], console: Console) -> None:
    from rmtbase.shown import shown

    for section, entries in facts.items():
        print(section)
        for name, value in entries.items():
            print(f"  {shown(name):<28} {shown(value)}")
