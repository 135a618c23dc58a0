"""Command-line application: all commands, and the function that runs one."""

import os
import sys
import time
from functools import cache
from importlib import import_module
from platform import python_version

import typer
from typer.completion import shell_complete

import rmtbase
from rmtbase.cli._cite import cite
from rmtbase.cli._constants import constants
from rmtbase.cli._demo import demo
from rmtbase.cli._doctor import doctor
from rmtbase.cli._export import export
from rmtbase.cli._inspect import inspect
from rmtbase.cli._law import law
from rmtbase.cli._plot import plot
from rmtbase.errors import ParameterError
from rmtbase.results import FOLDERS
from rmtbase.shown import shown
from rmtbase.terminal.command_line import Command
from rmtbase.terminal.endings import VERBOSITY, Verbosity, detail, ended_by
from rmtbase.terminal.environment import require_settings
from rmtbase.terminal.output import JSON
from rmtbase.terminal.streams import PRINTED, warnings_as_notes

_COMPLETION = "_RMTBASE_COMPLETE"  # set by the shell's script when it asks for completions
_built = cache(typer.main.get_command)

app = typer.Typer(
    name="rmtbase",
    help="How would this weight matrix look if it had learned nothing?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_OF_KINDS = tuple(import_module(f"rmtbase.results.{folder}.command").COMMAND for folder in FOLDERS)
_COMMANDS = (demo, *_OF_KINDS, inspect, law, constants, cite, plot, export, doctor)
for command in _COMMANDS:
    app.command(cls=Command)(command)


def _print_version(is_given: bool) -> None:
    if is_given:
        print(rmtbase.__version__)
        raise typer.Exit


def _verbosity(param: typer.CallbackParam, is_given: bool) -> None:
    if not is_given:
        return
    chosen = Verbosity[str(param.name).upper()]
    if VERBOSITY.get() not in (Verbosity.NORMAL, chosen):
        raise typer.BadParameter("expected one of --quiet and --verbose")
    VERBOSITY.set(chosen)


@app.callback()
def options(
    version: bool = typer.Option(
        False, "--version", "-V", help="Print the version and exit.", is_eager=True, callback=_print_version
    ),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="Print only errors and the result.", callback=_verbosity),
    verbose: bool = typer.Option(
        False, "--verbose", "-v", help="Print more: versions, where a null comes from, times.", callback=_verbosity
    ),
    as_json: bool = typer.Option(
        False,
        "--json",
        help="Print the result, or the error, as JSON.",
        callback=lambda is_given: JSON.set(is_given or JSON.get()),
    ),
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error; allowed anywhere on the line."),
) -> None:
    """How would this weight matrix look if it had learned nothing?

    Long work shows progress bars on a terminal. Elsewhere it prints a line on stderr from time to time, every
    RMTBASE_PROGRESS_SECONDS if that is set.
    """


def run(arguments: list[str]) -> int:
    debug, begin = "--debug" in arguments, time.monotonic()
    before, format_before, printed_before = VERBOSITY.set(Verbosity.NORMAL), JSON.set(False), PRINTED.set(False)
    try:
        with warnings_as_notes():
            status = _command([argument for argument in arguments if argument != "--debug"])
        sys.stdout.flush()
        versions = f"rmtbase {rmtbase.__version__}, Python {python_version()}"
        detail(f"took {time.monotonic() - begin:.1f} s; {versions}")
    except BaseException as error:
        return ended_by(error, debug, "--json" in arguments)
    finally:
        VERBOSITY.reset(before)
        JSON.reset(format_before)
        PRINTED.reset(printed_before)
    return status


def _command(arguments: list[str]) -> int:
    for argument in arguments:
        if "\0" in argument:
            raise ParameterError("argument", argument, "text without NUL characters, which no name holds")
    require_settings()
    # click's own main is not used, because it prints line ends and tracebacks of its own when it is interrupted.
    command = _built(app)
    if _COMPLETION in os.environ:
        asked, expected = os.environ[_COMPLETION], "what rmtbase --show-completion puts there; unset it"
        try:
            status = shell_complete(command, {}, "rmtbase", _COMPLETION, asked)
        except (KeyError, ValueError) as error:  # in the words typed so far, which are in other variables
            raise ParameterError(_COMPLETION, asked, f"{expected} ({shown(str(error))})") from error
        if status:
            raise ParameterError(_COMPLETION, asked, expected)
        return status
    try:
        with command.make_context("rmtbase", arguments) as context:
            command.invoke(context)
    except typer.Exit as left:
        return left.exit_code
    except SystemExit as left:  # raised by --show-completion and --install-completion
        return int(left.code or 0)
    return 0
