"""Random keys: a draw depends only on (seed, case, draw index)."""

import zlib

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Key, UInt32

from rmtbase.errors import ParameterError
from rmtbase.linalg import PRNG_IMPLEMENTATION, reproducible_jax
from rmtbase.parameters import require_integer, require_positive_integer, require_seed

MAX_DRAWS = 2**32 - 2**16
"""Largest number of draws of one case: an index enters the key as 32 bits, and the last batch may exceed the end."""


def case_key(seed: int, case: str) -> Key[Array, ""]:
    """Make the key of a case: the seed's, of its 64 bits as by ``jax.random.key``, with the case's name folded in."""
    seed = require_seed(seed)
    bits = np.array([seed >> 32, seed & 0xFFFFFFFF], dtype=np.uint32)
    with reproducible_jax():
        key = jax.random.wrap_key_data(jnp.asarray(bits), impl=PRNG_IMPLEMENTATION)
        return jax.random.fold_in(key, zlib.crc32(case.encode()))


def require_indices(start: object, draws: object) -> tuple[int, int]:
    number = require_positive_integer("draws", draws)
    first = require_integer("start", start, 0, 2**32 - 1)
    if first + number > MAX_DRAWS:
        raise ParameterError("draws", draws, f"at most {MAX_DRAWS - first}: an index has 32 bits")
    return first, number


def draw_keys(key: Key[Array, ""], indices: UInt32[Array, " draw"]) -> Key[Array, " draw"]:
    return jax.vmap(lambda index: jax.random.fold_in(key, index))(indices)
