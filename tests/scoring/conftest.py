"""Arrays, a null table and the scores of a small model."""

import numpy as np
import pytest

import rmtbase
from rmtbase.nulls import find_null

D_MODEL, D_HEAD, DRAWS = 32, 8, 400


@pytest.fixture
def arrays():
    """Random factors of four heads that share two key heads."""
    rng = np.random.default_rng(11)
    return rng.standard_normal((4, D_HEAD, D_MODEL)), rng.standard_normal((2, D_HEAD, D_MODEL))


@pytest.fixture(scope="session")
def null_table():
    """The raw-product null of the small shape at σ = 1."""
    return rmtbase.baseline(D_MODEL, D_HEAD, 1.0, DRAWS, normalization="none")


@pytest.fixture
def score_arrays(null_table):
    """The heads of ``rmtbase.score_heads`` against the small null, of a single layer."""

    def score(w_q, w_k, null="gaussian", *, baseline=null_table, draws=None, seed=0, **options):
        of_table = null == "gaussian" and baseline is not None
        against = find_null(baseline if of_table else null, draws=draws, seed=seed)
        tree = rmtbase.score_heads(w_q, w_k, against, **options)
        return tree["heads"].to_dataset().isel(layer=0, drop=True)

    return score
