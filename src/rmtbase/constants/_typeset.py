"""Phrases, conditions and numbers of sentences, as plain text and as LaTeX that needs no package."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

_RAISED = dict(zip("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻", strict=True))
_PROSE = {"%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$", "_": r"\_", "–": "--", "“": "``", "”": "''"}
_PLAIN_LIMITS = range(-3, 6)  # powers of ten of numbers that are written out


class Phrase(str):
    """Plain text with its LaTeX; without mathematics in it, that follows from the text."""

    latex: str

    def __new__(cls, text: str, latex: str = "") -> Phrase:
        phrase = super().__new__(cls, text)
        phrase.latex = latex or "".join(_PROSE.get(sign, sign) for sign in text)
        return phrase


def latex_of(text: str) -> str:
    return text.latex if isinstance(text, Phrase) else Phrase(text).latex


def shown_number(value: str, error: str = "") -> Phrase:
    """Format a decimal, with its error if there is one: 1609.4 ± 0.4, 6.1×10⁻⁴. Its LaTeX has no dollar signs."""
    number = Decimal(value)
    power = number.adjusted() if number else 0
    if power in _PLAIN_LIMITS:
        power = 0
    parts = [f"{Decimal(part).scaleb(-power) if power else Decimal(part):f}" for part in (value, error) if part]
    text, latex = " ± ".join(parts), r" \pm ".join(parts)
    if power:
        text, latex = (f"({sum_})" if error else sum_ for sum_ in (text, latex))
        text += "×10" + "".join(_RAISED[sign] for sign in str(power))
        latex += rf"\times 10^{{{power}}}"
    return Phrase(text.replace("-", "−"), latex)


def shown_sigma(sigma: float) -> Phrase:
    return shown_number(repr(sigma).removesuffix(".0"))


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """Conditions of a constant, each a phrase of plain text that also fits in a sentence."""

    matrix: str = ""  #: the random matrix or weights, or "" for a number of analysis
    normalization: str = ""  #: the divisor or the unit
    sigma: str = ""  #: standard deviations of the entries
    shape: str = ""  #: dimensions
    convention: str = ""  #: meaning of λ, s, κ or w
    holds: str  #: the limit, or exact at this size

    def stated(self) -> dict[str, str]:
        """Return the conditions that apply, by name."""
        return {name: text for name, text in vars(self).items() if text}

    def __str__(self) -> str:
        return "; ".join(self.stated().values())
