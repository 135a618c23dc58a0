"""Bibliography: the entries of the shipped ``references.bib``, and rmtbase itself by its ``CITATION.cff``."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from rmtbase.constants._record import NEWEST, read_record
from rmtbase.errors import ParameterError
from rmtbase.shown import in_one_line
from rmtbase.systems import software_version

KEY = "rmtbase"

_ENTRY = re.compile(r"^@(\w+)\{([\w-]+),\n(.*?)\n\}$", re.DOTALL | re.MULTILINE)
_ACCENT = re.compile(r"""\\(['".])(\w)""")
_COMBINING = {"'": "\u0301", '"': "\u0308", ".": "\u0307"}
_MARKS = ((r"\l", "ł"), ("--", "–"), ("``", "“"), ("''", "”"))
_SPECIAL = re.compile(r"[&%$#_]")
_FIELD = re.compile(r"^  (\w+) += \{(.+)\},$", re.MULTILINE)


@in_one_line
@dataclass(frozen=True)
class Reference:
    """Entry of the bibliography."""

    key: str  #: its citation key
    kind: str  #: article, book, inproceedings or misc
    fields: dict[str, str]  #: author, title, year and so on, as written in the file
    #: the entry; an arXiv number is also a note, which every style prints, and ``options`` keeps biblatex from printing
    #: it twice
    bibtex: str

    @property
    def title(self) -> str:
        """Title without TeX markup."""
        return _plain(self.fields["title"])

    @property
    def link(self) -> str:
        """``doi:…`` or ``arXiv:…``, or "" if the entry has neither."""
        for field, scheme in (("doi", "doi"), ("eprint", "arXiv")):
            if field in self.fields:
                return f"{scheme}:{self.fields[field]}"
        return ""

    @property
    def apa(self) -> str:
        """Reference as one line in the style of the American Psychological Association."""
        fields = {name: _plain(value) for name, value in self.fields.items()}
        authors = [_initials(author) for author in self.fields["author"].split(" and ")]
        names = ", ".join(authors[:-1]) + ", & " * (len(authors) > 1) + authors[-1]
        issue = f"({fields['number']})" if "number" in fields else ""
        places = {
            "article": "{journal}, {volume}" + issue + ", {pages}.",
            "book": "{publisher}.",
            "inproceedings": "In {booktitle} (pp. {pages}).",
            "misc": "",
        }
        # Only software has a note, which gives its version.
        title = f"{fields['title']} ({fields['note']}) [Computer software]" if "note" in fields else fields["title"]
        names += "" if names.endswith(".") else "."
        parts = (names, f"({fields.get('year', 'n.d.')}).", f"{title}.", places[self.kind].format(**fields), self.link)
        return " ".join(part for part in parts if part)


def _plain(tex: str) -> str:
    text = _ACCENT.sub(lambda accent: accent[2] + _COMBINING[accent[1]], tex)
    for mark, sign in _MARKS:
        text = text.replace(mark, sign)
    return unicodedata.normalize("NFC", re.sub(r"[{}$\\]", "", text))


def _initials(author: str) -> str:
    """Shorten "Family, Given Name" to "Family, G. N."; names in braces, which are not persons, are kept."""
    family, _, forenames = author.partition(", ")
    initials = " ".join("-".join(f"{part[0]}." for part in name.split("-")) for name in _plain(forenames).split())
    return ", ".join(part for part in (_plain(family), initials) if part)


@cache
def bibliography() -> dict[str, Reference]:
    """Return the entries of ``references.bib`` by key, in the order of the file."""
    text = files("rmtbase.constants").joinpath("references.bib").read_text(encoding="utf-8")
    references = {}
    for kind, key, lines in _ENTRY.findall(text):
        fields = dict(_FIELD.findall(lines))
        printed = {"note": f"arXiv:{fields['eprint']}", "options": "eprint=false"} if "eprint" in fields else {}
        references[key] = Reference(key, kind, fields, bibtex_entry(key, kind, fields | printed))
    return references


def bibtex_entry(key: str, kind: str, fields: Mapping[str, str]) -> str:
    lines = "".join(f"  {name:<9} = {{{value}}},\n" for name, value in fields.items())
    return f"@{kind}{{{key},\n{lines}}}"


def bibtex(keys: Iterable[str]) -> str:
    """Return the BibTeX entries of some keys, in the order of the file, each once.

    Raises:
        ParameterError: the bibliography does not have a key.
    """
    references, cited = bibliography(), list(keys)
    for key in cited:
        if key not in references:
            raise ParameterError("keys", key, "a key of references.bib")
    return "\n\n".join(reference.bibtex for key, reference in references.items() if key in cited)


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
