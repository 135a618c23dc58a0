"""Statistics of a head and of heads resampled from it, (1 + draws, statistic), by the same compiled code: exact ranks.

λ_1/Σλ is replaced by a smooth maximum, ln (Σ p_k^32)/32 of the shares p_k = λ_k/Σλ: five squarings of a Gram matrix.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Float64, Key
from scipy.stats import rankdata

from rmtbase.ensembles import IndependentChain, axis_permuted_head, flipped, sign_flipped_matrix, signed_permutation
from rmtbase.linalg import reproducible_jax
from rmtbase.montecarlo._compiled_sampler import COMPILER_OPTIONS
from rmtbase.montecarlo._keys import case_key, draw_keys

Factor = Float[np.ndarray, "d_head d"]
Rows = Float64[np.ndarray, "one_and_draws statistic"]
Keys = tuple[Key[Array, ""], ...] | None

_SQUARINGS = 5
_BALANCINGS = 10
_RIDGE = 1e-13  # of the mean eigenvalue: a flipped matrix may have rows of zeros
_CHUNK = 250  # draws of one call


def flip_statistics(w_q: Factor, w_k: Factor, draws: int, seed: int) -> Rows:
    """Statistics of a head and of heads with random signs, which depend on elements, role, seed and index."""
    # Of W_Q and of W_K as it is, with rows of one norm, and balanced (rows, and columns, of one mean square: unequal
    # ones would hide a direction): ln of the largest share of Σλ. The same of W_QK. Mean cos² between the row spaces of
    # W_Q and the flipped W_K, and ln of the largest share of Σcos²; NaN if d_query ≠ d_key.
    keys = [case_key(seed, f"{role} {sign_flipped_matrix(w).name}") for role, w in (("query", w_q), ("key", w_k))]
    factors = [np.asarray(w, dtype=np.float64) for w in (w_q, w_k)]
    return _of_draws(_flips, (*factors, *map(_balancing_scales, factors)), keys, draws)


def permutation_statistics(w_q: Factor, w_k: Factor, draws: int, seed: int) -> Rows:
    """ln ‖W_QK‖_F², ln Σλ²/(Σλ)², ln of the largest share of Σλ, and rank correlation of row norms, for W_Qᵀ P W_K."""
    head = axis_permuted_head(w_q, w_k)
    squares = [(r**2).sum(axis=0) for r in (head.r_q, head.r_k)]
    # Norms that differ only by rounding are ties: orthonormal rows have no order.
    norms = np.stack([rankdata(np.round(row / max(row.max(), 1e-300), 9)) for row in squares])
    grams = [r.T @ r for r in (head.r_q, head.r_k)]
    return _of_draws(_permutations, (*grams, norms), [case_key(seed, head.name)], draws)


def entry_statistics(matrices: Float[np.ndarray, "matrix m n"]) -> Float64[np.ndarray, "matrix statistic"]:
    """ln ⟨w⁴⟩/⟨w²⟩², ln max w²/⟨w²⟩, ln relative variance of row and of column norms², ln Σλ²/(Σλ)² of matrices."""
    # The norms are those without the first singular component.
    with reproducible_jax():
        return np.asarray(_entries_of(np.asarray(matrices, dtype=np.float64)))


def simulated_entry_statistics(law: IndependentChain, draws: int, seed: int) -> Float64[np.ndarray, "draw statistic"]:
    key, rows = case_key(seed, f"entries {law.name}"), []
    for start in range(0, draws, _CHUNK):
        with reproducible_jax():
            indices = jnp.arange(start, start + _CHUNK, dtype=jnp.uint32)
            rows.append(np.asarray(_entries_drawn(law, draw_keys(key, indices)))[: draws - start])
    return np.concatenate(rows)


def _of_draws(function: Callable[..., Array], matrices: tuple[np.ndarray, ...], keys: list[Array], draws: int) -> Rows:
    with reproducible_jax():
        rows = [np.asarray(function(*matrices, None))[None]]
        for start in range(0, draws, _CHUNK):
            indices = jnp.arange(start, start + _CHUNK, dtype=jnp.uint32)
            draw_key = tuple(draw_keys(key, indices) for key in keys)
            rows.append(np.asarray(function(*matrices, draw_key))[: draws - start])
    return np.concatenate(rows)


def _jitted(function: Callable[..., Array]) -> Callable[..., Array]:
    """Compile a function of matrices and one draw's keys for many draws; None for the keys stands for no draw."""

    def of_all(*arguments: object) -> Array:
        *matrices, keys = arguments
        if keys is None:
            return function(*matrices, None)
        return jax.lax.map(lambda key: function(*matrices, key), keys)

    return jax.jit(of_all, compiler_options=COMPILER_OPTIONS)


@_jitted
def _flips(w_q: Array, w_k: Array, scales_q: Array, scales_k: Array, keys: Keys) -> Float[Array, " statistic"]:
    unchanged = w_q
    if keys is not None:
        # The barrier keeps XLA from drawing the signs again wherever they are used.
        w_q, w_k = jax.lax.optimization_barrier((flipped(keys[0], w_q), flipped(keys[1], w_k)))
    gram_q, gram_k = w_q @ w_q.T, w_k @ w_k.T
    tops = []
    for w, gram, scales in ((w_q, gram_q, scales_q), (w_k, gram_k, scales_k)):
        balanced = w * scales
        tops += [_log_top(gram), _log_top(_row_scaled(gram)), _log_top(balanced @ balanced.T)]
    tops.append(_log_top(gram_q @ gram_k))
    if unchanged.shape[1] != w_k.shape[1]:
        return jnp.stack([*tops, jnp.nan, jnp.nan])
    # cos² are the eigenvalues of C G_K⁻¹ Cᵀ, C = L_Q⁻¹ W_Q W_Kᵀ.
    crossed = jax.scipy.linalg.solve_triangular(_cholesky(unchanged @ unchanged.T), unchanged @ w_k.T, lower=True)
    half = jax.scipy.linalg.solve_triangular(_cholesky(gram_k), crossed.T, lower=True)
    squares = half @ half.T
    return jnp.stack([*tops, jnp.trace(squares) / len(squares), _log_top(squares)])


@_jitted
def _permutations(gram_q: Array, gram_k: Array, norms: Array, keys: Keys) -> Float[Array, " statistic"]:
    query, key = norms - norms.mean(axis=1, keepdims=True)
    if keys is not None:
        order, signs = signed_permutation(keys[0], len(gram_q))
        gram_k = signs[:, None] * gram_k[order][:, order] * signs
        key = key[order]
    product = gram_q @ gram_k
    trace = jnp.trace(product)
    participation = jnp.log(jnp.vdot(product, product.T) / trace**2)
    correlation = jnp.vdot(query, key) / jnp.maximum(jnp.sqrt(jnp.vdot(query, query) * jnp.vdot(key, key)), 1e-300)
    return jnp.stack([jnp.log(trace), participation, _log_top(product), correlation])


def _entries(w: Float[Array, "m n"]) -> Float[Array, " statistic"]:
    w = w / jnp.sqrt((w * w).mean())
    squares, gram = w * w, w @ w.T
    power = gram / jnp.trace(gram)
    participation = jnp.log(jnp.vdot(power, power))
    for _ in range(_SQUARINGS):
        power = power @ power
        power = power / jnp.trace(power)
    first = power[jnp.argmax(jnp.diagonal(power))]  # approximately the first left singular vector
    first = first / jnp.linalg.norm(first)
    remainder = (w - jnp.outer(first, first @ w)) ** 2

    def spread(sums: Float[Array, " n"]) -> Float[Array, ""]:
        return jnp.log(jnp.maximum(sums.var() / sums.mean() ** 2, 1e-300))

    spreads = spread(remainder.sum(axis=1)), spread(remainder.sum(axis=0))
    return jnp.stack([jnp.log((squares**2).mean()), jnp.log(squares.max()), *spreads, participation])


_entries_of = jax.jit(lambda matrices: jax.lax.map(_entries, matrices), compiler_options=COMPILER_OPTIONS)
_entries_drawn = jax.jit(
    lambda law, keys: jax.lax.map(lambda key: _entries(jax.lax.optimization_barrier(law.factors(key))[0]), keys),
    compiler_options=COMPILER_OPTIONS,
)


def _log_top(gram: Float[Array, "h h"]) -> Float[Array, ""]:
    power = gram / jnp.trace(gram)
    for _ in range(_SQUARINGS):
        power = power @ power
    return jnp.log(jnp.trace(power)) / 2**_SQUARINGS


def _row_scaled(gram: Float[Array, "h h"]) -> Float[Array, "h h"]:
    """Return the Gram matrix of the same rows scaled to norm 1; rows of zeros stay."""
    norms = jnp.sqrt(jnp.diagonal(gram))
    inverse = jnp.where(norms > 0.0, 1.0 / jnp.where(norms > 0.0, norms, 1.0), 0.0)
    return gram * inverse[:, None] * inverse


def _balancing_scales(w: Float[np.ndarray, "m n"]) -> Float[np.ndarray, "m n"]:
    """Return r_i c_j such that the squares of r_i c_j w_ij have about one mean in all rows and in all columns."""
    # R. Sinkhorn and P. Knopp, Pacific J. Math. 21, 343 (1967), a fixed number of steps: any function of the squares
    # serves.
    squares = w * w
    rows, columns = np.ones((w.shape[0], 1)), np.ones((1, w.shape[1]))
    for _ in range(_BALANCINGS):
        for opposite, axis, scales in ((columns, 1, rows), (rows, 0, columns)):
            means = (squares * opposite).mean(axis=axis, keepdims=True)
            scales[...] = np.divide(1.0, means, out=np.zeros_like(means), where=means > 0.0)
    return np.sqrt(rows * columns)


def _cholesky(gram: Float[Array, "h h"]) -> Float[Array, "h h"]:
    return jnp.linalg.cholesky(gram + _RIDGE * jnp.trace(gram) / len(gram) * jnp.eye(len(gram)))
