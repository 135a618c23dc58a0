"""What commands share on the terminal: progress and notes on stderr, tables on stdout."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text


def out() -> Console:
    """The console for results: stdout, 160 columns wide when it is not a terminal."""
    console = Console(file=sys.stdout, highlight=False, soft_wrap=False)
    return console if console.is_terminal else Console(file=sys.stdout, highlight=False, width=160)


def note(line: str) -> None:
    """One line for the user to see beside the result, on stderr."""
    print(f"rmtbase: {line}", file=sys.stderr)


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f}/s" if speed else "")


class Bars:
    """Progress bars with a rate and the time left; silent where stderr is not a terminal."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress

    def bar(self, label: str, total: int | None) -> Callable[[int], None]:
        """A new bar; the callable that is returned advances it."""
        if self._progress is None:
            return lambda count: None
        progress = self._progress
        task = progress.add_task(label, total=total)

        def advance(count: int) -> None:
            progress.advance(task, count)

        return advance

    def note(self, line: str) -> None:
        """A note above the bars."""
        if self._progress is None:
            note(line)
        else:
            self._progress.console.print(f"rmtbase: {line}", highlight=False, markup=False)


@contextmanager
def bars() -> Iterator[Bars]:
    """Bars on stderr for the length of a ``with`` block."""
    console = Console(file=sys.stderr)
    if not console.is_terminal:
        yield Bars(None)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        yield Bars(progress)
