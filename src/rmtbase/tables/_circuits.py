"""Circuits of an attention head: products of its matrices, and each matrix by itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Factor:
    """Matrix of a head, of shape (rank, width); there are four of them."""

    name: str  # its name in a model's sites
    letter: str  # Q for W_Q
    # rank, width: names of its sizes
    rank: str
    width: str
    heads: str  # name of the number of these matrices in a layer: one for each head, or for each key head

    @property
    def sigma(self) -> str:
        """Name of the variable with the estimates of its σ."""
        return f"sigma_{self.letter.lower()}"

    @property
    def symbol(self) -> str:
        return f"W_{self.letter}"


QUERY = Factor("query", "Q", "d_head", "d_query", "n_heads")
KEY = Factor("key", "K", "d_head", "d_key", "n_key_heads")
VALUE = Factor("value", "V", "d_value", "d_key", "n_key_heads")
OUTPUT = Factor("output", "O", "d_value", "d_output", "n_heads")


@dataclass(frozen=True)
class Circuit:
    """Circuit of a head that is scored: a product AᵀB of two of its matrices, or one matrix."""

    name: str  # its name in options and in groups of a scores file
    factors: tuple[Factor, ...]  # A and B, or the single matrix

    @property
    def letters(self) -> str:
        """``QK`` for ``W_QK``."""
        return "".join(factor.letter for factor in self.factors)

    @property
    def symbol(self) -> str:
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
        """Names of its sizes: (width of A, rank, width of B) for AᵀB, (rank, width) for one matrix."""
        first, *second = self.factors
        return (first.width, first.rank, second[0].width) if second else (first.rank, first.width)

    @property
    def head_axes(self) -> bool:
        """True if its rank is d_head, whose axes training treats apart; the basis of d_value is free."""
        return all(factor.rank == QUERY.rank for factor in self.factors)

    @property
    def heads(self) -> str:
        """Name of the number of these circuits in a layer."""
        return self.factors[0].heads

    @property
    def noun(self) -> str:
        """Unit that has one of these circuits: ``head`` or ``key head``."""
        return "head" if self.heads == "n_heads" else "key head"


CIRCUITS: Mapping[str, Circuit] = {
    one.name: one
    for one in (
        Circuit("qk", (QUERY, KEY)),
        Circuit("ov", (OUTPUT, VALUE)),
        *(Circuit(factor.name, (factor,)) for factor in (QUERY, KEY, VALUE, OUTPUT)),
    )
}
"""Circuits by name; ``/heads`` and ``/null`` of a scores file are those of ``qk``, W_QK."""

QK = CIRCUITS["qk"]


class _Update(Circuit):
    """W_QK of an adapter's updates, which is ΔW = s B A of a module, or of the rows of a head of its base."""

    @property
    def symbol(self) -> str:
        return "ΔW"

    @property
    def latex(self) -> str:
        return r"\Delta W"


class _WholeUpdate(_Update):
    @property
    def noun(self) -> str:
        return "update"


def circuit_of(attributes: Mapping[Any, Any]) -> Circuit:
    """Return the circuit of scores, by their attributes: W_QK, or ΔW of updates, if these do not name one."""
    if "circuit" not in attributes and "updates" in attributes:
        return (_WholeUpdate if attributes.get("n_heads") == 1 else _Update)(QK.name, QK.factors)
    return CIRCUITS.get(str(attributes.get("circuit", QK.name)), QK)
