"""Base of ensembles whose draw is the matrix itself, whole or by blocks of rows."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Float, Key

from rmtbase.ensembles._element_laws import ElementLaw
from rmtbase.ensembles._ensemble import Draw, sum_of_squares


@dataclass(frozen=True)
class FullMatrix(ABC):
    """Matrix (n_rows, n_columns) of full rank, drawn whole or by blocks of rows."""

    n_rows: int = field(metadata={"static": True})
    n_columns: int = field(metadata={"static": True})

    @property
    @abstractmethod
    def name(self) -> str: ...

    @property
    @abstractmethod
    def element_std(self) -> float: ...

    @property
    def element_shape(self) -> tuple[int, int]:
        return (self.n_rows, self.n_columns)

    @property
    def matrix_shape(self) -> tuple[int, int]:
        return self.element_shape

    @property
    def rank(self) -> int:
        return min(self.element_shape)

    @property
    def factor_sizes(self) -> tuple[int, ...]:
        return (self.n_rows * self.n_columns,)

    @abstractmethod
    def row_context(self, key: Key[Array, ""]) -> Any:
        """Return the input of :meth:`rows` for the draw of that key: a pytree, made once for all blocks."""

    @abstractmethod
    def rows(self, context: Any, start: ArrayLike, count: int) -> Float[Array, "{count} {self.n_columns}"]:
        """Rows ``start``, …, ``start + count - 1`` of a draw; they do not depend on the division into blocks."""

    def sample(self, key: Key[Array, ""]) -> Draw:
        # The barrier keeps XLA from drawing the elements again in the loop that adds up their squares.
        matrix = lax.optimization_barrier(self.rows(self.row_context(key), 0, self.n_rows))
        return Draw(matrix, sum_of_squares(matrix)[None])


class IndependentMatrix(FullMatrix):
    """Matrix of independent, identically distributed elements; a row's key is the draw's with its number folded in."""

    @property
    @abstractmethod
    def law(self) -> ElementLaw: ...

    @property
    def element_std(self) -> float:
        return self.law.std

    def row_context(self, key: Key[Array, ""]) -> Key[Array, ""]:
        return key

    def rows(self, context: Key[Array, ""], start: ArrayLike, count: int) -> Float[Array, "{count} {self.n_columns}"]:
        numbers = jnp.asarray(start, jnp.uint32) + jnp.arange(count, dtype=jnp.uint32)
        keys = jax.vmap(lambda number: jax.random.fold_in(context, number))(numbers)
        return jax.vmap(lambda key: self.law.sample(key, self.n_columns))(keys)
