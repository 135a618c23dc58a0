"""Product of Gaussian matrices, drawn as the matrix itself."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial, reduce

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Key

from rmtbase.ensembles._ensemble import Draw, DrawnByItsCore, as_pytree, chain_name, sum_of_squares


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

    def rows(
        self, context: tuple[Float[Array, "_ _"], ...], start: ArrayLike, count: int
    ) -> Float[Array, "{count} {self.dims[-1]}"]:
        left, *right = context
        return reduce(jnp.matmul, right, jax.lax.dynamic_slice_in_dim(left, start, count))

    def _factors(self, key: Key[Array, ""]) -> list[Array]:
        shapes = zip(self.dims[:-1], self.dims[1:], strict=True)
        keys = jax.random.split(key, len(self.dims) - 1)
        return [jax.random.normal(key, shape) for key, shape in zip(keys, shapes, strict=True)]
