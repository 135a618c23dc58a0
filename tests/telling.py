"""A progress reporter that keeps what it is told: its items are the notes, and it counts the steps of each bar."""

from collections import Counter


class Told(list):
    def __init__(self):
        super().__init__()
        self.steps = Counter()

    def bar(self, label, total):
        def advance(count):
            self.steps[label] += count

        return advance

    def note(self, line):
        self.append(line)
