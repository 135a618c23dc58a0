"""W_QK of a head of multi-head latent attention, drawn as a core of the size of its rank."""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Key

from rmtbase.ensembles._chi import chi
from rmtbase.ensembles._ensemble import Draw, as_pytree, rounded, sum_of_squares
from rmtbase.parameters import require_positive_integer, require_positive_number


class LatentParts(NamedTuple):
    latent: Float[Array, "rows columns"]
    rotated: Float[Array, "rows columns"]
    norm_squared: Float[Array, " factor"]


@partial(as_pytree, data_fields=["rope_ratio"], meta_fields=["d_model", "q_rank", "kv_rank", "d_nope", "d_rope"])
@dataclass(frozen=True)
class LatentAttention:
    """W_QK = W_Qᵀ W_K of a head with Gaussian W_Q = W_UQ W_DQ and W_K = [W_UK W_DKV; W_KR]: arXiv:2405.04434, §2.1.

    W_UQ is (d_head, q_rank), W_DQ (q_rank, d_model), W_UK (d_nope, kv_rank), W_DKV (kv_rank, d_model) and W_KR (d_rope,
    d_model), d_head = d_nope + d_rope; without a ``q_rank``, W_Q is a single (d_head, d_model) matrix.

    The ratio of the two parts of W_K is part of the shape. A draw is rescaled to have it in its own estimates, exactly
    σ̂_KR = rope_ratio · σ̂_UK σ̂_DKV √kv_rank. The overall scale is Π σ̂² of the other factors, whose norms are
    ``norm_squared``. As a factor's direction is independent of its norm, a head at its own σ̂, given its rope_ratio, has
    the law of a draw with this ratio at its own estimates.

    A Gaussian m × n factor is [T 0] O with O orthogonal and T lower trapezoidal (Bartlett), (m, min(m, n)): standard
    normal below the diagonal, χ_n, χ_{n-1}, … on it. The next factor, a matrix or two on top of one another, absorbs O,
    and only its first rows are multiplied by T; rows that are cut off add one χ² to a norm. A draw costs O(d_head³).
    """

    d_model: int
    q_rank: int | None
    kv_rank: int
    d_nope: int
    d_rope: int
    rope_ratio: Any = 1.0  # data, not shape, so that one compilation serves all its values

    @property
    def name(self) -> str:
        query = f"{self.d_model}" if self.q_rank is None else f"{self.d_model}-{self.q_rank}"
        return f"latent_attention {query}x{self.d_nope}-{self.kv_rank}+{self.d_rope} rope_ratio={self.rope_ratio!r}"

    @property
    def rank(self) -> int:
        return min(self.matrix_shape)

    @property
    def matrix_shape(self) -> tuple[int, int]:
        query, key = self._shapes
        return min(map(min, query)), min(key[1])

    @property
    def factor_sizes(self) -> tuple[int, ...]:
        d, a, c, h = self.d_model, self.q_rank, self.kv_rank, self.d_nope + self.d_rope
        return (*((h * d,) if a is None else (h * a, a * d)), self.d_nope * c, c * d)

    def sample(self, key: Key[Array, ""]) -> Draw:
        latent, rotated, norm_squared = self.parts(key)
        return Draw(latent + rounded(self.rope_ratio * rotated), norm_squared)

    def parts(self, key: Key[Array, ""]) -> LatentParts:
        """Make the same draw as the two parts of its core, which can be combined at many rope_ratios."""
        c, d, (query, (up, below)) = self.kv_rank, self.d_model, self._shapes
        shapes, in_latent = [*query, up, below], min(up)
        cut_off_rows = [0, *(self.q_rank - rows for rows, _ in query[1:] if self.q_rank), 0, c - in_latent]

        key_lengths, key_normals = jax.random.split(key)
        degrees_of_freedom = [n - np.arange(min(m, n), dtype=float) for m, n in shapes]
        cut_off_degrees = np.multiply(cut_off_rows, float(d))
        lengths = chi(key_lengths, jnp.asarray(np.concatenate([*degrees_of_freedom, cut_off_degrees])))
        *diagonals, cut_off = jnp.split(lengths, np.cumsum([degrees.size for degrees in degrees_of_freedom]))
        counts = [_strictly_below(shape)[0].size for shape in shapes]
        normals = jnp.split(jax.random.normal(key_normals, (sum(counts),)), np.cumsum(counts[:-1]))
        *of_query, t_up, t_below = map(_trapezoid, shapes, diagonals, normals)

        from_latent, rotated = t_below[:in_latent], t_below[in_latent:]
        norms = jnp.stack([sum_of_squares(factor) for factor in (*of_query, t_up, from_latent)])
        norm_squared = norms + rounded(cut_off**2)
        variance = norm_squared / np.array(self.factor_sizes, dtype=float)
        own_rotated = sum_of_squares(rotated) / (self.d_rope * d)
        unit = jnp.sqrt(c * variance[-2] * variance[-1] / own_rotated)

        w_q = of_query[0] if len(of_query) == 1 else of_query[0] @ of_query[1]
        meets_latent, meets_rotated = w_q[: self.d_nope], w_q[self.d_nope :]
        return LatentParts(meets_latent.T @ (t_up @ from_latent), meets_rotated.T @ (unit * rotated), norm_squared)

    @property
    def _shapes(self) -> tuple[list[tuple[int, int]], tuple[tuple[int, int], tuple[int, int]]]:
        """(rows, columns), without cut-off rows, of the factors of W_Q, and of W_UK and [W_DKV; W_KR]."""
        d, a, h = self.d_model, self.q_rank, self.d_nope + self.d_rope
        query = [(h, d)] if a is None else [(h, a), (min(h, a), d)]
        up = (self.d_nope, self.kv_rank)
        return query, (up, (min(up) + self.d_rope, d))


def latent_attention(
    d_model: int, kv_rank: int, d_nope: int, d_rope: int, q_rank: int | None = None, rope_ratio: float = 1.0
) -> LatentAttention:
    dims = {"d_model": d_model, "kv_rank": kv_rank, "d_nope": d_nope, "d_rope": d_rope}
    checked = {name: require_positive_integer(name, value) for name, value in dims.items()}
    query = None if q_rank is None else require_positive_integer("q_rank", q_rank)
    return LatentAttention(**checked, q_rank=query, rope_ratio=require_positive_number("rope_ratio", rope_ratio))


def _strictly_below(shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    m, n = shape
    return np.tril_indices(m, -1, min(m, n))


def _trapezoid(shape: tuple[int, int], diagonal: Float[Array, " k"], normals: Array) -> Float[Array, "m k"]:
    """Make the lower trapezoidal matrix, (m, min(m, n)), with that diagonal and, row by row, those elements below."""
    m, k = shape[0], min(shape)
    position = np.zeros((m, k), dtype=np.int32)  # position 0 holds a zero; one gather, as for a thin chain's triangles
    position[np.diag_indices(k)] = 1 + np.arange(k)
    position[_strictly_below(shape)] = 1 + k + np.arange(normals.size)
    entries = jax.lax.optimization_barrier(jnp.concatenate([jnp.zeros(1), diagonal, normals]))
    return jax.lax.optimization_barrier(entries[position])
