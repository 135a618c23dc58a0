"""An ensemble for tests of the runner alone: its draws depend on their keys, and it is compiled in no time."""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp

from rmtbase.ensembles import Draw


@partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=["condition"])
@dataclass(frozen=True)
class Waves:
    """A matrix of sines for each key, 8 × 8, with λ_1/λ_8 about ``condition``."""

    condition: float

    name, rank, matrix_shape, factor_sizes = "waves", 8, (8, 8), (64,)

    def sample(self, key):
        phases = jax.random.key_data(key).astype(float)
        waves = jnp.sin(phases[0] % 97 * jnp.arange(1.0, 9.0) + phases[1] % 89 * jnp.arange(1.0, 9.0)[:, None])
        scale = jnp.geomspace(1.0, self.condition**-0.5, 8)
        matrix = (jnp.eye(8) + waves / 32) * scale
        return Draw(matrix, jnp.stack([matrix[0, 0]]))
