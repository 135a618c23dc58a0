"""Scores of small models that were drawn at random, or have learned something."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
import xarray as xr
from matrices_group import SHAPES, matrices_group

import rmtbase

D_MODEL, D_HEAD, N_LAYERS, N_HEADS = 32, 8, 2, 4


@pytest.fixture(scope="session")
def scored():
    """Scores of models whose weights are drawn, not to be changed; ``heavy`` components have Laplace's law."""

    @cache
    def make(
        seed,
        sigmas=(),
        heavy=(),
        matrices=True,
        n_key_heads=N_HEADS,
        spike=0.0,
        noise=0.0,
        n_layers=N_LAYERS,
        n_heads=N_HEADS,
    ):
        rng = np.random.default_rng(seed)
        w_q = rng.standard_normal((n_layers, n_heads, D_HEAD, D_MODEL))
        w_k = rng.standard_normal((n_layers, n_key_heads, D_HEAD, D_MODEL))
        w_q[..., 0, 0] += spike
        w_k[..., 0, 0] += spike
        if noise:
            moved = np.random.default_rng(1000 + seed)
            w_q, w_k = (w + noise * moved.standard_normal(w.shape) for w in (w_q, w_k))
        tree = rmtbase.score_heads(w_q, w_k, "analytic", model=f"model-{seed}")
        if not matrices:
            return tree
        sigmas = dict(sigmas) or dict.fromkeys(SHAPES, 0.02)
        drawn = {
            name: [
                sigmas[name] * (rng.laplace(size=shape) / math.sqrt(2) if name in heavy else rng.standard_normal(shape))
                for _ in range(n_layers)
            ]
            for name, shape in SHAPES.items()
        }
        tree["matrices"] = xr.DataTree(matrices_group(drawn))
        return tree

    return make
