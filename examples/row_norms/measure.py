"""Largest row norm of each head's W_Q and W_K."""

from typing import Any

import numpy as np
import xarray as xr
from rmtbase.results.row_norms.schema import ROW_NORMS_SCHEMA
from scipy.stats import beta

from rmtbase.models import require_model
from rmtbase.results.attributes import file_attributes
from rmtbase.results.scores import layer_coordinates
from rmtbase.statistics import benjamini_hochberg
from rmtbase.tables import describe

FACTORS = {"attention_query": "query", "attention_key": "key"}


def row_norms(model: Any) -> xr.Dataset:
    """Test whether one row of a head's W_Q or W_K is longer than chance makes it.

    Of h rows of d independent normal entries each squared norm is σ² χ²_d, and its share of the sum of all follows
    Beta(d/2, (h - 1) d/2), whatever σ is. The p-value of the largest share is Bonferroni's bound, h times its tail.

    Args:
        model: an opened model, or whatever :func:`rmtbase.open_model` opens.

    Returns:
        Dims layer, component, head; NaN beyond the heads of a layer, and for matrices of zeros.
    """
    model = require_model(model)
    size = len(model.sites), len(FACTORS), max(site.n_heads for site in model.sites)
    share, p_value = np.full(size, np.nan), np.full(size, np.nan)
    for row, site in enumerate(model.sites):
        layer = model.layers.index(site.place)
        for column, (component, factor) in enumerate(FACTORS.items()):
            heads = np.asarray(model.by_head(row, factor, model.matrix(layer, component)), dtype=np.float64)
            squares = (heads**2).sum(axis=2)
            _, h, d = heads.shape
            with np.errstate(invalid="ignore"):
                largest = squares.max(axis=1) / squares.sum(axis=1)
            share[row, column, : len(heads)] = largest
            p_value[row, column, : len(heads)] = np.minimum(1.0, h * beta.sf(largest, d / 2, (h - 1) * d / 2))
    dims = ("layer", "component", "head")
    values = {"largest_share": share, "p_value": p_value, "q_value": benjamini_hochberg(p_value)}
    table = xr.Dataset(
        {name: (dims, value) for name, value in values.items()},
        {
            **layer_coordinates([site.place for site in model.sites]),
            "component": list(FACTORS),
            "head": np.arange(size[2]),
        },
    )
    call = {"function": "rmtbase.results.row_norms.row_norms"}
    attributes = file_attributes("row_norms", model, {}, model.notes, model.warnings, call)
    return describe(table, ROW_NORMS_SCHEMA).assign_attrs(attributes)
