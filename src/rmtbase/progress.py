"""Progress reports of long work: one object with bars and notes, passed down from the caller."""

from collections.abc import Callable, Iterable
from typing import Protocol


class Progress(Protocol):
    """Receiver of progress reports from any thread: on a terminal, bars with a rate and notes above; else lines."""

    def bar(self, label: str, total: int) -> Callable[[int], None]:
        """Begin a bar of ``total`` steps; call the returned function with the number of steps since the last call."""
        ...

    def note(self, line: str) -> None:
        """Report one line that its reader should see now: what is resumed, what could not be read."""

    def detail(self, line: str) -> None:
        """Report one line that the result also records: where a null came from, what was noted about a model."""


class _Silent:
    def bar(self, label: str, total: int) -> Callable[[int], None]:
        return lambda count: None

    def note(self, line: str) -> None:
        pass

    def detail(self, line: str) -> None:
        pass


SILENT: Progress = _Silent()  #: Progress that reports nothing


class NotedOnce:
    """Progress that passes on each line only once; ``seen`` are lines that it does not pass on."""

    def __init__(self, progress: Progress, seen: Iterable[str] = ()) -> None:
        self._progress, self._seen = progress, set(seen)

    def bar(self, label: str, total: int) -> Callable[[int], None]:
        """Begin a bar."""
        return self._progress.bar(label, total)

    def note(self, line: str) -> None:
        """Report a line the first time."""
        if line not in self._seen:
            self._seen.add(line)
            self._progress.note(line)

    def detail(self, line: str) -> None:
        """Report a line that the result records the first time."""
        if line not in self._seen:
            self._seen.add(line)
            self._progress.detail(line)
