"""How long work tells of its progress: one object with bars and notes, given down from whoever asked for the work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Progress(Protocol):
    """What any thread tells while work goes on. On a terminal, bars with a rate and notes above them; else lines."""

    def bar(self, label: str, total: int) -> Callable[[int], None]:
        """Begin a bar of ``total`` steps; call what is returned with the steps since the last."""
        ...

    def note(self, line: str) -> None:
        """Tell one line: where a null came from, what is resumed, what was recorded about a model."""
        ...


class _Silent:
    def bar(self, label: str, total: int) -> Callable[[int], None]:
        return lambda count: None

    def note(self, line: str) -> None:
        pass


SILENT: Progress = _Silent()
"""Tells nothing."""
