"""The thin samplers have the law of the matrices that they stand for, at sizes where a draw looks like its limit.

False failures: each comparison is a Kolmogorov–Smirnov test whose p-value must exceed 1e-4 divided by the number of
comparisons in the file, at most 100 (Bonferroni), so that over all of them together a correct sampler fails for at most
one seed in 10 000. The seeds are fixed.
"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import joint_statistics, same_law

from exhaustive import mostly_exhaustive
from rmtbase.ensembles import Draw, gaussian_chain, low_rank_product
from rmtbase.montecarlo import draw_spectra

pytestmark = pytest.mark.exhaustive
DRAWS = 2_500
CHAINS = [(24, 24, 24), (64, 16, 64), (20, 32, 12, 18, 40)]
LEVEL = 1e-4 / 100


@cache
def statistics_of(ensemble, seed):
    chunks = list(draw_spectra(ensemble, DRAWS, seed, "thin and dense"))
    return joint_statistics(*(np.concatenate(part) for part in list(zip(*chunks, strict=True))[1:]))


@pytest.mark.parametrize("dims", mostly_exhaustive(zip(CHAINS, strict=True), always={(20, 32, 12, 18, 40)}))
def test_thin_and_dense_chains_have_the_same_law(dims):
    thin, dense = statistics_of(gaussian_chain(dims), seed=1), statistics_of(gaussian_chain(dims, "dense"), seed=2)
    p_values = {name: same_law(thin[name], dense[name]) for name in thin}
    assert min(p_values.values()) > LEVEL, p_values


class Wrong:
    d_model, rank, matrix_shape, factor_sizes = 64, 16, (16, 16), (64 * 16,) * 2


@jax.tree_util.register_static
class EqualDegreesOfFreedom(Wrong):
    name = "equal degrees of freedom"

    def sample(self, key):
        factors = []
        for part in jax.random.split(key):
            below, diagonal = jax.random.split(part)
            chi = jnp.sqrt(jax.random.chisquare(diagonal, self.d_model, (self.rank,)))
            factors.append(jnp.tril(jax.random.normal(below, self.matrix_shape), -1) + jnp.diag(chi))
        l_q, l_k = factors
        return Draw(l_q.T @ l_k, jnp.stack([jnp.sum(l_q**2), jnp.sum(l_k**2)]))


@jax.tree_util.register_static
class NormsOfAnotherDraw(Wrong):
    name = "norms of another draw"

    def sample(self, key):
        ensemble = low_rank_product(self.d_model, self.rank)
        own, other = jax.random.split(key)
        return Draw(ensemble.sample(own).matrix, ensemble.sample(other).norm_squared)


@pytest.mark.parametrize(
    ("wrong", "caught_by"),
    [
        (low_rank_product(70, 16), ("trace", "largest", "norm 0", "participation", "condition")),
        (EqualDegreesOfFreedom(), ("trace", "norm 0", "participation", "log_determinant")),
        (NormsOfAnotherDraw(), ("trace over norm 0", "trace at its own scale")),
    ],
    ids=["width 10 % off", "equal degrees of freedom", "norms of another draw"],
)
def test_a_wrong_reduction_is_caught(wrong, caught_by):
    got, right = statistics_of(wrong, seed=3), statistics_of(low_rank_product(64, 16, "dense"), seed=2)
    p_values = {name: same_law(got[name], right[name]) for name in caught_by}
    assert max(p_values.values()) < LEVEL, p_values
