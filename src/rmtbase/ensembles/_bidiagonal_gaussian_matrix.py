"""A rectangular Gaussian matrix, drawn as the bidiagonal matrix with the same singular values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int, Key

from rmtbase.ensembles._chi import chi


class BidiagonalDraw(NamedTuple):
    """A square lower bidiagonal matrix: its diagonal and the entries below it."""

    diagonal: Float[Array, " rank"]
    below: Float[Array, " rank_less_one"]


@partial(jax.tree_util.register_dataclass, data_fields=["long"], meta_fields=["rank"])
@dataclass(frozen=True)
class BidiagonalGaussianMatrix:
    """The exact law of the singular values of an m × n standard normal matrix from 2 min(m, n) - 1 numbers.

    Householder reflections from both sides bring the matrix to a lower bidiagonal one with independent entries:
    χ with N, N-1, …, N-r+1 degrees of freedom on the diagonal and r-1, r-2, …, 1 below it, where r = min(m, n) and
    N = max(m, n).

    Source: I. Dumitriu and A. Edelman, J. Math. Phys. 43, 5830 (2002), β = 1 Laguerre ensemble.
    """

    long: int | Int[Array, ""]
    rank: int

    def sample(self, key: Key[Array, ""]) -> BidiagonalDraw:
        """One draw: the ``rank`` diagonal entries and the ``rank - 1`` entries below them."""
        key_diagonal, key_below = jax.random.split(key)
        diagonal = chi(key_diagonal, self.long - jnp.arange(self.rank, dtype=float))
        below = chi(key_below, jnp.arange(self.rank - 1, 0, -1, dtype=float))
        return BidiagonalDraw(diagonal, below)
