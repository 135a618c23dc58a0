"""The shape of a head of multi-head latent attention, whose W_QK is no chain."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike


@dataclass(frozen=True)
class LatentShape:
    """W_Q = W_UQ W_DQ, or one matrix, and W_K = [W_UK W_DKV; W_KR], which meets it in d_nope and d_rope dimensions.

    W_DQ, W_DKV and W_KR are shared by all heads of a layer, so that p-values of its heads depend on each other, as
    those of heads that share a key do. A head without d_rope is the chain (d_model, q_rank, d_nope, kv_rank, d_model),
    or (d_model, d_nope, kv_rank, d_model).

    Attributes:
        d_model: width of the residual stream.
        kv_rank: of the latent of keys and values.
        d_nope: dimensions of a head that are not rotated by position.
        d_rope: those that are.
        q_rank: of the latent of the queries; None where they have none.
    """

    d_model: int
    kv_rank: int
    d_nope: int
    d_rope: int
    q_rank: int | None = None

    def __str__(self) -> str:
        return "latent attention ({})".format(", ".join(f"{name} {n}" for name, n in asdict(self).items() if n))

    @property
    def dims(self) -> tuple[int, ...]:
        """Those of a chain with as many nonzero eigenvalues, whose smallest has as many inverse moments.

        W_K has min(d_nope, kv_rank) + d_rope rows that are independent, and W_UK is as far from losing one of its own
        as these two dimensions are apart.
        """
        rows = min(self.d_nope, self.kv_rank) + self.d_rope
        query = (self.d_nope + self.d_rope, *(() if self.q_rank is None else (self.q_rank,)), self.d_model)
        others = query if rows < query[0] else query[1:]
        rank = min(rows, *others)
        return self.d_model, rows, *others, rank + abs(self.d_nope - self.kv_rank)

    def rope_ratio(self, sigma_uk: ArrayLike, sigma_dkv: ArrayLike, sigma_kr: ArrayLike) -> Float[np.ndarray, "..."]:
        """σ̂_KR / (σ̂_UK σ̂_DKV √kv_rank): an element of the rotated key's matrix against one of W_UK W_DKV."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.divide(sigma_kr, np.multiply(sigma_uk, sigma_dkv) * math.sqrt(self.kv_rank))
