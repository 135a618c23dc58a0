"""Joint law of the query heads of a group, which share one key head."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Int, Key

from rmtbase.ensembles._chi import chi
from rmtbase.ensembles._ensemble import Draw, as_pytree, sum_of_squares
from rmtbase.ensembles._thin_gaussian_chain import BidiagonalDraw, times_bidiagonal, upper_triangle
from rmtbase.parameters import require_head_shape, require_positive_integer


@partial(as_pytree, data_fields=["d_model"], meta_fields=["d_head", "group"])
@dataclass(frozen=True)
class GroupedQueryProduct:
    """Exact joint law of the spectra of W_Q,1ᵀ W_K, …, W_Q,gᵀ W_K: g query heads that share one key head.

    With W_K = U [B 0] V, B bidiagonal, the nonzero singular values of W_Q,iᵀ W_K are those of (Uᵀ W_Q,i)ᵀ B. Given U,
    the Uᵀ W_Q,i are again independent Gaussian matrices, and (Uᵀ W_Q,i)ᵀ = O_i R_i with R_i upper triangular, standard
    normal above the diagonal and χ_d, χ_{d-1}, …, χ_{d-h+1} on it. A draw consists of the cores R_i B, each with the
    law of ``low_rank_product``, and costs O(g h²), whatever d.

    Two heads are correlated only through B: Cov(Σλ_1, Σλ_2) = 2 d³ h, a correlation of d / (2d + h + 1) for the raw
    product, and exactly 1/2 for the log-determinants.

    A draw has several matrices, so this ensemble is for ``montecarlo.simulate_heads_with_factors``, not for a plan.
    ``d_model`` is data, not shape, so that one compilation serves every d_model.

    Source: M. S. Bartlett, Proc. R. Soc. Edinburgh 53, 260 (1934); I. Dumitriu and A. Edelman, J. Math. Phys. 43, 5830
    (2002); J. Ainslie et al., EMNLP (2023), for the architecture.
    """

    d_model: int | Int[Array, ""]
    d_head: int
    group: int

    @property
    def name(self) -> str:
        return f"grouped_query_product {self.d_model}x{self.d_head} group={self.group}"

    @property
    def rank(self) -> int:
        return self.d_head

    @property
    def matrix_shape(self) -> tuple[int, int, int]:
        return (self.group, self.d_head, self.d_head)

    @property
    def factor_sizes(self) -> tuple[int, ...]:
        return (int(self.d_model) * self.d_head,) * (self.group + 1)

    def sample(self, key: Key[Array, ""]) -> Draw:
        """Make one draw; ``matrix`` holds the cores (group, d_head, d_head), ``norm_squared`` ends with W_K's."""
        diagonals, normals, b = self._parts(key)
        cores = jax.vmap(lambda *entries: times_bidiagonal(upper_triangle(*entries), b))(diagonals, normals)
        of_queries = jax.vmap(sum_of_squares)(jnp.concatenate([diagonals, normals], axis=1))
        return Draw(cores, jnp.append(of_queries, sum_of_squares(jnp.concatenate(b))))

    def sample_with_factors(self, key: Key[Array, ""]) -> tuple[Array, Array, Array]:
        """Make the same draw as (cores R_i B, the R_i, B); R_i and B have the singular values of the factors."""
        diagonals, normals, b = self._parts(key)
        triangles = jax.vmap(upper_triangle)(diagonals, normals)
        bidiagonal = jnp.diag(b.diagonal) + jnp.diag(b.below, -1)
        return jax.vmap(lambda upper: times_bidiagonal(upper, b))(triangles), triangles, bidiagonal

    def _parts(self, key: Key[Array, ""]) -> tuple[Array, Array, BidiagonalDraw]:
        h, g = self.d_head, self.group
        key_lengths, key_normals = jax.random.split(key)
        full = self.d_model - jnp.arange(h, dtype=float)
        lengths = chi(key_lengths, jnp.concatenate([jnp.tile(full, g + 1), jnp.arange(h - 1, 0, -1, dtype=float)]))
        diagonals = lengths[: g * h].reshape(g, h)
        b = BidiagonalDraw(lengths[g * h : (g + 1) * h], lengths[(g + 1) * h :])
        return diagonals, jax.random.normal(key_normals, (g, h * (h - 1) // 2)), b


def grouped_query_product(d_model: int, d_head: int, group: int) -> GroupedQueryProduct:
    """Ensemble of W_Q,1ᵀ W_K, …, W_Q,gᵀ W_K with i.i.d. standard normal factors of shape (d_head, d_model).

    A draw has one core per query head, (group, d_head, d_head).

    Raises:
        ParameterError: a dimension or the group is not a positive integer, or d_head > d_model.
    """
    d_model, d_head = require_head_shape(d_model, d_head)
    return GroupedQueryProduct(d_model, d_head, require_positive_integer("group", group))
