"""The reference of the command line: every command and option, in the words of its own help."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from _generate import as_plain, write_page
from rmtbase.cli._app import app


def write_commands() -> None:
    """Write the page of all commands."""
    group: Any = typer.main.get_command(app)
    with group.make_context("rmtbase", [], resilient_parsing=True) as context:
        parts = list(_section("rmtbase", group, context))
        for name, command in group.commands.items():
            with command.make_context(name, [], parent=context, resilient_parsing=True) as below:
                parts += _section(f"rmtbase {name}", command, below)
    write_page("commands.md", "# Command line\n\n" + "\n\n".join(parts) + "\n")


def _section(name: str, command: Any, context: Any) -> Iterator[str]:
    yield f"## {name}"
    for paragraph in (command.help or "").split("\n\n"):
        text = " ".join(paragraph.split())
        yield re.sub(r"rmtbase [a-z]+ .*", lambda line: f"`{line[0]}`", text) if "rmtbase " in text else as_plain(text)
    yield f"```none\n{command.get_usage(context).removeprefix('Usage: ')}\n```"
    for param in command.get_params(context):
        record = param.get_help_record(context)
        if record is not None:
            yield f"`{record[0]}`\n: {as_plain(' '.join(record[1].split()))}"
