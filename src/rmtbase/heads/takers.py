"""Consumers of the matrices of heads and layers while they are read."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float, Shaped

from rmtbase.models import MatrixName
from rmtbase.tables import Circuit, Factor


class HeadTaker(Protocol):
    """Consumer of the factors of each site's heads while they are read."""

    def submit(
        self, site: int, factors: Mapping[Factor, Shaped[np.ndarray, "factor_head rank width"]], pool: Executor
    ) -> Mapping[Circuit, Sequence[Future[Any]]]:
        """Begin work on the heads of one site."""
        ...

    def keep(self, site: int, submitted: Mapping[Circuit, Sequence[Future[Any]]]) -> None:
        """Wait for the work on one site, and keep its results."""
        ...


class Preparation(Protocol):
    """Interface by which ``rmtbase.nulls.Null`` computes what it needs from each head's factors while they are read."""

    def prepare(self, factors: Sequence[Shaped[np.ndarray, "group member rank width"]]) -> Sequence[Any] | None:
        """Return one entry for each head, or None if the spectrum is enough.

        Heads are ordered by group, then by member. A factor shared by a group has one member.
        """
        ...

    def prepare_groups(
        self,
        each: Shaped[np.ndarray, "group member rank width"],
        shared: Shaped[np.ndarray, "group one rank other_width"],
        sigmas: Float[np.ndarray, "group member"],
    ) -> Sequence[Any] | None:
        """Return one entry for each product [A_1 ... A_g]ᵀB of heads that share B, with σ̂ of the A_i, or None."""
        ...


class MatrixTaker(Protocol):
    """Consumer of every matrix of the layers as it is read, such as a ``MatrixScorer``."""

    def add(
        self,
        name: MatrixName,
        blocks: Iterable[Shaped[np.ndarray, "row column"]],
        shape: tuple[int, int],
        map_spans: Callable[..., Iterable[Any]] = map,
    ) -> None:
        """Take one matrix, in blocks of rows."""
        ...


@dataclass(frozen=True)
class HeadWork:
    """Work on each head besides its spectrum."""

    preparation: Preparation | None = None  # computes what a null needs
    joint: bool = False  # whether heads that share a matrix are also solved as one
    # whether heads are also solved with equal axes, and the relation of their keys to their queries is measured
    how_much: bool = False


@dataclass(frozen=True)
class Takers:
    """Consumers of the matrices that are read."""

    matrices: MatrixTaker | None = None  # of all matrices of the layers
    heads: HeadTaker | None = None  # of the factors of each head
