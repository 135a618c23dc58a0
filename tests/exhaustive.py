"""Which cases of a test run always, and which only with ``pytest -m exhaustive``."""

from collections.abc import Container, Iterable

import pytest


def mostly_exhaustive(cases: Iterable, always: Container | int, weekly: bool = False) -> list:
    """Parameters of a test, exhaustive but for the first so many, or those in ``always``, if need be by first value.

    ``weekly`` is whether the exhaustive ones take minutes together, so that they run once a week.
    """
    marks = (pytest.mark.exhaustive, pytest.mark.weekly) if weekly else (pytest.mark.exhaustive,)
    found = []
    for number, case in enumerate(cases):
        values = case if isinstance(case, tuple) else (case,)
        kept = number < always if isinstance(always, int) else case in always or values[0] in always
        found.append(pytest.param(*values, marks=() if kept else marks))
    return found
