"""Completion of names on the command line, for the shell; where nothing is offered, it completes file names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

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


def _loaded(package: str, words: Callable[[Any], Iterable[str]], some: bool = False) -> Completion:
    """Complete words that a package has, which is imported only then."""

    def completion(incomplete: str) -> list[str]:
        return (some_of if some else one_of)(*words(import_module(f"rmtbase.{package}")))(incomplete)

    return completion


revisions_of = _loaded("models", lambda models: ("all", *models.demo_revisions()), some=True)
circuits = _loaded("tables", lambda tables: tables.CIRCUITS, some=True)
components = _loaded("models", lambda models: models.COMPONENTS)
constants = _loaded("constants", lambda package: [entry.name for group in package.groups().values() for entry in group])
nulls = some_of("gaussian", "kurtosis", "signs", "axes")
questions = some_of("all", "spectrum", "entries", "directions", "relation")
parts = some_of("layers", "embeddings", "experts", "all")
