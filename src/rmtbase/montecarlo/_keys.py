"""Random keys: a draw is a function of (seed, case, draw index) alone."""

from __future__ import annotations

import operator
import zlib
from typing import SupportsIndex

import jax
from jax import Array
from jaxtyping import Key, UInt32

from rmtbase.errors import ParameterError
from rmtbase.linalg import PRNG_IMPLEMENTATION
from rmtbase.parameters import require_seed

MAX_DRAWS = 2**32 - 2**16
"""Draws of one case: a draw's index is folded into its key as 32 bits, and the last batch may reach beyond the end."""


def case_key(seed: int, case: str) -> Key[Array, ""]:
    """The key of one case: the seed's key with the case's name folded in.

    The name, and not the place in a list, so that a case draws the same numbers in whatever table it stands. Call
    inside :func:`rmtbase.linalg.reproducible_jax`.

    Raises:
        ParameterError: the seed is not an integer in [0, 2^63).
    """
    seed = require_seed(seed)
    return jax.random.fold_in(jax.random.key(seed, impl=PRNG_IMPLEMENTATION), zlib.crc32(case.encode()))


def require_start(start: object) -> int:
    """``start`` as an int, or a :class:`~rmtbase.errors.ParameterError` if it is no integer in [0, 2^32)."""
    if isinstance(start, bool) or not isinstance(start, SupportsIndex) or not 0 <= operator.index(start) < 2**32:
        raise ParameterError("start", start, "an integer from 0 to 2^32 - 1")
    return operator.index(start)


def draw_keys(key: Key[Array, ""], indices: UInt32[Array, " draw"]) -> Key[Array, " draw"]:
    """The key of each draw: the case's key with the draw's index folded in."""
    return jax.vmap(lambda index: jax.random.fold_in(key, index))(indices)
