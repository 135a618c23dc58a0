"""Shape of a head of multi-head latent attention, whose W_QK is not a chain."""

import math
from dataclasses import asdict, dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike


@dataclass(frozen=True)
class LatentShape:
    """Shape of a head with W_Q = W_UQ W_DQ, or one matrix, and W_K = [W_UK W_DKV; W_KR], of d_nope and d_rope rows."""

    d_model: int  # width of the residual stream
    kv_rank: int  # dimension of the latent of keys and values
    d_nope: int  # number of dimensions of a head that are not rotated by position
    d_rope: int  # number of rotated dimensions
    q_rank: int | None = None  # dimension of the latent of the queries; None if they have none

    def __str__(self) -> str:
        return "latent attention ({})".format(", ".join(f"{name} {n}" for name, n in asdict(self).items() if n))

    @property
    def dims(self) -> tuple[int, ...]:
        # Of a chain with the same number of nonzero eigenvalues and of inverse moments of the smallest one. The last
        # accounts for W_UK, whose own smallest singular value has moments that depend on |d_nope - kv_rank|.
        rows = min(self.d_nope, self.kv_rank) + self.d_rope
        query = (self.d_nope + self.d_rope, *(() if self.q_rank is None else (self.q_rank,)), self.d_model)
        dims = query if rows < query[0] else query[1:]
        rank = min(rows, *dims)
        return self.d_model, rows, *dims, rank + abs(self.d_nope - self.kv_rank)

    def rope_ratio(self, sigma_uk: ArrayLike, sigma_dkv: ArrayLike, sigma_kr: ArrayLike) -> Float[np.ndarray, "..."]:
        """σ̂_KR / (σ̂_UK σ̂_DKV √kv_rank): the size of an element of W_KR relative to an element of W_UK W_DKV."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.divide(sigma_kr, np.multiply(sigma_uk, sigma_dkv) * math.sqrt(self.kv_rank))
