"""Which cases of a test run always, and which only with ``pytest -m exhaustive``."""

from collections.abc import Container, Iterable

import pytest


def mostly_exhaustive(cases: Iterable, always: Container) -> list:
    """Parameters of a test, all exhaustive but those that are in ``always``, by themselves or by their first value."""
    return [one if one in always or _first(one) in always else _exhaustive(one) for one in cases]


def _first(case: object) -> object:
    return case[0] if isinstance(case, tuple) else None


def _exhaustive(case: object):
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.exhaustive)
