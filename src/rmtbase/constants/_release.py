"""Sets of constants: each is released on a date, stays available next to later ones, and never changes.

A set has a record, such as ``v1.json``, with the identifier, definition, conditions, digits, uncertainty and enclosure
of each constant released with it. The next set has new identifiers for the constants that it adds or revises, and
keeps all others under their old identifiers. So an identifier always means the same number.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType, ModuleType
from typing import Any

from rmtbase.arguments import checked
from rmtbase.constants._constant import Constant, ConstantFunction, Release
from rmtbase.constants._record import digest
from rmtbase.errors import ParameterError

Entry = Constant | ConstantFunction
Groups = Mapping[str, tuple[Entry, ...]]

_CLOSE = 0.5  # least similarity, by difflib, of names that are proposed
_LETTERS = 3  # least length of a part of a name for which names are proposed


@dataclass(frozen=True, eq=False)
class ConstantSet:
    """Set of constants, such as ``rmtbase.constants.v1``, with the constants as attributes.

    Attributes:
        release: its name and date; the date is "" while it is being prepared.
        record: its stored record.
    """

    release: Release
    record: Mapping[str, Any]
    _groups: Groups

    @property
    def name(self) -> str:
        """Name as in the identifiers, such as v1."""
        return self.release.name

    @property
    def date(self) -> str:
        """Date of its release, such as 2026-11-23; "" while it is being prepared."""
        return self.release.date

    @cached_property
    def sha256(self) -> str:
        """Digest of its record, without the enclosures."""
        return digest(self.record)

    def groups(self) -> dict[str, tuple[Entry, ...]]:
        """Return the headings with the constants and functions under them."""
        return dict(self._groups)

    def constants(self) -> tuple[Constant, ...]:
        """Return the pure numbers."""
        return tuple(entry for entry in self._entries.values() if isinstance(entry, Constant))

    def functions(self) -> tuple[ConstantFunction, ...]:
        """Return the functions of the shape."""
        return tuple(entry for entry in self._entries.values() if isinstance(entry, ConstantFunction))

    @checked
    def find(self, name: str) -> Entry:
        """Find a constant or function of this set by its name or identifier.

        Raises:
            ParameterError: there is none; the message lists the nearest names.
        """
        if name in self._entries:
            return self._entries[name]
        _, _, bare = name.rpartition("/")
        if self._entries.get(bare) and self._entries[bare].id == name:
            return self._entries[bare]
        near = difflib.get_close_matches(bare, self._entries, cutoff=_CLOSE)
        near = near or [known for known in self._entries if len(bare) >= _LETTERS and bare in known]
        if bare != name:
            near = [self._entries[known].id for known in near]
        advice = f"perhaps {', '.join(near)}" if name and near else "`rmtbase constants` lists them"
        what = "the identifier of a constant" if bare != name else "the name of a constant"
        raise ParameterError("name", name, f"{what}; {advice}")

    @checked
    def search(self, words: str) -> tuple[Entry, ...]:
        """Return the constants and functions with these words in the name, description or computing function.

        A word is found by its beginning, in any case: "edge", "singular value", "largest_eigenvalue".
        """
        wanted = f" {_in_words(words)}"
        return tuple(entry for entry in self._entries.values() if wanted.strip() and wanted in f" {_searched(entry)}")

    @cached_property
    def _entries(self) -> dict[str, Entry]:
        return {entry.name: entry for entries in self._groups.values() for entry in entries}

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_"):
            try:
                return self.find(name)
            except ParameterError as error:
                raise AttributeError(f"the set {self.name} has no {name!r}: {error.expected}") from None
        raise AttributeError(name)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *self._entries})

    def __repr__(self) -> str:
        numbers, functions = len(self.constants()), len(self.functions())
        when = f"of {self.date}" if self.date else "not released"
        return f"<constants.{self.name}, {when}: {numbers} numbers, {functions} functions of the shape>"


def _searched(entry: Entry) -> str:
    functions = re.findall(r"rmtbase\.[\w.]+", entry.method)
    return " ".join(_in_words(text) for text in (entry.name, entry.description, *functions))


def _in_words(text: str) -> str:
    return re.sub(r"[\W_]+", " ", text.casefold()).strip()


def constant_set(record: Mapping[str, Any], groups: Groups, before: ConstantSet | None = None) -> ConstantSet:
    """Make the set of a record from its new constants and those of the previous set.

    Args:
        record: "set", "date", "constants" and "functions" by name; if "date" is "" the set is being prepared, and its
            constants need not be recorded.
        groups: headings with the constants and functions that are new or revised.
        before: the previous set, whose other constants are kept unchanged, except those in "withdrawn".

    Raises:
        ParameterError: the record and the groups have different constants.
    """
    if not {"set", "date"} <= set(record):
        raise ParameterError("record", list(record), "the record of a set, with its name 'set' and its 'date'")
    release = Release(record["set"], record["date"])
    recorded = {**record.get("constants", {}), **record.get("functions", {})}
    made = {entry.name for entries in groups.values() for entry in entries}
    if release.date and made != set(recorded):
        names = ", ".join(sorted(made ^ set(recorded)))
        raise ParameterError(
            "groups", names, f"those of the record of {release.name}: it is released; new ones come with a new set"
        )
    own = {
        heading: tuple(_released(entry, release, recorded.get(entry.name, {})) for entry in entries)
        for heading, entries in groups.items()
    }
    if before is None:
        return ConstantSet(release, MappingProxyType(dict(record)), MappingProxyType(own))
    withdrawn = record.get("withdrawn", ())
    if unknown := sorted(set(withdrawn) - {one.name for one in (*before.constants(), *before.functions())}):
        raise ParameterError("withdrawn", ", ".join(unknown), f"constants of {before.name}")
    gone = {*withdrawn, *made}
    kept = {
        heading: tuple(one for one in entries if one.name not in gone) for heading, entries in before.groups().items()
    }
    joined = {heading: (*kept.get(heading, ()), *own.get(heading, ())) for heading in (*kept, *own)}
    return ConstantSet(release, MappingProxyType(dict(record)), MappingProxyType(joined))


def _released(entry: Entry, release: Release, stored: Mapping[str, Any]) -> Entry:
    if isinstance(entry, ConstantFunction):
        return replace(entry, released=release)
    enclosure = stored.get("enclosure")
    return replace(
        entry,
        released=release,
        published=stored.get("digits", ""),
        enclosure=(enclosure[0], enclosure[1]) if enclosure else None,
    )


class SetModule(ModuleType):
    """Module that stands for a set: it has all attributes of the set, and none can be changed."""

    _SET: ConstantSet

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(self._SET, name)

    def __dir__(self) -> list[str]:
        return [name for name in dir(self._SET) if not name.startswith("_")]

    def __setattr__(self, name: str, value: object) -> None:
        if not name.startswith("__"):
            raise AttributeError(f"{name}: {self.__name__} is released, and does not change")
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{name}: {self.__name__} is released, and does not change")
