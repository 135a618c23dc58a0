"""A matrix with independent elements of one law: each row is drawn alone."""

from __future__ import annotations

from abc import abstractmethod

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Key

from rmtbase.ensembles._element_laws import ElementLaw
from rmtbase.ensembles._full_matrix import FullMatrix


class IndependentMatrix(FullMatrix):
    """An n_rows × n_columns matrix with independent, identically distributed elements.

    Each row has a key of its own, the draw's key with the row's number folded in.
    """

    @property
    @abstractmethod
    def law(self) -> ElementLaw:
        """The law of one element."""

    @property
    def element_std(self) -> float:
        """Standard deviation of one element; infinite where there is none."""
        return self.law.std

    def row_context(self, key: Key[Array, ""]) -> Key[Array, ""]:
        """What :meth:`rows` needs of a draw: its key."""
        return key

    def rows(self, context: Key[Array, ""], start: ArrayLike, count: int) -> Float[Array, "{count} {self.n_columns}"]:
        """Rows ``start``, …, ``start + count - 1`` of a draw, however the others are cut into blocks."""
        numbers = jnp.asarray(start, jnp.uint32) + jnp.arange(count, dtype=jnp.uint32)
        keys = jax.vmap(lambda number: jax.random.fold_in(context, number))(numbers)
        return jax.vmap(lambda key: self.law.sample(key, self.n_columns))(keys)
