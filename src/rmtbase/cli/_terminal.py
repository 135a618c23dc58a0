"""What commands share on the terminal: progress and notes on stderr, tables on stdout.

Nothing that is printed here is ever read as markup, and :func:`cell` makes any text harmless and short.
"""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Display
from rich.text import Text

from rmtbase.cli._endings import say
from rmtbase.cli._signals import raise_received
from rmtbase.errors import RmtbaseWarning
from rmtbase.progress import Progress
from rmtbase.shown import one_line, shown

_WIDTH = 160  # where stdout is no terminal


class _Plain(Console):
    """A console that prints text as it is: no markup, no links, no emoji codes, no colours for what looks like code."""

    def __init__(self, *, stderr: bool = False, width: int | None = None) -> None:
        stream = sys.stderr if stderr else sys.stdout
        super().__init__(file=stream, markup=False, emoji=False, highlight=False, soft_wrap=False, width=width)

    def on_broken_pipe(self) -> NoReturn:
        """Nobody reads any more: for the command line to end on, as everywhere else."""
        raise BrokenPipeError


def out() -> Console:
    """The console for results: stdout, 160 columns wide when it is not a terminal."""
    console = _Plain()
    return console if console.is_terminal else _Plain(width=_WIDTH)


def cell(value: object, style: str = "", longest: int = 300) -> Text:
    """Any value as harmless text of at most so many characters, in a style: a table's cell, a title, a heading."""
    return Text(shown(value, longest), style)


def print_json(value: object) -> None:
    """A result as JSON on stdout: in ASCII, so that whatever stdout holds, JSON it stays."""
    print(json.dumps(_plain(value), indent=1, allow_nan=False))


def _plain(value: object) -> object:
    """A value as JSON holds it, which has neither NaN (null) nor infinity (a text)."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return None if math.isnan(value) else str(value)


def say_written(path: Path) -> None:
    """Name a file that was written, on stderr beside the result."""
    say(f"wrote {shown(path)}")


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """For the length of a ``with`` block, what this library warns of is a note, each once."""
    said: set[str] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("always", RmtbaseWarning)
        show_others = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if not issubclass(category, RmtbaseWarning):
                show_others(message, category, *where, **more)
            elif (line := one_line(str(message))) not in said:
                said.add(line)
                say(line)

        warnings.showwarning = show
        yield


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f}/s" if speed else "")


class Bars:
    """Progress as bars with a rate and the time left; silent but for notes where stderr is not a terminal.

    Each step of a bar raises an interrupt again that something has swallowed since the last.
    """

    def __init__(self, display: Display | None) -> None:
        self._display = display

    def bar(self, label: str, total: int | None) -> Callable[[int], None]:
        """A new bar; the callable that is returned advances it."""
        if self._display is None:
            return lambda count: raise_received()
        display = self._display
        task = display.add_task(shown(label), total=total)

        def advance(count: int) -> None:
            raise_received()
            display.advance(task, count)

        return advance

    def note(self, line: str) -> None:
        """A note above the bars."""
        raise_received()
        if self._display is None:
            say(line)
        else:
            self._display.console.print(Text(f"rmtbase: {one_line(line)}"), soft_wrap=True)


@contextmanager
def bars() -> Iterator[Progress]:
    """Bars on stderr for the length of a ``with`` block."""
    console = _Plain(stderr=True)
    if not console.is_terminal:
        yield Bars(None)
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    try:
        with Display(*columns, console=console, transient=True) as display:
            yield Bars(display)
    finally:
        console.show_cursor()  # where an interrupt came just as the bars were taken away
