"""Chi-distributed draws: the diagonal entries of Gaussian matrices after an orthogonal reduction."""

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int, Key

Lengths = Float[Array, " n"]
_State = tuple[Int[Array, ""], Lengths, Bool[Array, " n"]]  # next attempt; lengths, and which are accepted


def chi(key: Key[Array, ""], degrees_of_freedom: Lengths) -> Lengths:
    """Draw exact, independent χ_ν variates, ν = 0, 1, 2, …: G. Marsaglia and W. W. Tsang, ACM TOMS 26, 363 (2000)."""
    # χ_ν² = 2 d (1 + t)³, d = ν/2 - 1/3, t = x/√(9 d), x normal, is accepted if ln u < 3 d (ln(1 + t) - t + t²/2 -
    # t³/3): the published x²/2 + d (1 - v + ln v), v = (1 + t)³, without the terms that cancel. 1/(18 ν) of the
    # proposals fail.

    def try_the_first_that_failed(state: _State) -> _State:
        attempt, lengths, accepted = state
        place = jnp.argmin(accepted)
        length, accept = _propose(jax.random.fold_in(key, attempt), degrees_of_freedom[place, None])
        settled = (jnp.arange(accepted.size) == place) & accept
        return attempt + 1, jnp.where(settled, length, lengths), accepted | settled

    first = (jnp.asarray(1), *_propose(jax.random.fold_in(key, 0), degrees_of_freedom))
    return jax.lax.while_loop(lambda state: ~state[2].all(), try_the_first_that_failed, first)[1]


def _propose(key: Key[Array, ""], degrees_of_freedom: Lengths) -> tuple[Lengths, Bool[Array, " n"]]:
    key_normal, key_uniform = jax.random.split(key)
    # Barrier, and √ of a quotient: XLA rewrites √2 erf⁻¹(·)/√(9 d) differently for one draw and for many.
    x = jax.lax.optimization_barrier(jax.random.normal(key_normal, degrees_of_freedom.shape))
    u = jax.random.uniform(key_uniform, degrees_of_freedom.shape)
    d = 0.5 * degrees_of_freedom - 1.0 / 3.0
    t = x * jnp.sqrt(1.0 / (9.0 * d))
    accepted = jnp.log(u) < 3.0 * d * (jnp.log1p(t) - t * (1.0 - t * (0.5 - t / 3.0)))
    few = degrees_of_freedom < 2.0  # χ_1 = |x| needs no rejection
    return jnp.where(few, degrees_of_freedom * jnp.abs(x), jnp.sqrt(2.0 * d * (1.0 + t) ** 3)), accepted | few
