"""Product of residual blocks I + σ G_l/√d: the sum over all paths through a residual network, or a part of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int, Key

from rmtbase.ensembles._ensemble import Draw, SquareDraw, as_pytree, rounded
from rmtbase.errors import ParameterError
from rmtbase.parameters import require_integer, require_positive_integer, require_positive_number

_LARGEST = 1e70  # limit of singular values, and its inverse the lower one: their fourth powers then fit in float64


@partial(as_pytree, data_fields=["depth", "sigma"], meta_fields=["d_model", "part", "order"])
@dataclass(frozen=True)
class ResidualProduct(SquareDraw):
    """P = (I + A_1)(I + A_2) … (I + A_L), A_l = σ G_l/√d, G_l d × d standard normal: the sum over all 2^L paths.

    * ``"path"``: P = I + U. ``"update"``: U = P - I, all paths but the direct one, by U ← U + A_l + U A_l, without
      the cancellation of P - I at small σ.
    * ``"order"``: E_k = Σ A_{l_1} … A_{l_k} over l_1 < … < l_k, the C(L, k) paths through exactly k blocks, by
      E_k ← E_k + E_{k-1} A_l; P = Σ_k E_k. This takes k times as many operations and numbers as the other parts.

    G_l comes from the draw's key with l folded in: the blocks of one key are the same for every part, σ and depth.
    ``norm_squared`` is empty: P is not homogeneous in σ, so an estimate of σ cannot be divided out. Singular values
    below the precision of the draw times the largest one are rounding noise. ``depth`` and ``sigma`` are data, not
    shape, so that one compilation serves all their values.
    """

    d_model: int  #: d
    depth: int | Int[Array, ""]  #: L
    sigma: float | Float[Array, ""]  #: σ
    part: Literal["path", "update", "order"] = "path"
    order: int | None = None  #: k if ``part`` is ``"order"``, else None

    @property
    def name(self) -> str:
        part = self.part if self.order is None else f"{self.part} {self.order}"
        return f"residual_{part} {self.d_model}x{self.depth} sigma {self.sigma}"

    @property
    def rank(self) -> int:
        return self.d_model

    def sample(self, key: Key[Array, ""]) -> Draw:
        identity = jnp.eye(self.d_model)
        if self.part == "path":
            matrix = identity + self._update(key)
        elif self.part == "update":
            matrix = self._update(key)
        else:
            matrix = self._orders(key)[-1] if self.order else identity
        return Draw(matrix, jnp.zeros(0))

    def _block(self, key: Key[Array, ""], number: int | Int[Array, ""]) -> Float[Array, "d_model d_model"]:
        normals = jax.random.normal(jax.random.fold_in(key, number), self.matrix_shape)
        return rounded(jax.lax.optimization_barrier(normals) * (self.sigma / math.sqrt(self.d_model)))

    def _update(self, key: Key[Array, ""]) -> Float[Array, "d_model d_model"]:
        def append(number: Int[Array, ""], update: Float[Array, "d_model d_model"]) -> Float[Array, "d_model d_model"]:
            block = self._block(key, number)
            return update + (block + update @ block)

        return jax.lax.fori_loop(2, self.depth + 1, append, self._block(key, 1))

    def _orders(self, key: Key[Array, ""]) -> Float[Array, "order d_model d_model"]:
        count, d = self.order, self.d_model

        def append(number: Int[Array, ""], orders: Float[Array, "order d d"]) -> Float[Array, "order d d"]:
            block = self._block(key, number)
            longer = (orders[:-1].reshape(-1, d) @ block).reshape(-1, d, d)
            return orders + jnp.concatenate([block[None], longer])

        first = jnp.zeros((count, d, d)).at[0].set(self._block(key, 1))
        return jax.lax.fori_loop(2, self.depth + 1, append, first)


def residual_path(
    d_model: int,
    depth: int,
    sigma: float = 1.0,
    part: Literal["path", "update", "order"] = "path",
    order: int | None = None,
) -> ResidualProduct:
    """Ensemble P = Π_{l=1..depth} (I + σ G_l/√d_model), G_l with i.i.d. standard normal elements, or a part of it.

    Singular values below d_model ε s_1, ε of double precision, are rounding noise, and tables of spectra have NaN in
    their place: at σ = 1 and d_model = 512, three of them at depth 16 and 44 at depth 32.

    Args:
        d_model: width of the residual stream.
        depth: L, the number of residual blocks.
        sigma: σ; the standard deviation of a block's elements is σ/√d_model.
        part: ``"path"`` is P, ``"update"`` is P - I, ``"order"`` the sum of the products of exactly ``order`` blocks.
        order: k, from 0 to depth, with ``part="order"``; otherwise None.

    Raises:
        ParameterError: d_model, depth, σ, part or order is outside its domain, the order is superfluous, or singular
            values could leave [1e-70, 1e70], within which their fourth powers fit in float64.
    """
    d_model = require_positive_integer("d_model", d_model)
    depth = require_positive_integer("depth", depth)
    sigma = require_positive_number("sigma", sigma)
    if part not in ("path", "update", "order"):
        raise ParameterError("part", part, "'path', 'update' or 'order'")
    if part != "order" and order is not None:
        raise ParameterError("order", order, f"none, or part = 'order' (part = {part!r})")
    order = require_integer("order", order, 0, depth) if part == "order" else None
    smallest = _LARGEST ** (-1.0 / max(1 if order is None else order, 1))
    if sigma < smallest:
        raise ParameterError("sigma", sigma, f"at least {smallest:.3g}: below it singular values underflow")
    if depth * math.log1p(2.0 * sigma) > math.log(_LARGEST):  # ‖I + A‖ is about 1 + 2 σ at most
        raise ParameterError("sigma", sigma, f"less at depth {depth}: singular values up to (1 + 2 sigma)^depth = 1e70")
    return ResidualProduct(d_model, depth, sigma, part, order)
