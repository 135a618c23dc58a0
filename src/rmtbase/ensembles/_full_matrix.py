"""Ensembles whose draw is the matrix itself, whole or by blocks of rows."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Float, Key

from rmtbase.ensembles._element_laws import ElementLaw
from rmtbase.ensembles._ensemble import Draw, DrawnByItsCore, as_pytree, chain_name, sum_of_squares


@dataclass(frozen=True)
class FullMatrix(ABC):
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


@partial(as_pytree, data_fields=[], meta_fields=["dims"])
@dataclass(frozen=True)
class DenseGaussianChain(DrawnByItsCore):
    """Product X_1 X_2 … X_L itself, (n_0, n_L), from dense standard normal X_l of shape (n_{l-1}, n_l).

    This slow and direct draw is the reference that tests compare the thin draw with, and gives access to elements.
    """

    dims: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"dense_{chain_name(self.dims)}"

    @property
    def matrix_shape(self) -> tuple[int, int]:
        return (self.dims[0], self.dims[-1])

    def sample(self, key: Key[Array, ""]) -> Draw:
        factors = self._factors(key)
        return Draw(reduce(jnp.matmul, factors), jnp.stack([sum_of_squares(factor) for factor in factors]))

    @property
    def element_shape(self) -> tuple[int, int]:
        return self.matrix_shape

    @property
    def element_std(self) -> float:
        return math.sqrt(math.prod(self.dims[1:-1]))

    def row_context(self, key: Key[Array, ""]) -> tuple[Float[Array, "_ _"], ...]:
        """Return the product, split into two factors at the smallest n_l."""
        factors = self._factors(key)
        if len(factors) == 1:
            return tuple(factors)
        inner = self.dims[1:-1]
        meeting = 1 + inner.index(min(inner))
        return reduce(jnp.matmul, factors[:meeting]), reduce(jnp.matmul, factors[meeting:])

    def rows(self, context: tuple[Array, ...], start: ArrayLike, count: int) -> Float[Array, "{count} {self.dims[-1]}"]:
        left, *right = context
        return reduce(jnp.matmul, right, jax.lax.dynamic_slice_in_dim(left, start, count))

    def _factors(self, key: Key[Array, ""]) -> list[Array]:
        shapes = zip(self.dims[:-1], self.dims[1:], strict=True)
        keys = jax.random.split(key, len(self.dims) - 1)
        return [jax.random.normal(key, shape) for key, shape in zip(keys, shapes, strict=True)]
