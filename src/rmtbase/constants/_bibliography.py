"""The references: the shipped ``references.bib``, entry by entry."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from rmtbase.errors import ParameterError

_ENTRY = re.compile(r"^@(\w+)\{([\w-]+),\n(.*?)\n\}$", re.DOTALL | re.MULTILINE)
_FIELD = re.compile(r"^  (\w+) += \{(.+)\},$", re.MULTILINE)


@dataclass(frozen=True)
class Reference:
    """One entry of the bibliography.

    Attributes:
        key: its citation key.
        kind: article, book, inproceedings or misc.
        fields: author, title, year and so on, as written in the file.
        bibtex: the entry as it stands in the file.
    """

    key: str
    kind: str
    fields: dict[str, str]
    bibtex: str

    @property
    def title(self) -> str:
        """The title without TeX's marks."""
        title = self.fields["title"]
        for mark, sign in ((r"{\'e}", "é"), ("--", "–"), ("``", "“"), ("''", "”")):
            title = title.replace(mark, sign)
        return re.sub(r"[{}$]", "", title)

    @property
    def link(self) -> str:
        """``doi:…`` or ``arXiv:…``, or "" for what has neither."""
        for field, scheme in (("doi", "doi"), ("eprint", "arXiv")):
            if field in self.fields:
                return f"{scheme}:{self.fields[field]}"
        return ""


@cache
def bibliography() -> dict[str, Reference]:
    """Every entry of ``references.bib`` by its key, in the order of the file."""
    text = files("rmtbase.constants").joinpath("references.bib").read_text(encoding="utf-8")
    entries = {entry[2]: entry for entry in _ENTRY.finditer(text)}
    return {key: Reference(key, one[1], dict(_FIELD.findall(one[3])), one[0]) for key, one in entries.items()}


def bibtex(keys: Iterable[str]) -> str:
    """The BibTeX entries of some keys, in the order of the file, each once.

    Raises:
        ParameterError: for a key that the bibliography does not have.
    """
    known, wanted = bibliography(), list(keys)
    for key in wanted:
        if key not in known:
            raise ParameterError("reference", key, "a key of references.bib")
    return "\n\n".join(reference.bibtex for key, reference in known.items() if key in wanted)
