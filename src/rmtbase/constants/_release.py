"""Sets of constants: each released on a date, side by side with those before and after it, and never changed.

A set has a record, ``v1.json``: of each constant that came with it its identifier, definition, conditions, digits,
uncertainty and enclosure. The next set holds what it adds or revises under identifiers of its own, and all the rest of
the set before under the identifiers that it has. So an identifier means one number for good.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType, ModuleType
from typing import Any

from rmtbase.constants._constant import Constant, ConstantFunction, Release
from rmtbase.constants._record import digest
from rmtbase.errors import ParameterError

Entry = Constant | ConstantFunction
Groups = Mapping[str, tuple[Entry, ...]]

_CLOSE = 0.5  # of difflib's similarity
_LETTERS = 3  # of part of a name, by which names are proposed


@dataclass(frozen=True, eq=False)
class ConstantSet:
    """A set of constants, as ``rmtbase.constants.v1``: its constants are its attributes.

    Attributes:
        release: its name, and its date, "" while it is being prepared.
        record: what is stored of it.
    """

    release: Release
    record: Mapping[str, Any]
    _groups: Groups

    @property
    def name(self) -> str:
        """As in the identifiers: v1."""
        return self.release.name

    @property
    def date(self) -> str:
        """Of its release, as 2026-11-23; "" while it is being prepared."""
        return self.release.date

    @cached_property
    def sha256(self) -> str:
        """Digest of its record, without the enclosures."""
        return digest(self.record)

    def groups(self) -> dict[str, tuple[Entry, ...]]:
        """Headings and the constants and functions under them."""
        return dict(self._groups)

    def constants(self) -> tuple[Constant, ...]:
        """Every pure number."""
        return tuple(entry for entry in self._entries.values() if isinstance(entry, Constant))

    def functions(self) -> tuple[ConstantFunction, ...]:
        """Every function of the shape."""
        return tuple(entry for entry in self._entries.values() if isinstance(entry, ConstantFunction))

    def find(self, name: str) -> Entry:
        """The constant or function of that name, or of that identifier, in this set.

        Raises:
            ParameterError: for what it does not have; it lists the nearest names.
        """
        if not isinstance(name, str):
            raise ParameterError("name", name, "the name of a constant; `rmtbase constants` lists them")
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


def constant_set(record: Mapping[str, Any], groups: Groups, before: ConstantSet | None = None) -> ConstantSet:
    """The set of a record, from the constants that came with it.

    Args:
        record: "set", "date", "constants" and "functions" by name; with "date" "" it is being prepared, and its
            constants need not be recorded.
        groups: headings and the constants and functions that are new or revised.
        before: the set before, whose other constants it takes over as they are, but for those of "withdrawn".

    Raises:
        ParameterError: if the record and the groups are not of the same constants.
    """
    release = Release(record["set"], record["date"])
    recorded = {**record.get("constants", {}), **record.get("functions", {})}
    made = {entry.name for entries in groups.values() for entry in entries}
    if release.date and made != set(recorded):
        names = ", ".join(sorted(made ^ set(recorded)))
        raise ParameterError(
            "constants", names, f"those of the record of {release.name}: it is released; new ones come with a new set"
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
    """A module that stands for a set: it has all that the set has, and nothing of it can be changed."""

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
