"""‖X‖_F² with its additions in one fixed order, and products that are rounded before they are added."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float


def rounded(product: Float[Array, "..."]) -> Float[Array, "..."]:
    """A product less its last bit, to be added to another.

    XLA contracts a b + c d to one fused multiply-add, of which it rounds only the other product, and which one that is
    depends on the batch. What has been through here is rounded in any case.
    """
    kind = jnp.finfo(product.dtype)
    return jax.lax.reduce_precision(product, exponent_bits=kind.nexp, mantissa_bits=kind.nmant - 1)


def sum_of_squares(x: Float[Array, "..."]) -> Float[Array, ""]:
    """The sum of the squares of all elements, in pairs, in pairs of pairs, ….

    XLA orders the additions of ``jnp.sum`` by the size of the batch and the number of threads, and with the order the
    last bit changes; here the order is that of the elements.
    """
    squares = rounded(jnp.ravel(x) ** 2)
    while squares.size > 1:
        half = (squares.size + 1) // 2
        squares = squares[:half] + jnp.pad(squares[half:], (0, 2 * half - squares.size))
    return jnp.sum(squares)
