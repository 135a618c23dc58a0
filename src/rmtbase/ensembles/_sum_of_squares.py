"""‖X‖_F² with a fixed order of additions, and products that are rounded before they are added."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float


def rounded(product: Float[Array, "..."]) -> Float[Array, "..."]:
    """Drop the last bit of a product that is to be added to another.

    XLA contracts a b + c d to a fused multiply-add, which rounds only one of the two products, and which one depends on
    the batch. A product that has passed through this function is rounded in any case.
    """
    kind = jnp.finfo(product.dtype)
    return jax.lax.reduce_precision(product, exponent_bits=kind.nexp, mantissa_bits=kind.nmant - 1)


def sum_of_squares(x: Float[Array, "..."]) -> Float[Array, ""]:
    """Sum the squares of all elements in pairs, then in pairs of pairs, ….

    The order of additions in XLA's ``jnp.sum`` depends on the size of the batch and the number of threads, and changes
    the last bit; here it depends only on the order of the elements.
    """
    squares = rounded(jnp.ravel(x) ** 2)
    while squares.size > 1:
        half = (squares.size + 1) // 2
        squares = squares[:half] + jnp.pad(squares[half:], (0, 2 * half - squares.size))
    return jnp.sum(squares)
