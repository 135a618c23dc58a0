"""Chi-distributed draws, the diagonal of every Gaussian matrix that an orthogonal change of basis has emptied."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Key


def chi(key: Key[Array, ""], degrees_of_freedom: Float[Array, " n"]) -> Float[Array, " n"]:
    """Independent χ variates, the lengths of standard normal vectors: χ_ν = √(2 Gamma(ν/2))."""
    return jnp.sqrt(2.0 * jax.random.gamma(key, 0.5 * degrees_of_freedom))
