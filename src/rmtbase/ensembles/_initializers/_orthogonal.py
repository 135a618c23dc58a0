"""The orthogonal initialiser, whose elements are not independent."""

from __future__ import annotations

from dataclasses import dataclass

import jax
from jax import Array
from jaxtyping import Float, Key

from rmtbase.ensembles._initializers._initializer import Recipe, option
from rmtbase.ensembles._orthonormal import orthonormal_columns
from rmtbase.parameters import require_positive_number


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Orthogonal(Recipe):
    """gain · Q with Q uniform (Haar) on the Stiefel manifold, as torch.nn.init.orthogonal_.

    The shorter side is orthonormal: Q Qᵀ = I, or Qᵀ Q = I where there are more rows than columns.

    Source: A. M. Saxe, J. L. McClelland and S. Ganguli, ICLR (2014); F. Mezzadri, Notices AMS 54, 592 (2007).
    """

    name = "orthogonal"
    gain: float = option(require_positive_number, 1.0)

    def sample(self, key: Key[Array, ""], fan_out: int, fan_in: int) -> Float[Array, "{fan_out} {fan_in}"]:
        """One matrix."""
        q = orthonormal_columns(jax.random.normal(key, (max(fan_out, fan_in), min(fan_out, fan_in))))
        return self.gain * (q.T if fan_out < fan_in else q)
