"""The command line: one file per command, parsing and printing only."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence

import typer

from rmtbase.cli._baseline import baseline
from rmtbase.cli._constants import constants
from rmtbase.cli._demo import demo
from rmtbase.cli._depth import depth
from rmtbase.cli._doctor import doctor
from rmtbase.cli._law import law
from rmtbase.cli._plot import plot
from rmtbase.cli._score import score
from rmtbase.errors import RmtbaseError

__all__ = ["main"]

app = typer.Typer(
    name="rmtbase",
    help="How would this weight matrix look if it had learned nothing?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (demo, baseline, score, depth, law, constants, plot, doctor):
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


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; errors are one line on stderr and exit status 2."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    given = [argument for argument in given if argument != "--debug"]
    try:
        # Without standalone mode an Exit's status comes back as a value, and errors as exceptions.
        status = typer.main.get_command(app).main(given, prog_name="rmtbase", standalone_mode=False)
    except RmtbaseError as error:
        if debug:
            traceback.print_exc()
        raise SystemExit(_refuse(str(error))) from error
    except (typer.Abort, KeyboardInterrupt) as error:
        print("rmtbase: stopped", file=sys.stderr)
        raise SystemExit(130) from error
    except Exception as error:
        # A wrong command line: click's UsageError, which typer ships as its own copy in some versions.
        message = getattr(error, "format_message", None)
        if message is None or debug:
            raise
        if not message():  # no arguments at all: the help is printed already
            raise SystemExit(2) from error
        raise SystemExit(_refuse(f"{message()} (rmtbase --help explains the commands)")) from error
    raise SystemExit(status if isinstance(status, int) else 0)


def _refuse(message: str) -> int:
    line = " ".join(message.split())
    print(f"rmtbase: error: {line}", file=sys.stderr)
    return 2
