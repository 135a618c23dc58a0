"""Sets of constants: each is released on a date, stays available next to later ones, and never changes.

A set's record, such as ``v1.json``, has all but the values at any precision, which are functions of the same names. The
next set gives new identifiers to what it adds or revises, so that an identifier always means the same number.
"""

from __future__ import annotations

import copyreg
import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any

from rmtbase.arguments import checked
from rmtbase.constants import _product, _square, _tracy_widom, _weibull
from rmtbase.constants._chain import chain_constants
from rmtbase.constants._constant import IDENTIFIER, PUBLISHED_DIGITS, Constant, ConstantFunction, OneDraw, Release
from rmtbase.constants._digits import Number
from rmtbase.constants._record import NEWEST, digest, read_record
from rmtbase.constants._typeset import Conditions, Phrase
from rmtbase.errors import ParameterError

Entry = Constant | ConstantFunction

_CLOSE = 0.5  # least similarity, by difflib, of names that are proposed
_LETTERS = 3  # least length of a part of a name for which names are proposed


@dataclass(frozen=True, eq=False)
class ConstantSet:
    """Set of constants, such as ``rmtbase.constants.v1``, with the constants as attributes."""

    release: Release  #: its name and date; the date is "" while it is being prepared
    record: Mapping[str, Any]  #: its stored record
    _groups: Mapping[str, tuple[Entry, ...]]

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
        """Digest of what its record released, without the enclosures."""
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
        if bare in self._entries and self._entries[bare].id == name:
            return self._entries[bare]
        near = difflib.get_close_matches(bare, self._entries, cutoff=_CLOSE)
        near = near or [entry for entry in self._entries if len(bare) >= _LETTERS and bare in entry]
        if bare != name:
            near = [self._entries[entry].id for entry in near]
        advice = f"perhaps {', '.join(near)}" if name and near else "`rmtbase constants` lists them"
        kind = "the identifier of a constant" if bare != name else "the name of a constant"
        raise ParameterError("name", name, f"{kind}; {advice}")

    @checked
    def search(self, words: str) -> tuple[Entry, ...]:
        """Return the constants and functions with these words in the name, description or computing function.

        A word is found by its beginning, in any case: "edge", "singular value", "largest_eigenvalue".
        """

        def in_words(text: str) -> str:
            return " " + re.sub(r"[\W_]+", " ", text.casefold()).strip()

        query = in_words(words)
        if not query.strip():
            return ()
        return tuple(
            entry
            for entry in self._entries.values()
            if query in "".join(map(in_words, (entry.name, entry.description, entry.function)))
        )

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


def constant_set(
    record: Mapping[str, Any],
    constants: Mapping[str, Callable[..., Number]],
    functions: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    before: ConstantSet | None = None,
) -> ConstantSet:
    """Make the set of a record from its new constants and those of the previous set.

    Args:
        record: "set", "date", the names under each heading of "groups", and "constants" and "functions" by name; if
            "date" is "" the set is being prepared, and its constants need no digits.
        constants: the values of its constants at mpmath's working precision, from those of their parents.
        functions: of each function of the shape ``compute`` and, where they apply, ``rescaled``, ``relative_error`` and
            ``uncertainty`` of a :class:`ConstantFunction`.
        before: the previous set, whose other constants are kept unchanged, except those in "withdrawn".

    Raises:
        ParameterError: the record and the computations have different constants.
    """
    if not {"set", "date", "groups"} <= set(record):
        raise ParameterError("record", list(record), "the record of a set, with its 'set', its 'date' and its 'groups'")
    release = Release(record["set"], record["date"])
    stored = {**record.get("constants", {}), **record.get("functions", {})}
    if differing := {*constants, *functions} ^ set(stored):
        expected = f"those of the record of {release.name}: once it is released, new ones come with a new set"
        raise ParameterError("constants, functions", ", ".join(sorted(differing)), expected)
    inherited_groups = {} if before is None else before.groups()
    inherited = {entry.name: entry for group in inherited_groups.values() for entry in group}
    entries: dict[str, Entry] = dict(inherited)
    for name, compute in constants.items():
        words, uncertainty = _words(name, record, release), stored[name]["uncertainty"]
        if uncertainty["kind"] != "exact":  # nothing but numerical constants, so far
            relative = uncertainty["relative"]
            words |= {"relative_error": relative, "most_digits": PUBLISHED_DIGITS, "error_kind": uncertainty["kind"]}
            words["uncertainty"] = f"{uncertainty['kind']}: relative error below {relative:.0e}"
        entries[name] = Constant(
            **words,
            compute=partial(_from_parents, compute, words["parents"], entries),
            published=stored[name].get("digits", ""),
            enclosure=tuple(stored[name]["enclosure"]) if "enclosure" in stored[name] else None,
        )
    for name, computed in functions.items():
        words, error = _words(name, record, release), stored[name].get("error", {"kind": "exact"})
        if "words" in error:
            words["uncertainty"] = error["words"]
        entries[name] = ConstantFunction(
            **words,
            **computed,
            error_kind=error["kind"],
            parameters=tuple(stored[name]["parameters"]),
            defines_gain=stored[name].get("defines_gain", False),
        )
    withdrawn = record.get("withdrawn", ())
    if unknown := sorted(set(withdrawn) - set(inherited)):
        raise ParameterError("withdrawn", ", ".join(unknown), f"constants of {before.name if before else 'no set'}")
    gone = {*withdrawn, *stored}
    groups = {
        heading: (
            *(entry for entry in inherited_groups.get(heading, ()) if entry.name not in gone),
            *(entries[name] for name in record["groups"].get(heading, ())),
        )
        for heading in (*inherited_groups, *record["groups"])
    }
    return ConstantSet(release, MappingProxyType(dict(record)), MappingProxyType(groups))


def _from_parents(compute: Callable[..., Number], parents: Sequence[str], entries: Mapping[str, Entry]) -> Number:
    return compute(*(entries[parent].compute() for parent in parents))


def _words(name: str, record: Mapping[str, Any], release: Release) -> dict[str, Any]:
    stored = {**record.get("constants", {}), **record.get("functions", {})}[name]
    latex, symbols = record.get("latex", {}), record.get("symbols", {})

    def phrase(text: str) -> Phrase:
        return Phrase(text, latex.get(text, ""))

    words: dict[str, Any] = {
        "name": name,
        "symbol_text": symbols.get(stored["symbol"], stored["symbol"]),
        "description": phrase(stored["description"]),
        "conditions": Conditions(**{part: phrase(text) for part, text in stored["conditions"].items()}),
        "references": tuple(stored["references"]),
        "parents": tuple(stored.get("parents", ())),
        "released": release,
        **{field: stored[field] for field in ("symbol", "definition", "method")},
        **{field: stored[field] for field in ("function", "apposition", "oeis", "most_digits") if field in stored},
    }
    if "one_draw" in stored:
        one_draw = dict(stored["one_draw"])
        one_draw["quantity"] = phrase(one_draw["quantity"])
        one_draw["symbol"] = Phrase(symbols.get(one_draw["symbol"], one_draw["symbol"]), one_draw["symbol"])
        words["one_draw"] = OneDraw(**one_draw)
    return words


V1 = constant_set(
    read_record("v1", "8cc966b1527d41ca38c778e111912297731c03a83481a83759b3b9081247ba95"),
    constants={**_tracy_widom.CONSTANTS, **_square.CONSTANTS, **_product.CONSTANTS, **_weibull.CONSTANTS},
    functions=_product.FUNCTIONS,
)
_SETS = {V1.name: V1}
_CURRENT = _SETS[NEWEST]


def sets() -> dict[str, ConstantSet]:
    """Return the released sets by name, the oldest first."""
    return dict(_SETS)


def current_set() -> ConstantSet:
    """Return the newest set, whose constants are the attributes of :mod:`rmtbase.constants`."""
    return _CURRENT


def set_named(name: str) -> ConstantSet:
    if name not in _SETS:
        raise ParameterError("set", name, f"one of {', '.join(_SETS)}")
    return _SETS[name]


def groups() -> dict[str, tuple[Entry, ...]]:
    """Return the headings of the newest set, with the constants and functions under them."""
    return _CURRENT.groups()


def constants() -> tuple[Constant, ...]:
    """Return the pure numbers of the newest set."""
    return _CURRENT.constants()


def functions() -> tuple[ConstantFunction, ...]:
    """Return the functions of the shape of the newest set."""
    return _CURRENT.functions()


def find(name: str) -> Entry:
    """Find a constant or function by its name in the newest set, or by its identifier in any set.

    Raises:
        ParameterError: there is none; the message lists the nearest ones.
    """
    if isinstance(name, str) and name.startswith(IDENTIFIER):
        set_name, _, _ = name.removeprefix(IDENTIFIER).partition("/")
        return set_named(set_name).find(name)
    return _CURRENT.find(name)


def _restored(fields: Mapping[str, Any]) -> Constant:
    constant = object.__new__(Constant)
    vars(constant).update(fields)
    arguments = constant.arguments or {}
    if "dims" in arguments:
        entry = chain_constants(**arguments)[constant.name]
    else:
        entry = find(constant.id or constant.name)
        entry = entry(**arguments) if isinstance(entry, ConstantFunction) else entry
    vars(constant)["compute"] = entry.compute
    return constant


# Registered here, because the classes would have to import the registry that imports them.
copyreg.pickle(
    Constant,  # type: ignore[arg-type]
    lambda constant: (_restored, ({name: value for name, value in vars(constant).items() if name != "compute"},)),
)
copyreg.pickle(ConstantFunction, lambda function: (find, (function.id or function.name,)))  # type: ignore[arg-type]
