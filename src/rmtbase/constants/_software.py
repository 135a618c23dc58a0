"""Reference for rmtbase itself, from the ``CITATION.cff`` that is installed with it."""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files

from rmtbase.constants._bibliography import Reference, bibtex_entry
from rmtbase.constants._record import NEWEST, read_record

KEY = "rmtbase"
_SPECIAL = re.compile(r"[&%$#_]")


def software_version() -> str:
    """Return the installed version; ``"0+unknown"`` for a source tree that is not installed."""
    try:
        return version(KEY)
    except PackageNotFoundError:
        return "0+unknown"


def citation_file() -> str:
    """Return the text of ``CITATION.cff``, with the installed version."""
    folder = files("rmtbase")
    shipped = folder / "CITATION.cff"
    if not shipped.is_file():  # an editable installation: the file is in the repository
        shipped = folder / ".." / ".." / "CITATION.cff"
    text = shipped.read_text(encoding="utf-8")
    return re.sub(r"^version: .*$", f"version: {software_version()}", text, flags=re.MULTILINE)


@cache
def software() -> Reference:
    """Return the reference for the installed version of rmtbase, with the key ``rmtbase``."""
    entries = _top_level(citation_file())
    fields = {
        "author": " and ".join(map(_author, _people(entries["authors"]))),
        "title": _tex(" ".join(entries["title"])).replace(KEY, f"{{{KEY}}}", 1),
    }
    fields["year"] = _released(entries)[:4]
    for name in ("doi", "url"):
        if name in entries:
            fields[name] = entries[name][0]
    fields["note"] = f"Version {_tex(entries['version'][0])}"
    return Reference(KEY, "misc", fields, bibtex_entry(KEY, "misc", fields))


def _released(entries: dict[str, list[str]]) -> str:
    """Return the date of the release, or of the newest set of constants if rmtbase is not released yet."""
    return entries["date-released"][0] if "date-released" in entries else read_record(NEWEST)["date"]


def _top_level(cff: str) -> dict[str, list[str]]:
    """Split a citation file, in the part of YAML that such files use, into the lines of each top-level key."""
    entries: dict[str, list[str]] = {}
    last = ""
    for line in cff.splitlines():
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        if line[0] not in " -":
            last, _, text = line.partition(":")
            entries[last] = []
            if text.strip() in ("", ">-", ">", "|"):
                continue
        entries[last].append(_unquoted(text))
    return entries


def _people(lines: list[str]) -> list[dict[str, str]]:
    """Parse a list of mappings, each of which begins with ``- ``."""
    people: list[dict[str, str]] = []
    for line in lines:
        if line.startswith("- "):
            people.append({})
        name, _, value = line.removeprefix("- ").partition(":")
        people[-1][name.strip()] = _unquoted(value)
    return people


def _unquoted(text: str) -> str:
    text = text.strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def _author(person: dict[str, str]) -> str:
    if "family-names" in person:
        return _tex(", ".join(person[part] for part in ("family-names", "given-names") if part in person))
    return f"{{{_tex(person['name'])}}}"


def _tex(text: str) -> str:
    return _SPECIAL.sub(lambda sign: "\\" + sign[0], text)
