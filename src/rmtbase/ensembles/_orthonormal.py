"""Gram–Schmidt with the signs that make it unique."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.custom_batching import sequential_vmap
from jaxtyping import Float


# Matrix after matrix: jaxlib's LAPACK shares a batch among threads, and two batches at once may wait for each other
# forever (jaxlib 0.10.2, two cores).
@sequential_vmap
def orthonormal_columns(matrix: Float[Array, "m n"]) -> Float[Array, "m n"]:
    """Q of the factorisation Q R with R's diagonal positive, m ≥ n.

    Of a standard normal matrix it is uniform (Haar) on the Stiefel manifold; LAPACK's own signs would not leave it so.

    Source: F. Mezzadri, Notices AMS 54, 592 (2007).
    """
    q, r = jnp.linalg.qr(matrix)
    return q * jnp.where(jnp.diagonal(r) < 0, -1.0, 1.0)
