"""Which cases of a test run always, and which only with ``pytest -m exhaustive``."""

from collections.abc import Container, Iterable

import pytest


def mostly_exhaustive(cases: Iterable, always: Container) -> list:
    """Parameters of a test, exhaustive but for those in ``always``, which may name tuples by their first value."""
    found = []
    for case in cases:
        values = case if isinstance(case, tuple) else (case,)
        marks = () if case in always or values[0] in always else pytest.mark.exhaustive
        found.append(pytest.param(*values, marks=marks))
    return found
