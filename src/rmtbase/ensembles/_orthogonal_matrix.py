"""Matrices with orthonormal rows or columns: the Q of a QR factorisation, and the orthogonal initialiser's draws."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_batching import sequential_vmap
from jax.typing import ArrayLike
from jaxtyping import Float, Key

from rmtbase.ensembles._ensemble import as_pytree
from rmtbase.ensembles._full_matrix import FullMatrix
from rmtbase.ensembles._initializers import Orthogonal


# One matrix after the other: jaxlib's LAPACK shares a batch among threads, and two batches at once may deadlock
# (jaxlib 0.10.2, two cores).
@sequential_vmap
def orthonormal_columns(matrix: Float[Array, "m n"]) -> Float[Array, "m n"]:
    """Q of Q R, diagonal of R positive, m ≥ n; Haar for a normal matrix: F. Mezzadri, Notices AMS 54, 592 (2007)."""
    q, r = jnp.linalg.qr(matrix)
    return q * jnp.where(jnp.diagonal(r) < 0, -1.0, 1.0)


@as_pytree
@dataclass(frozen=True)
class OrthogonalMatrix(FullMatrix):
    """gain · Q, Q uniform (Haar) on the Stiefel manifold: all its min(n_rows, n_columns) singular values are the gain.

    No row can be drawn without the others, so a draw holds the whole matrix, and rows are cut from it.
    """

    initializer: Orthogonal

    @property
    def name(self) -> str:
        return f"initialized_matrix {self.n_rows}x{self.n_columns} {self.initializer.label}"

    @property
    def element_std(self) -> float:
        """Gain/√max(n_rows, n_columns), because a row or column of Q of this length has unit norm."""
        return self.initializer.gain / max(self.element_shape) ** 0.5

    def row_context(self, key: Key[Array, ""]) -> Float[Array, "{self.n_rows} {self.n_columns}"]:
        q = orthonormal_columns(jax.random.normal(key, (max(self.element_shape), min(self.element_shape))))
        return self.initializer.gain * (q.T if self.n_rows < self.n_columns else q)

    def rows(
        self, context: Float[Array, "{self.n_rows} {self.n_columns}"], start: ArrayLike, count: int
    ) -> Float[Array, "{count} {self.n_columns}"]:
        return lax.dynamic_slice_in_dim(context, start, count)
