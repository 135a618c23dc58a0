"""Terminal output of all commands: progress and notes on stderr, tables on stdout; no text is read as markup."""

import json
import math
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Display
from rich.text import Text

from rmtbase.errors import ParameterError, RmtbaseWarning
from rmtbase.progress import Progress
from rmtbase.shown import json_safe, one_line, shown
from rmtbase.terminal.endings import VERBOSITY, Verbosity, detail, note, say
from rmtbase.terminal.signals import raise_received

_WIDTH = 100_000  # if stdout is no terminal, so that no line is broken
PRINTED = ContextVar("printed", default=False)  #: True if the running command has printed its result as JSON
_FIRST_LINE, _NEXT_LINES = 30.0, 60.0  # seconds between lines about long work if stderr is no terminal
_EVERY = "RMTBASE_PROGRESS_SECONDS"


class _Plain(Console):
    """Console that prints text verbatim: no markup, no links, no emoji codes, no colours for what looks like code."""

    def __init__(self, *, stderr: bool = False, width: int | None = None) -> None:
        stream = sys.stderr if stderr else sys.stdout
        is_terminal = stream.isatty()  # ignores FORCE_COLOR, which some CI systems set for logs
        verbatim: dict[str, Any] = {"markup": False, "emoji": False, "highlight": False, "soft_wrap": False}
        super().__init__(file=stream, force_terminal=is_terminal, width=width, **verbatim)

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError


def out() -> Console:
    """Make the console for results: stdout; if it is not a terminal, ``COLUMNS`` wide, or without it never wrapped."""
    console = _Plain()
    columns = os.environ.get("COLUMNS", "")
    if console.is_terminal:
        return console
    return _Plain(width=int(columns) if columns.isdecimal() and int(columns) else _WIDTH)


def cell(value: object, style: str = "", longest: int = 300) -> Text:
    """Convert a value to harmless styled text of at most ``longest`` characters: a table's cell, a title, a heading."""
    return Text(shown(value, longest), style)


def print_json(value: object) -> None:
    """Print a result as JSON on stdout, in ASCII, which is valid in every encoding of stdout."""
    text = json.dumps(json_safe(value), indent=1, allow_nan=False)
    PRINTED.set(True)
    print(text)


def say_written(*paths: Path) -> None:
    """Name the files that were written, on stderr."""
    if paths:
        note(f"wrote {' and '.join(map(shown, paths))}")


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Print warnings of this library as notes during a ``with`` block, each only once."""
    lines: set[str] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("always", RmtbaseWarning)
        show_others = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **options: Any) -> None:
            if not issubclass(category, RmtbaseWarning):
                show_others(message, category, *place, **options)
            elif (line := one_line(str(message))) not in lines:
                lines.add(line)
                note(line)

        warnings.showwarning = show
        yield


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(_rate(speed) if speed else "")


class _Bar:
    def __init__(self, label: str, total: int) -> None:
        self.label, self.total, self.done = shown(label), total, 0
        self._begin = self._last = time.monotonic()

    def advance(self, count: int) -> None:
        """Advance by ``count`` steps; raise an interrupt again if something has swallowed it since the last call."""
        raise_received()
        self.done, self._last = self.done + count, time.monotonic()

    def __str__(self) -> str:
        words = f"{self.label}: {self.done:,} of {self.total:,}"
        seconds = self._last - self._begin
        if not self.done or not seconds:
            return words
        if self.done >= self.total:
            return f"{words} in {_duration(seconds)}, {_rate(self.done / seconds)}"
        left = (self.total - self.done) * seconds / self.done
        return f"{words}, {_rate(self.done / seconds)}, {_duration(left)} left"


class Bars:
    """Progress as bars with a rate and the time left; if stderr is no terminal, as a line from time to time."""

    def __init__(self, display: Display | None) -> None:
        self._display = display
        self._bars: list[_Bar] = []

    def bar(self, label: str, total: int) -> Callable[[int], None]:
        """Add a bar, and return the callable that advances it."""
        bar = _Bar(label, total)
        self._bars.append(bar)
        if self._display is None:
            return bar.advance
        display, task = self._display, self._display.add_task(bar.label, total=total)

        def advance(count: int) -> None:
            bar.advance(count)
            display.advance(task, count)

        return advance

    def note(self, line: str) -> None:
        """Print a note above the bars."""
        raise_received()
        if self._display is None:
            note(line)
        else:
            self._display.console.print(Text(f"rmtbase: {one_line(line)}"), soft_wrap=True)

    def detail(self, line: str) -> None:
        """Print a line with ``--verbose``."""
        if VERBOSITY.get() >= Verbosity.VERBOSE:
            self.note(line)

    def lines(self) -> list[str]:
        """Describe each bar in words, the most recent one last."""
        return [str(bar) for bar in self._bars]

    def unfinished(self) -> list[str]:
        """Describe each unfinished bar in words."""
        return [str(bar) for bar in self._bars if bar.done < bar.total]


def _rate(speed: float) -> str:
    return f"{speed:,.0f}/s" if speed >= 10 else f"{speed:.1f}/s" if speed >= 0.1 else f"{60 * speed:.2g}/min"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


@contextmanager
def bars() -> Iterator[Progress]:
    """Show progress on stderr during a ``with`` block."""
    console, quiet = _Plain(stderr=True), VERBOSITY.get() < Verbosity.NORMAL
    progress = Bars(None)
    try:
        if quiet:
            yield progress
        elif not console.is_terminal:
            with _told_from_time_to_time(progress):
                yield progress
        else:
            columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), _Rate())
            remaining = (TextColumn("left"), TimeRemainingColumn())
            with Display(*columns, *remaining, console=console, transient=True) as display:
                progress = Bars(display)
                yield progress
    finally:
        if console.is_terminal and not quiet:
            console.show_cursor()  # an interrupt may have come just as the bars were removed
    for line in progress.lines():
        detail(line)


@contextmanager
def _told_from_time_to_time(progress: Bars) -> Iterator[None]:
    text, seconds = os.environ.get(_EVERY), _NEXT_LINES
    if text:
        try:
            seconds = float(text)
        except ValueError:
            seconds = math.nan
        if not 0 < seconds <= threading.TIMEOUT_MAX:
            raise ParameterError(_EVERY, text, "a positive number of seconds")
    begin, ended = time.monotonic(), threading.Event()

    def tell() -> None:
        wait = min(seconds, _FIRST_LINE)
        while not ended.wait(wait):
            wait = seconds
            say("; ".join(progress.unfinished()) or f"at work for {_duration(time.monotonic() - begin)}")

    teller = threading.Thread(target=tell, name="rmtbase-progress", daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()  # finishes a line that it has begun before later lines are printed
