"""Principal angles between two random subspaces."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Int, Key

from rmtbase.ensembles._ensemble import Draw, SquareDraw, as_pytree
from rmtbase.ensembles._orthogonal_matrix import orthonormal_columns
from rmtbase.ensembles._thin_gaussian_chain import gram_triangle
from rmtbase.parameters import require_head_shape


@partial(as_pytree, data_fields=["d_model"], meta_fields=["d_head"])
@dataclass(frozen=True)
class RandomSubspaces(SquareDraw):
    """V_Qᵀ V_K for two uniformly random h-dimensional subspaces of R^d with orthonormal bases V_Q and V_K.

    Its singular values are the cosines of the principal angles: the overlap of the row spaces of two heads by chance.
    It is the h × h corner A of a Haar-distributed d × d matrix. ‖A‖_F²/h, the mean cos², has expectation h/d and
    variance 2 (d - h)² / (d² (d - 1)(d + 2)).

    Exact draw: the first h columns of the Haar matrix are Q of G = Q R, G (d × h) standard normal and R with a positive
    diagonal. R depends only on Gᵀ G, so the rows of G beyond the first h may be replaced by their own triangle T,
    GᵀG = G_1ᵀG_1 + TᵀT, which has χ_{d-h}, χ_{d-h-1}, … on its diagonal, standard normals above it, and at most d - h
    rows. The first h rows of Q of the stack [G_1; T] are A. O(h³), whatever d.

    ``d_model`` is data, not shape, so that one compilation serves every d_model.

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
