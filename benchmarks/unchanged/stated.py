"""What is meant to differ: names that moved, and numbers that may round otherwise. All else must be the same."""

from __future__ import annotations

from fnmatch import fnmatchcase

MOVED: dict[str, str] = {}
"""Public names below ``rmtbase`` that moved, old: new; a class takes its methods along."""

GONE: dict[str, str] = {}
"""Patterns of public names that went, each with the reason."""

SIGNATURES: dict[str, str] = {}
"""Patterns of public names whose parameters changed, each with the reason."""

REPORTERS = frozenset({"progress", "bar", "note", "layer_done", "matrix_done"})
"""Parameters that one ``progress`` replaces: signatures are compared without them."""

BOUNDS: dict[str, float] = {}
"""Largest relative difference of the numbers of an entry, by pattern of ``section/entry``; 0 for all others."""


def moved(name: str) -> str:
    """Where a name of before is now: itself, if it did not move."""
    for old, new in MOVED.items():
        if name == old or name.startswith(f"{old}."):
            return new + name.removeprefix(old)
    return name


def bound(name: str) -> float:
    """How far an entry's numbers may differ."""
    return max((size for pattern, size in BOUNDS.items() if fnmatchcase(name, pattern)), default=0.0)


def reason(name: str, table: dict[str, str]) -> str | None:
    """Why a name may have gone, or have other parameters; None if it may not."""
    return next((why for pattern, why in table.items() if fnmatchcase(name, pattern)), None)
