"""Blocks of Haar-distributed matrices: heads of orthogonal initialisation, and angles between random subspaces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int, Key

from rmtbase.ensembles._ensemble import Draw, DrawnByItsCore, SquareDraw, as_pytree, sum_of_squares
from rmtbase.ensembles._orthogonal_matrix import orthonormal_columns
from rmtbase.ensembles._thin_gaussian_chain import gram_triangle
from rmtbase.errors import ParameterError
from rmtbase.parameters import require_head_shape, require_positive_integer


@partial(as_pytree, data_fields=[], meta_fields=["dims", "rows", "fused"])
@dataclass(frozen=True)
class OrthogonalBlocks(DrawnByItsCore):
    """Block X of h rows of an orthogonal matrix drawn as by ``torch.nn.init.orthogonal_``, or a product X_1ᵀ X_2.

    The stored matrix, N × n, is uniform (Haar) among those with orthonormal rows, or columns if N > n, and a head is h
    of its N rows. With N ≤ n these are orthonormal: X Xᵀ = 1, and the spectrum is fixed. With N > n, X Xᵀ has the
    Jacobi ensemble's law with n/2 and (N - n)/2, that of R⁻ᵀ GᵀG R⁻¹, RᵀR = GᵀG + G′ᵀG′, with Gaussian G, n × h, and
    G′, (N - n) × h. The squared singular values of X_1ᵀ X_2 are the eigenvalues of X_1 X_1ᵀ X_2 X_2ᵀ.

    Exact draw in O(h³): GᵀG = TᵀT and G′ᵀG′ = T′ᵀT′ with triangles that have Bartlett's law. If M is the first h rows
    of Q in [T; T′] = Q R, then MᵀM has the law of X Xᵀ.

    Source: M. L. Eaton, Multivariate Statistics (1983), chapter 7; F. Mezzadri, Notices AMS 54, 592 (2007).
    """

    dims: tuple[int, ...]  #: (h, n) for one block, (n_0, h, n_2) for X_1ᵀ X_2
    rows: tuple[int, ...]  #: N of each block
    fused: bool  #: True if both blocks are rows of one stored matrix, 2h of its N

    @property
    def name(self) -> str:
        dims, rows = ("x".join(map(str, sizes)) for sizes in (self.dims, self.rows))
        return f"orthogonal_blocks {dims} of {rows}{' fused' * self.fused}"

    @property
    def rank(self) -> int:
        return self.dims[0] if len(self.dims) == 2 else self.dims[1]

    def sample(self, key: Key[Array, ""]) -> Draw:
        h, widths = self.rank, (self.dims[-1],) if len(self.dims) == 2 else (self.dims[0], self.dims[-1])
        if self.fused:
            both = _root(key, 2 * h, widths[0], self.rows[0])
            halves = both[:, :h], both[:, h:]
            roots = [orthonormal_columns(half).T @ half for half in halves]  # R of Q R: RᵀR = MᵀM
        else:
            keys = jax.random.split(key, len(widths))
            roots = [_root(block_key, h, n, rows) for block_key, n, rows in zip(keys, widths, self.rows, strict=True)]
        norms = jnp.stack([sum_of_squares(root) for root in roots])
        return Draw(roots[0] @ roots[1].T if len(roots) > 1 else roots[0], norms)


def _root(key: Key[Array, ""], h: int, n: int, rows: int) -> Float[Array, "h h"]:
    """Draw M such that MᵀM has the law of X Xᵀ."""
    if rows <= n:
        return jnp.eye(h)
    stack = []
    for block_key, count in zip(jax.random.split(key), (n, rows - n), strict=True):
        key_lengths, key_normals = jax.random.split(block_key)
        stack.append(gram_triangle(key_lengths, key_normals, count - jnp.arange(h)))
    return orthonormal_columns(jnp.concatenate(stack))[:h]


def orthogonal_blocks(dims: Sequence[int], rows: Sequence[int], fused: bool = False) -> OrthogonalBlocks:
    """Ensemble of heads of orthogonally initialised matrices.

    Args:
        dims: (h, n) for one block; (n_0, h, n_2) for the product X_1ᵀ X_2, which is (d_model, d_head, d_model) for
            W_QK.
        rows: number N ≥ h of rows of the stored matrix of each block: the number of heads times d_head if the heads
            fill it.
        fused: whether both blocks belong to one stored matrix, N ≥ 2h.

    Raises:
        ParameterError: there are not two or three dimensions, or one is not a positive integer; h is larger than a
            width; a stored matrix has no room for its blocks; or ``fused`` is given for blocks that cannot be rows
            of one matrix.
    """
    if len(dims) not in (2, 3):
        raise ParameterError("dims", tuple(dims), "(h, n) of one block or (n_0, h, n_2) of two")
    checked = tuple(require_positive_integer("dims", size) for size in dims)
    h, widths = (checked[0], checked[1:]) if len(checked) == 2 else (checked[1], checked[::2])
    if h > min(widths):
        raise ParameterError("dims", checked, "no more rows in a block than columns")
    stored = tuple(require_positive_integer("rows", size) for size in rows)
    if len(stored) != len(widths) or min(stored) < h * (1 + fused):
        expected = f"{len(widths)} numbers of at least {h * (1 + fused)}, the rows of the blocks"
        raise ParameterError("rows", stored, expected)
    if fused and (len(widths) == 1 or len({*stored}) > 1 or len({*widths}) > 1):
        raise ParameterError("fused", fused, "two blocks of one width with the same number of stored rows")
    return OrthogonalBlocks(checked, stored, fused)


@partial(as_pytree, data_fields=["d_model"], meta_fields=["d_head"])
@dataclass(frozen=True)
class RandomSubspaces(SquareDraw):
    """V_Qᵀ V_K for two uniformly random h-dimensional subspaces of R^d with orthonormal bases V_Q and V_K.

    Its singular values are the cosines of the principal angles: the overlap of the row spaces of two heads by chance.
    It is the h × h corner A of a Haar-distributed d × d matrix. ‖A‖_F²/h, the mean cos², has expectation h/d and
    variance 2 (d - h)² / (d² (d - 1)(d + 2)).

    Exact draw in O(h³): the first h columns of the Haar matrix are Q of a Gaussian G = Q R, d × h, and R depends only
    on Gᵀ G, so that the rows of G beyond the first h may be replaced by their own triangle T of at most d - h rows. The
    first h rows of Q of the stack [G_1; T] are A. One compilation serves every d_model.

    Source: M. L. Eaton, Multivariate Statistics (1983), chapter 7; F. Mezzadri, Notices AMS 54, 592 (2007).
    """

    d_model: int | Int[Array, ""]
    d_head: int

    @property
    def name(self) -> str:
        return f"random_subspaces {self.d_model}x{self.d_head}"

    @property
    def rank(self) -> int:
        """d_head, also if 2 d_head > d_model, when some cosines are one."""
        return self.d_head

    def sample(self, key: Key[Array, ""]) -> Draw:
        h = self.d_head
        key_top, key_lengths, key_normals = jax.random.split(key, 3)
        top = jax.random.normal(key_top, (h, h))
        left = self.d_model - h - jnp.arange(h)  # number of rows of G from this row of the triangle down
        stack = jnp.concatenate([top, gram_triangle(key_lengths, key_normals, left)])
        return Draw(orthonormal_columns(stack)[:h], jnp.zeros(0))


def random_subspaces(d_model: int, d_head: int) -> RandomSubspaces:
    """Ensemble of V_Qᵀ V_K, the overlap of two uniformly random d_head-dimensional subspaces of R^d_model.

    Raises:
        ParameterError: a dimension is not a positive integer, or d_head > d_model.
    """
    return RandomSubspaces(*require_head_shape(d_model, d_head))
