"""The circuits of an attention head: the products of its matrices, and each of these by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Factor:
    """One of the four matrices of a head, (rank, width).

    Attributes:
        name: as a model's sites call it.
        letter: W_Q's is Q.
        rank, width: the names of its sizes.
        heads: the name of how many there are of it in a layer: of each head one, or of each key head.
    """

    name: str
    letter: str
    rank: str
    width: str
    heads: str

    @property
    def sigma(self) -> str:
        """The variable that holds the estimates of its σ."""
        return f"sigma_{self.letter.lower()}"

    @property
    def symbol(self) -> str:
        """``W_Q``."""
        return f"W_{self.letter}"


QUERY = Factor("query", "Q", "d_head", "d_query", "n_heads")
KEY = Factor("key", "K", "d_head", "d_key", "n_key_heads")
VALUE = Factor("value", "V", "d_value", "d_key", "n_key_heads")
OUTPUT = Factor("output", "O", "d_value", "d_output", "n_heads")


@dataclass(frozen=True)
class Circuit:
    """What is scored of each head: AᵀB of two of its matrices, or one of them.

    Attributes:
        name: as options and groups of a scores file call it.
        factors: A and B, or the one.
    """

    name: str
    factors: tuple[Factor, ...]

    @property
    def letters(self) -> str:
        """``QK``, of ``W_QK``."""
        return "".join(factor.letter for factor in self.factors)

    @property
    def symbol(self) -> str:
        """``W_QK``."""
        return f"W_{self.letters}"

    @property
    def latex(self) -> str:
        """``W_{QK}``."""
        return f"W_{{{self.letters}}}"

    @property
    def formula(self) -> str:
        """``W_Q^T W_K``, or ``W_Q``."""
        return "^T ".join(factor.symbol for factor in self.factors)

    @property
    def dims(self) -> tuple[str, ...]:
        """The names of its sizes, those of AᵀB: (width of A, rank, width of B); of one matrix (rank, width)."""
        first, *others = self.factors
        return (first.width, first.rank, others[0].width) if others else (first.rank, first.width)

    @property
    def heads(self) -> str:
        """The name of how many there are of it in a layer."""
        return self.factors[0].heads

    @property
    def noun(self) -> str:
        """What there is one of it for: ``head``, or ``key head``."""
        return "head" if self.heads == "n_heads" else "key head"

    @property
    def reads_key_heads(self) -> bool:
        """Whether one of its matrices is shared by the heads that read one key head."""
        return len(self.factors) > 1


CIRCUITS: Mapping[str, Circuit] = {
    one.name: one
    for one in (
        Circuit("qk", (QUERY, KEY)),
        Circuit("ov", (OUTPUT, VALUE)),
        *(Circuit(factor.name, (factor,)) for factor in (QUERY, KEY, VALUE, OUTPUT)),
    )
}
"""By name; ``qk``, W_QK, is what ``/heads`` and ``/null`` of a scores file are of."""

QK = CIRCUITS["qk"]


def circuit_of(attributes: Mapping[Any, Any]) -> Circuit:
    """The circuit that scores are of, by their attributes: W_QK where these do not say."""
    return CIRCUITS.get(str(attributes.get("circuit", QK.name)), QK)
