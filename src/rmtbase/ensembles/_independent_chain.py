"""Products of matrices with independent normal, uniform or truncated normal elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_batching import sequential_vmap
from jaxtyping import Float, Key

from rmtbase.ensembles import _element_laws as laws
from rmtbase.ensembles._ensemble import Draw, DrawnByItsCore, as_pytree, sum_of_squares
from rmtbase.ensembles._full_matrix import DenseGaussianChain
from rmtbase.ensembles._gaussian_chain import gaussian_chain
from rmtbase.parameters import require_independent_entries

_TRUNCATED_AT = 2.0
_LAWS: dict[str, laws.ElementLaw] = {  # of unit variance
    "normal": laws.Normal(1.0),
    "uniform": laws.Uniform(3**0.5),
    "truncated_normal": laws.TruncatedNormal(1.0 / laws.truncated_std(_TRUNCATED_AT), _TRUNCATED_AT),
}


@partial(as_pytree, data_fields=[], meta_fields=["dims", "entries"])
@dataclass(frozen=True)
class IndependentChain(DrawnByItsCore):
    """Product X_1 X_2 … X_L of X_l, (n_{l-1}, n_l), with independent elements of unit variance, through its core.

    The core has the nonzero singular values of the product: left of the smallest n_l, (R_1 X_2) = O_2 R_2 and so on,
    and likewise right of it. A draw costs O(Σ n_{l-1} n_l r); only the normal law has a shorter way.
    """

    dims: tuple[int, ...]  #: (n_0, …, n_L)
    entries: str  #: law of the elements, one of :data:`rmtbase.parameters.INITIALIZATIONS`

    @property
    def name(self) -> str:
        return f"independent_chain {'x'.join(map(str, self.dims))} {self.entries}"

    def factors(self, key: Key[Array, ""]) -> list[Float[Array, "n_before n_after"]]:
        """Return X_1, …, X_L of one draw, each of shape (n_{l-1}, n_l)."""
        meeting = self.dims.index(self.rank)
        return [x if at < meeting else x.T for at, x in enumerate(_factors(key, self))]

    def sample(self, key: Key[Array, ""]) -> Draw:
        return Draw(*_drawn(key, self))


def independent_chain(dims: Sequence[int], entries: str = "normal") -> IndependentChain:
    """Ensemble W = X_1 X_2 … X_L of matrices with independent elements of unit variance, with one of three laws.

    Args:
        dims: (n_0, …, n_L), 1 ≤ L ≤ 16.
        entries: ``"normal"`` (which :func:`gaussian_chain` draws a thousand times faster), ``"uniform"``, or
            ``"truncated_normal"``, cut at two standard deviations.

    Raises:
        ParameterError: as :func:`gaussian_chain`, or the law is unknown.
    """
    checked = gaussian_chain(dims, "dense")
    assert isinstance(checked, DenseGaussianChain)
    return IndependentChain(checked.dims, require_independent_entries(entries, "independent_chain", "entries"))


def _factors(key: Key[Array, ""], chain: IndependentChain) -> list[Float[Array, "m n"]]:
    """Draw the factors; those right of the smallest n_l are returned as X_lᵀ."""
    law, shapes, meeting = _LAWS[chain.entries], list(pairwise(chain.dims)), chain.dims.index(chain.rank)
    shapes[meeting:] = [(n, m) for m, n in shapes[meeting:]]
    keys = jax.random.split(key, len(shapes))
    return [law.sample(factor_key, m * n).reshape(m, n) for factor_key, (m, n) in zip(keys, shapes, strict=True)]


@sequential_vmap  # one draw after the other, so that a chunk holds the factors of only one draw
def _drawn(key: Key[Array, ""], chain: IndependentChain) -> tuple[Float[Array, "rank rank"], Float[Array, " factor"]]:
    # The barrier keeps XLA from drawing the elements again wherever they are used.
    factors, meeting = jax.lax.optimization_barrier(_factors(key, chain)), chain.dims.index(chain.rank)
    norms = jnp.stack([sum_of_squares(factor) for factor in factors])
    left, right = factors[:meeting], factors[meeting:][::-1]
    if not left or not right:
        return _gathered(left or right), norms
    return _gathered(left) @ _gathered(right).T, norms


def _gathered(factors: Sequence[Float[Array, "m n"]]) -> Float[Array, "rank rank"]:
    """R of the product of factors, of which the last has the fewest columns: RᵀR = (… X_2)ᵀ X_1ᵀ X_1 (X_2 …)."""
    product = None
    for factor in factors:
        product = factor if product is None else product @ factor
        if product.shape[0] > product.shape[1]:
            product = _triangle(product)
    assert product is not None  # a chain has a factor
    return product


def _triangle(matrix: Float[Array, "m n"]) -> Float[Array, "n n"]:
    """R of X = O R: the Cholesky factor of XᵀX, which is accurate enough for random matrices; QR if it fails."""
    r = jnp.linalg.cholesky(matrix.T @ matrix).T
    return jax.lax.cond(jnp.isfinite(r).all(), lambda: r, lambda: jnp.linalg.qr(matrix, mode="r"))
