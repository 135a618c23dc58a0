"""What a word on the command line may become, for the shell: names alone, from data that is read at once.

Where nothing is offered the shell completes files.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

Completion = Callable[[str], list[str]]


def one_of(*words: str) -> Completion:
    """The words an option takes."""

    def completion(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return completion


def models(incomplete: str) -> list[str]:
    """The bundled model and those known by name."""
    from rmtbase.models import known_models

    return one_of("demo", *(known.name for known in known_models()))(incomplete)


def revisions(incomplete: str) -> list[str]:
    """Those of the bundled model."""
    from rmtbase.models import demo_revisions

    return one_of(*demo_revisions())(incomplete)


def some_of(*words: str) -> Completion:
    """The words that a list may hold, after those that it does."""

    def completion(incomplete: str) -> list[str]:
        held, comma, begun = incomplete.rpartition(",")
        return [f"{held}{comma}{word}" for word in one_of(*words)(begun) if word not in held.split(",")]

    return completion


def revisions_of(incomplete: str) -> list[str]:
    """Some of those of the bundled model, or all."""
    from rmtbase.models import demo_revisions

    return some_of("all", *demo_revisions())(incomplete)


def circuits(incomplete: str) -> list[str]:
    """Names of circuits, after those that a list holds already."""
    from rmtbase.tables import CIRCUITS

    return some_of(*CIRCUITS)(incomplete)


nulls = some_of("gaussian", "kurtosis", "signs", "axes")


questions = some_of("all", "spectrum", "entries", "directions", "relation")


parts = some_of("layers", "embeddings", "experts", "all")


def components(incomplete: str) -> list[str]:
    """Names of weight matrices."""
    from rmtbase.models import COMPONENTS

    return one_of(*COMPONENTS)(incomplete)


def constants(incomplete: str) -> list[str]:
    """Names of constants and of functions of the shape."""
    from rmtbase.constants import groups

    return one_of(*(entry.name for entries in groups().values() for entry in entries))(incomplete)


def constant_sets(incomplete: str) -> list[str]:
    """Names of released sets of constants."""
    from rmtbase.constants import sets

    return one_of(*sets())(incomplete)


def plans(incomplete: str) -> list[str]:
    """Plans, and folders that may hold some."""
    given = Path(incomplete)
    folder, begun = (given, "") if incomplete.endswith("/") else (given.parent, given.name)
    try:
        found = sorted(path for path in folder.expanduser().iterdir() if path.name.startswith(begun))
    except OSError:
        return []
    before = incomplete[: len(incomplete) - len(begun)]
    folders = [f"{before}{path.name}/" for path in found if path.is_dir() and not path.name.startswith(".")]
    return [f"{before}{path.name}" for path in found if path.suffix == ".toml"] + folders
