"""Completion of names on the command line, for the shell; where nothing is offered, it completes file names."""

from __future__ import annotations

from collections.abc import Callable

Completion = Callable[[str], list[str]]


def one_of(*words: str) -> Completion:
    """Complete one of the words that an option takes."""

    def completion(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return completion


def models(incomplete: str) -> list[str]:
    """Complete the bundled model, with its revisions after ``demo@``, or a model known by name."""
    from rmtbase.models import demo_revisions, known_models

    if "@" in incomplete:
        return one_of(*(f"demo@{revision}" for revision in demo_revisions()))(incomplete)
    return one_of("demo", *(model.name for model in known_models()))(incomplete)


def some_of(*words: str) -> Completion:
    """Complete a list with words that it does not hold yet."""

    def completion(incomplete: str) -> list[str]:
        words_before, comma, begun = incomplete.rpartition(",")
        return [f"{words_before}{comma}{word}" for word in one_of(*words)(begun) if word not in words_before.split(",")]

    return completion


def revisions_of(incomplete: str) -> list[str]:
    """Complete a list of revisions of the bundled model, or ``all``."""
    from rmtbase.models import demo_revisions

    return some_of("all", *demo_revisions())(incomplete)


def circuits(incomplete: str) -> list[str]:
    """Complete a list of names of circuits."""
    from rmtbase.tables import CIRCUITS

    return some_of(*CIRCUITS)(incomplete)


nulls = some_of("gaussian", "kurtosis", "signs", "axes")
questions = some_of("all", "spectrum", "entries", "directions", "relation")
parts = some_of("layers", "embeddings", "experts", "all")


def components(incomplete: str) -> list[str]:
    """Complete the name of a weight matrix."""
    from rmtbase.models import COMPONENTS

    return one_of(*COMPONENTS)(incomplete)


def constants(incomplete: str) -> list[str]:
    """Complete the name of a constant, or of a function of the shape."""
    from rmtbase.constants import groups

    return one_of(*(entry.name for entries in groups().values() for entry in entries))(incomplete)
