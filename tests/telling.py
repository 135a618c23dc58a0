"""A progress reporter that keeps what it is told."""

from collections import Counter


class Told(list):
    """Its items are the notes, also by the name ``notes``; ``steps`` and ``totals`` are of its bars, by label."""

    def __init__(self, bar=None):
        super().__init__()
        self.notes, self.steps, self.totals, self._bar = self, Counter(), Counter(), bar

    def bar(self, label, total):
        self.totals[label] += total

        def advance(count):
            self.steps[label] += count

        return advance if self._bar is None else self._bar(label, total)

    def note(self, line):
        self.append(line)

    detail = note
