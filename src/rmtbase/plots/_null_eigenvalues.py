"""The null's ordered eigenvalues as a scores tree holds them: one null of all heads, of each shape, or of each head."""

from __future__ import annotations

import numpy as np
import xarray as xr
from jaxtyping import Float

from rmtbase.plots._groups import null_of
from rmtbase.tables import circuit_of


def null_quantiles(tree: xr.DataTree, layer: int, head: int) -> Float[np.ndarray, "index probability"]:
    """Quantiles of the ordered eigenvalues of one head's null, at σ = 1; layer and head by their places."""
    null = null_of(tree)
    quantile = null["eigenvalue_quantile"].values
    if "layer_shape" in null:
        return quantile[null["layer_shape"].values[layer]]
    return quantile[layer, head] if quantile.ndim > 2 else quantile


def null_scales(tree: xr.DataTree, heads: xr.Dataset) -> Float[np.ndarray, "layer head"]:
    """What the null's eigenvalues at σ = 1 are multiplied by to be at a head's own σ̂."""
    if "null_scale" in heads.coords:
        return heads["null_scale"].values
    return np.prod([heads[factor.sigma].values for factor in circuit_of(tree.attrs).factors], axis=0) ** 2


def null_medians(tree: xr.DataTree, heads: xr.Dataset) -> Float[np.ndarray, "layer head index"]:
    """The median of each ordered eigenvalue under each head's null, at the head's own σ̂."""
    scales, probability = null_scales(tree, heads), null_of(tree)["probability"].values
    middle = int(np.argmin(np.abs(probability - 0.5)))
    n_index = heads.sizes["index"]
    medians = np.full((*scales.shape, n_index), np.nan)
    for place in np.ndindex(scales.shape):
        own = null_quantiles(tree, *place)[:n_index, middle]
        medians[place][: own.size] = own * scales[place]
    return medians
