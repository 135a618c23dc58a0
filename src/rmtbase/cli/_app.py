"""The commands, and one run of one of them."""

from __future__ import annotations

import sys

import typer

from rmtbase.cli._baseline import baseline
from rmtbase.cli._cite import cite
from rmtbase.cli._constants import constants
from rmtbase.cli._demo import demo
from rmtbase.cli._depth import depth
from rmtbase.cli._doctor import doctor
from rmtbase.cli._endings import ended_by
from rmtbase.cli._law import law
from rmtbase.cli._plot import plot
from rmtbase.cli._score import score
from rmtbase.cli._terminal import warnings_as_notes
from rmtbase.errors import ParameterError

app = typer.Typer(
    name="rmtbase",
    help="How would this weight matrix look if it had learned nothing?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (demo, baseline, score, depth, law, constants, cite, plot, doctor):
    app.command()(command)


def _print_version(wanted: bool) -> None:
    if wanted:
        import rmtbase

        print(rmtbase.__version__)
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(
        False, "--version", help="Print the version and leave.", is_eager=True, callback=_print_version
    ),
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error; anywhere on the line."),
) -> None:
    """How would this weight matrix look if it had learned nothing?"""


def run(given: list[str]) -> int:
    """Run one command; whatever goes wrong is one line on stderr.

    Returns:
        The exit status.
    """
    debug = "--debug" in given
    try:
        with warnings_as_notes():
            status = _command([argument for argument in given if argument != "--debug"])
        sys.stdout.flush()
    except BaseException as error:
        return ended_by(error, debug)
    return status


def _command(arguments: list[str]) -> int:
    for argument in arguments:
        if "\0" in argument:
            raise ParameterError("argument", argument, "text without NUL characters, which no name holds")
    # Neither of click's own main, which ends lines and prints tracebacks its way when it is interrupted.
    command = typer.main.get_command(app)
    try:
        with command.make_context("rmtbase", arguments) as context:
            command.invoke(context)
    except typer.Exit as left:
        return left.exit_code
    return 0
