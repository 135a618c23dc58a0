"""Heads of orthogonally initialised matrices: rows of Haar-distributed matrices, and products of two such blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Key

from rmtbase.ensembles._chi import chi
from rmtbase.ensembles._ensemble import Draw, DrawnByItsCore, as_pytree
from rmtbase.ensembles._orthogonal_matrix import orthonormal_columns
from rmtbase.ensembles._sum_of_squares import sum_of_squares
from rmtbase.ensembles._thin_gaussian_chain import upper_triangle
from rmtbase.errors import ParameterError
from rmtbase.parameters import require_flag, require_positive_integer


@partial(as_pytree, data_fields=[], meta_fields=["dims", "rows", "fused"])
@dataclass(frozen=True)
class OrthogonalBlocks(DrawnByItsCore):
    """X, or X_1ᵀ X_2, of blocks of h rows of orthogonal matrices, as ``torch.nn.init.orthogonal_`` draws them.

    The stored matrix, N × n, is uniform (Haar) among those with orthonormal rows, or where N > n with orthonormal
    columns, and a head is h of its N rows. With N ≤ n these are orthonormal: X Xᵀ = 1, and the spectrum is fixed. With
    N > n, X Xᵀ has the matrix-variate beta law with n/2 and (N - n)/2 (the Jacobi ensemble): with independent Gaussian
    G, n × h, and G′, (N - n) × h, it is that of R⁻ᵀ GᵀG R⁻¹, RᵀR = GᵀG + G′ᵀG′. The squared singular values of
    X_1ᵀ X_2 are the eigenvalues of X_1 X_1ᵀ X_2 X_2ᵀ: the law of X does not change under rotations of R^n or of R^h.

    ``fused``: both blocks are rows of one stored matrix, 2h of its N.

    Exact draw: GᵀG = TᵀT and G′ᵀG′ = T′ᵀT′ with triangles of Bartlett's law, and M, the first h rows of Q of the stack
    [T; T′] = Q R, has MᵀM in the law of X Xᵀ. O(h³), whatever n and N.

    Attributes:
        dims: (h, n) of one block, (n_0, h, n_2) of X_1ᵀ X_2.
        rows: N of each block.
        fused: see above.

    Source: M. L. Eaton, Multivariate Statistics (1983), chapter 7; F. Mezzadri, Notices AMS 54, 592 (2007).
    """

    dims: tuple[int, ...]
    rows: tuple[int, ...]
    fused: bool

    @property
    def name(self) -> str:
        """``orthogonal_blocks {dims} of {rows}``, and ``fused`` where they are."""
        dims, rows = ("x".join(map(str, one)) for one in (self.dims, self.rows))
        return f"orthogonal_blocks {dims} of {rows}{' fused' * self.fused}"

    @property
    def rank(self) -> int:
        """The rows h of a block."""
        return self.dims[0] if len(self.dims) == 2 else self.dims[1]

    def sample(self, key: Key[Array, ""]) -> Draw:
        """One draw; ``matrix`` is the core, of shape (h, h)."""
        h, widths = self.rank, (self.dims[-1],) if len(self.dims) == 2 else (self.dims[0], self.dims[-1])
        if self.fused:
            both = _root(key, 2 * h, widths[0], self.rows[0])
            roots = [_triangle(both[:, :h]), _triangle(both[:, h:])]
        else:
            keys = jax.random.split(key, len(widths))
            roots = [_root(one, h, n, rows) for one, n, rows in zip(keys, widths, self.rows, strict=True)]
        norms = jnp.stack([sum_of_squares(root) for root in roots])
        return Draw(roots[0] @ roots[1].T if len(roots) > 1 else roots[0], norms)


def _root(key: Key[Array, ""], h: int, n: int, rows: int) -> Float[Array, "h h"]:
    """M, with MᵀM in the law of X Xᵀ."""
    if rows <= n:
        return jnp.eye(h)
    keys = jax.random.split(key)
    stack = [_gram_triangle(one, h, count) for one, count in zip(keys, (n, rows - n), strict=True)]
    return orthonormal_columns(jnp.concatenate(stack))[:h]


def _gram_triangle(key: Key[Array, ""], h: int, n: int) -> Float[Array, "h h"]:
    """T, upper triangular, with TᵀT in the law of GᵀG, G standard normal n × h; rows beyond the n-th are zero."""
    key_lengths, key_normals = jax.random.split(key)
    left = n - jnp.arange(h)
    lengths = chi(key_lengths, jnp.maximum(left, 0).astype(float))
    triangle = upper_triangle(lengths, jax.random.normal(key_normals, (h * (h - 1) // 2,)))
    return jnp.where((left > 0)[:, None], triangle, 0.0)


def _triangle(matrix: Float[Array, "m h"]) -> Float[Array, "h h"]:
    """R of the factorisation Q R: RᵀR = MᵀM."""
    return orthonormal_columns(matrix).T @ matrix


def orthogonal_blocks(dims: Sequence[int], rows: Sequence[int], fused: bool = False) -> OrthogonalBlocks:
    """The ensemble of heads of orthogonally initialised matrices.

    Args:
        dims: (h, n) of one block; (n_0, h, n_2) of the product X_1ᵀ X_2, of W_QK (d_model, d_head, d_model).
        rows: of the stored matrix of each block, N ≥ h: the number of heads times d_head, where heads fill it.
        fused: whether both blocks are of one stored matrix, N ≥ 2h.

    Raises:
        ParameterError: other than two or three dimensions, that are no positive integers; h larger than a width; a
            stored matrix without room for its blocks; ``fused`` with blocks of different matrices.
    """
    if len(dims) not in (2, 3):
        raise ParameterError("dims", tuple(dims), "(h, n) of one block or (n_0, h, n_2) of two")
    checked = tuple(require_positive_integer("dims", one) for one in dims)
    h, widths = (checked[0], checked[1:]) if len(checked) == 2 else (checked[1], checked[::2])
    if h > min(widths):
        raise ParameterError("dims", checked, "no more rows in a block than columns")
    stored = tuple(require_positive_integer("rows", one) for one in rows)
    if len(stored) != len(widths) or min(stored) < h * (1 + require_flag("fused", fused)):
        raise ParameterError("rows", stored, f"{len(widths)} of at least {h * (1 + fused)}, the rows of the blocks")
    if fused and (len(widths) == 1 or len({*stored}) > 1 or len({*widths}) > 1):
        raise ParameterError("fused", fused, "two blocks of one width with the same number of stored rows")
    return OrthogonalBlocks(checked, stored, fused)
