"""A progress that keeps what it is told."""


class Told:
    """Notes are kept in ``notes``, and draws counted in ``counts``; ``bar`` may take the place of the bars."""

    def __init__(self, bar=None):
        self.notes, self.counts, self._bar = [], [], bar

    def bar(self, label, total):
        return self.counts.append if self._bar is None else self._bar(label, total)

    def note(self, line):
        self.notes.append(line)
