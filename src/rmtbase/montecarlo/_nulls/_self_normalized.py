"""The draws of a W_QK table, each at its own estimate of σ."""

from __future__ import annotations

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from rmtbase.statistics import SPECTRAL_STATISTICS


def self_normalized_sample(row: xr.Dataset) -> NDArray[np.float64]:
    """Every statistic of every draw, (draw, statistic) in the registry's order, of the raw product at σ̂_Q = σ̂_K = 1.

    Args:
        row: one case of a baseline table with its sample, at whatever σ and normalization.
    """
    own_scale = (row["sigma_q_estimate"] * row["sigma_k_estimate"]).values ** 2 / divisor(row)
    h = int(row["d_head"])
    columns = [
        one.rescale(row["sample"].sel(statistic=name).values, 1.0 / own_scale, h)
        for name, one in SPECTRAL_STATISTICS.items()
    ]
    return np.stack(columns, axis=-1)


def divisor(row: xr.Dataset) -> float:
    """What the table's normalization has divided the eigenvalues of the raw product by."""
    return float(row["d_model"]) if row.attrs["normalization"] == "sqrt_d" else 1.0
