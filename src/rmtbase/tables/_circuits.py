"""Circuits of an attention head: products of its matrices, and each matrix by itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


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
    update: Literal["", "whole", "by_head"] = ""  # for an adapter's ΔW = s B A of a module, or of rows of its base

    @property
    def letters(self) -> str:
        """``QK`` for ``W_QK``."""
        return "".join(factor.letter for factor in self.factors)

    @property
    def symbol(self) -> str:
        return "ΔW" if self.update else f"W_{self.letters}"

    @property
    def latex(self) -> str:
        """``W_{QK}``."""
        return r"\Delta W" if self.update else f"W_{{{self.letters}}}"

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
        return "update" if self.update == "whole" else "head" if self.heads == "n_heads" else "key head"


CIRCUITS: Mapping[str, Circuit] = {
    circuit.name: circuit
    for circuit in (
        Circuit("qk", (QUERY, KEY)),
        Circuit("ov", (OUTPUT, VALUE)),
        *(Circuit(factor.name, (factor,)) for factor in (QUERY, KEY, VALUE, OUTPUT)),
    )
}  #: Circuits by name; ``/heads`` and ``/null`` of a scores file are those of ``qk``, W_QK

QK = CIRCUITS["qk"]


def circuit_of(attributes: Mapping[Any, Any]) -> Circuit:
    """Return the circuit of scores, by their attributes: W_QK, or ΔW of updates, if these do not name one."""
    if "circuit" not in attributes and "updates" in attributes:
        return Circuit(QK.name, QK.factors, update="whole" if attributes.get("n_heads") == 1 else "by_head")
    return CIRCUITS.get(str(attributes.get("circuit", QK.name)), QK)
