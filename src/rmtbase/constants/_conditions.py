"""Conditions under which a constant holds; without them a number should not be cited."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """Conditions of a constant, each a phrase of plain text that also fits in a sentence.

    Attributes:
        matrix: the random matrix or weights, or "" for a number of analysis.
        normalization: the divisor or the unit.
        sigma: standard deviations of the entries.
        shape: dimensions.
        convention: meaning of λ, s, κ or w.
        holds: the limit, or exact at this size.
    """

    matrix: str = ""
    normalization: str = ""
    sigma: str = ""
    shape: str = ""
    convention: str = ""
    holds: str

    def stated(self) -> dict[str, str]:
        """Return the conditions that apply, by name."""
        return {name: text for name, text in vars(self).items() if text}

    def __str__(self) -> str:
        return "; ".join(self.stated().values())
