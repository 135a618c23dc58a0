"""Glossary: explains the terms of a page, which link to it where they are first used."""

import re
from functools import cache
from typing import NamedTuple

from markupsafe import Markup, escape

from rmtbase.reasons import packaged_texts

_APART = "svg|script|pre|code|a|select|button|summary|caption|h1|h2|h3|dt"  # elements without links


class Term(NamedTuple):
    """Term with its explanation, and other spellings that a page may use."""

    name: str
    text: str
    also: tuple[str, ...]

    @property
    def anchor(self) -> str:
        return "term-" + re.sub(r"\W+", "-", self.name.lower())


@cache
def glossary() -> tuple[Term, ...]:
    """Return all terms, in the order in which a reader meets them."""
    content = packaged_texts("rmtbase.report", "glossary.toml")
    return tuple(Term(name, text, tuple(also)) for name, (text, *also) in content.items())


class Glossary:
    """Terms that a page uses, marked for readers: nothing else follows from the words of a text."""

    def __init__(self) -> None:
        self._used: set[Term] = set()

    def link(self, html: str) -> Markup:
        """Link each term in the text of HTML to its explanation where it is first used, but not in headings."""
        return Markup(_pattern().sub(self._linked, html))

    def explained(self, *texts: str) -> list[Term]:
        """Return the terms that were linked or stand in ``texts``, and those that their explanations use."""
        before = -1
        while len(self._used) > before:
            before = len(self._used)
            self.link(" ".join([*texts, *(term.text for term in self._used)]))
        return [term for term in glossary() if term in self._used]

    def _linked(self, match: re.Match[str]) -> str:
        if match["thead"]:
            self.link(match["thead"])
        term = _spellings().get(match["term"] or "")
        if term is None or term in self._used:
            return match[0]
        self._used.add(term)
        return f'<a class="term" href="#{term.anchor}" title="{escape(term.text)}">{match[0]}</a>'


@cache
def _spellings() -> dict[str, Term]:
    """Map each spelling of each term, also with a capital and in the plural if it is a word, to the term."""
    spellings: dict[str, Term] = {}
    for term in glossary():
        for form in (term.name, *term.also):
            forms = [form, form[0].upper() + form[1:]] if len(form) > 2 else [form]
            spellings |= {f"{stem}{end}": term for stem in forms for end in (("", "s") if len(form) > 2 else ("",))}
    return spellings


@cache
def _pattern() -> re.Pattern[str]:
    forms = "|".join(map(re.escape, sorted(_spellings(), key=len, reverse=True)))
    apart = rf"<thead\b(?P<thead>.*?)</thead>|<(?P<tag>{_APART})\b.*?</(?P=tag)>|<[^>]*>"
    return re.compile(rf"{apart}|&\w+;|(?<![\w‖])(?P<term>{forms})(?![\w‖²])", re.DOTALL)
