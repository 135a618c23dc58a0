"""Rectangular Gaussian matrix, drawn as the bidiagonal matrix with the same singular values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int, Key

from rmtbase.ensembles._chi import chi
from rmtbase.ensembles._ensemble import Draw, SquareDraw, as_pytree, sum_of_squares
from rmtbase.shown import in_one_line


@in_one_line
class BidiagonalDraw(NamedTuple):
    diagonal: Float[Array, " rank"]
    below: Float[Array, " rank_less_one"]


@partial(as_pytree, data_fields=["long"], meta_fields=["rank"])
@dataclass(frozen=True)
class BidiagonalGaussianMatrix(SquareDraw):
    """Exact law of the singular values of an m × n standard normal matrix, drawn from 2 min(m, n) - 1 numbers.

    Householder reflections from both sides bring the matrix to lower bidiagonal form with independent entries:
    χ with N, N-1, …, N-r+1 degrees of freedom on the diagonal and r-1, r-2, …, 1 below it, where r = min(m, n) and
    N = max(m, n). Reflections also keep ‖X‖_F².

    ``long`` is N. It is data, not shape, so that one compilation serves every N.

    Source: I. Dumitriu and A. Edelman, J. Math. Phys. 43, 5830 (2002), β = 1 Laguerre ensemble.
    """

    long: int | Int[Array, ""]
    rank: int

    @property
    def name(self) -> str:
        return f"gaussian_matrix {self.long}x{self.rank}"

    @property
    def factor_sizes(self) -> tuple[int, ...]:
        return (int(self.long) * self.rank,)

    def sample(self, key: Key[Array, ""]) -> Draw:
        diagonal, below = self.bidiagonal(key)
        norm_squared = sum_of_squares(jnp.concatenate([diagonal, below]))
        return Draw(jnp.diag(diagonal) + jnp.diag(below, -1), norm_squared[None])

    def bidiagonal(self, key: Key[Array, ""]) -> BidiagonalDraw:
        """Make the same draw as vectors."""
        r = self.rank
        degrees_of_freedom = [self.long - jnp.arange(r, dtype=float), jnp.arange(r - 1, 0, -1, dtype=float)]
        lengths = chi(key, jnp.concatenate(degrees_of_freedom))
        return BidiagonalDraw(lengths[:r], lengths[r:])
