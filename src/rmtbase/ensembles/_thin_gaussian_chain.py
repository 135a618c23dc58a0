"""Products of Gaussian matrices, drawn as a core of the size of their rank with the same singular values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int, Key

from rmtbase.ensembles._chi import chi
from rmtbase.ensembles._ensemble import ChainCore, Draw, SquareDraw, as_pytree, chain_name, rounded, sum_of_squares
from rmtbase.shown import in_one_line


@in_one_line
class BidiagonalDraw(NamedTuple):
    diagonal: Float[Array, " rank"]
    below: Float[Array, " rank_less_one"]


@partial(as_pytree, data_fields=["long"], meta_fields=["rank"])
@dataclass(frozen=True)
class BidiagonalGaussianMatrix(SquareDraw):
    """Exact law of the singular values of an m × n standard normal matrix, drawn from 2 min(m, n) - 1 numbers.

    Reflections from both sides bring the matrix to lower bidiagonal form with independent entries and keep ‖X‖_F²: χ
    with N, N-1, …, N-r+1 degrees of freedom on the diagonal and r-1, r-2, …, 1 below it, r = min(m, n), N = max(m, n).
    ``long`` is N: data, not shape, so that one compilation serves every N.

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
        r = self.rank
        degrees_of_freedom = [self.long - jnp.arange(r, dtype=float), jnp.arange(r - 1, 0, -1, dtype=float)]
        lengths = chi(key, jnp.concatenate(degrees_of_freedom))
        return BidiagonalDraw(lengths[:r], lengths[r:])


@partial(as_pytree, data_fields=["dims"], meta_fields=["rank", "bottleneck"])
@dataclass(frozen=True)
class ThinGaussianChain(ChainCore):
    """Exact joint law of the spectrum of X_1 X_2 … X_L and of every ‖X_l‖_F², at a cost that depends only on r and L.

    X_l has shape (n_{l-1}, n_l) and standard normal elements, L ≥ 2; r = min n_l = n_j. From the bottleneck j outward:

    * X_{j+1} (r × n) is [T 0] O, O orthogonal and T lower triangular with independent elements: standard normal below
      the diagonal, χ_n, χ_{n-1}, …, χ_{n-r+1} on it (Bartlett). O X_{j+2} has the law of X_{j+2}, and T multiplies only
      its first r rows, to which the same step applies, to the end, where the last O drops out; left of j likewise with
      X_jᵀ, X_{j-1}ᵀ, …. The core T_1ᵀ … T_jᵀ T_{j+1} … T_L has the nonzero singular values of the product.
    * One factor at the bottleneck needs no triangle: X_{j+1}, or X_L if j = L, is also U [B 0] V with Haar-distributed
      U and V, which the neighbours absorb, and a bidiagonal B, χ_n, …, χ_{n-r+1} on the diagonal and χ_{r-1}, …, χ_1
      below it, that replaces T. So does Bᵀ.
    * ‖T‖_F² or ‖B‖_F² is ‖X‖_F²; if only r of the m rows of X are kept, the others add one independent χ²_{(m-r)n}.

    A draw costs O(L r³) at L > 2 and O(r²) at L = 2. One compilation serves all chains with the same L, r and j.

    Source: M. S. Bartlett, Proc. R. Soc. Edinburgh 53, 260 (1934); N. R. Goodman, Ann. Math. Stat. 34, 178 (1963);
    for B, I. Dumitriu and A. Edelman, J. Math. Phys. 43, 5830 (2002).
    """

    dims: tuple[int | Int[Array, ""], ...]  #: (n_0, …, n_L)
    rank: int  #: r
    bottleneck: int  #: j; if there is a choice, not 0

    @property
    def name(self) -> str:
        return chain_name(self.dims)

    def sample(self, key: Key[Array, ""]) -> Draw:
        r, n_factors = self.rank, len(self.dims) - 1
        left = np.arange(n_factors) < self.bottleneck
        n = jnp.asarray(self.dims, dtype=float)
        inner, outer = jnp.where(left, n[1:], n[:-1]), jnp.where(left, n[:-1], n[1:])

        key_lengths, key_normals = jax.random.split(key)
        degrees = [*(outer[:, None] - jnp.arange(r)), (inner - r) * outer, jnp.arange(r - 1, 0, -1, dtype=float)]
        lengths = chi(key_lengths, jnp.concatenate(degrees))
        *diagonals, cut_off, below = jnp.split(lengths, np.cumsum([part.size for part in degrees[:-1]]))
        normals = jax.random.normal(key_normals, (n_factors - 1, r * (r - 1) // 2))

        b = min(self.bottleneck, n_factors - 1)  # the place of B among the factors
        off_diagonals = [*normals[:b], below, *normals[b:]]
        norms = [sum_of_squares(jnp.concatenate(both)) for both in zip(diagonals, off_diagonals, strict=True)]
        triangles = [upper_triangle(diagonals[place], off_diagonals[place]) for place in range(n_factors) if place != b]
        core = _core(triangles[:b], BidiagonalDraw(diagonals[b], below), triangles[b:])
        return Draw(core, jnp.stack(norms) + rounded(cut_off**2))


def upper_triangle(diagonal: Float[Array, " r"], normals: Float[Array, " m"]) -> Float[Array, "r r"]:
    """Make the upper triangular matrix with that diagonal and, row by row, those elements above it."""
    r = diagonal.size
    # One gather, not a scatter: XLA's scatter costs more than the normals themselves. Position 0 holds a zero.
    position = np.zeros((r, r), dtype=np.int32)
    position[np.diag_indices(r)] = 1 + np.arange(r)
    position[np.triu_indices(r, 1)] = 1 + r + np.arange(normals.size)
    # The barriers keep XLA from rewriting products with these elements differently for one draw and for many.
    entries = jax.lax.optimization_barrier(jnp.concatenate([jnp.zeros(1), diagonal, normals]))
    return jax.lax.optimization_barrier(entries[position])


def gram_triangle(lengths_key: Key[Array, ""], normals_key: Key[Array, ""], rows: Int[Array, " h"]) -> Array:
    """Draw an upper triangular T with TᵀT ~ GᵀG, G standard normal n × h; ``rows`` is n, n - 1, …, n - h + 1."""
    h = rows.size
    lengths = chi(lengths_key, jnp.maximum(rows, 0).astype(float))
    triangle = upper_triangle(lengths, jax.random.normal(normals_key, (h * (h - 1) // 2,)))
    return jnp.where((rows > 0)[:, None], triangle, 0.0)


def _core(left: list[Float[Array, "r r"]], b: BidiagonalDraw, right: list[Float[Array, "r r"]]) -> Float[Array, "r r"]:
    """left[0] left[1] … B … right[0]ᵀ right[1]ᵀ …, with Bᵀ in place of B if there is nothing left of it."""
    if left:
        *left, neighbour = left
        core = times_bidiagonal(neighbour, b)
    else:
        neighbour, *right = right
        core = times_bidiagonal(neighbour, b).T
    for upper in reversed(left):
        core = upper @ core
    for upper in right:
        core = core @ upper.T
    return core


def times_bidiagonal(matrix: Float[Array, "r r"], b: BidiagonalDraw) -> Float[Array, "r r"]:
    shifted = jnp.pad(matrix[:, 1:] * b.below, ((0, 0), (0, 1)))
    return rounded(matrix * b.diagonal) + rounded(shifted)
