"""Reference for rmtbase itself, from the ``CITATION.cff`` that is installed with it."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from rmtbase.constants._bibliography import Reference, bibtex_entry
from rmtbase.constants._record import NEWEST, read_record
from rmtbase.systems import software_version

KEY = "rmtbase"
_SPECIAL = re.compile(r"[&%$#_]")


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
    import yaml

    citation = yaml.load(citation_file(), Loader=yaml.BaseLoader)  # texts, and no dates or numbers
    released = citation.get("date-released") or read_record(NEWEST)["date"]
    fields = {
        "author": " and ".join(map(_author, citation["authors"])),
        "title": _tex(citation["title"]).replace(KEY, f"{{{KEY}}}", 1),
        "year": released[:4],
        **{name: citation[name] for name in ("doi", "url") if name in citation},
        "note": f"Version {_tex(citation['version'])}",
    }
    return Reference(KEY, "misc", fields, bibtex_entry(KEY, "misc", fields))


def _author(person: dict[str, str]) -> str:
    if "family-names" in person:
        return _tex(", ".join(person[part] for part in ("family-names", "given-names") if part in person))
    return f"{{{_tex(person['name'])}}}"


def _tex(text: str) -> str:
    return _SPECIAL.sub(lambda sign: "\\" + sign[0], text)
