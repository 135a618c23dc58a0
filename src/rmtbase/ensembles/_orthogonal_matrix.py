"""A matrix with orthonormal rows or columns, as the orthogonal initialiser draws it."""

from __future__ import annotations

from dataclasses import dataclass, field

import jax
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Float, Key

from rmtbase.ensembles._full_matrix import FullMatrix
from rmtbase.ensembles._initializers import Orthogonal


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class OrthogonalMatrix(FullMatrix):
    """gain · Q, Q uniform (Haar) on the Stiefel manifold: all its min(n_rows, n_columns) singular values are the gain.

    No row can be drawn without the others: what a draw's rows are cut from is the matrix, held whole.
    """

    n_rows: int = field(metadata={"static": True})
    n_columns: int = field(metadata={"static": True})
    initializer: Orthogonal

    @property
    def name(self) -> str:
        """``initialized_matrix {n_rows}x{n_columns} orthogonal gain={gain}``."""
        return f"initialized_matrix {self.n_rows}x{self.n_columns} {self.initializer.label}"

    @property
    def element_std(self) -> float:
        """Gain/√max(n_rows, n_columns): the squares of a row or column of Q of that length add up to one."""
        return self.initializer.gain / max(self.element_shape) ** 0.5

    def row_context(self, key: Key[Array, ""]) -> Float[Array, "{self.n_rows} {self.n_columns}"]:
        """What :meth:`rows` needs of a draw: the whole matrix."""
        return self.initializer.sample(key, self.n_rows, self.n_columns)

    def rows(
        self, context: Float[Array, "{self.n_rows} {self.n_columns}"], start: ArrayLike, count: int
    ) -> Float[Array, "{count} {self.n_columns}"]:
        """Rows ``start``, …, ``start + count - 1`` of a draw."""
        return lax.dynamic_slice_in_dim(context, start, count)
