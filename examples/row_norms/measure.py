"""Largest row norm of each head's W_Q and W_K."""

from typing import Any

import numpy as np
import xarray as xr
from rmtbase.results.row_norms.schema import ROW_NORMS_SCHEMA
from scipy.stats import beta

from rmtbase.models import require_model
from rmtbase.results.attributes import file_attributes
from rmtbase.results.filled import filled
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
    model, entries = require_model(model), {}
    for row, site in enumerate(model.sites):
        for column, (component, factor) in enumerate(FACTORS.items()):
            matrix = model.matrix(model.layers.index(site.place), component)
            squares = (np.asarray(model.by_head(row, factor, matrix), dtype=np.float64) ** 2).sum(axis=2)
            (n_heads, h), d = squares.shape, matrix.shape[-1]
            with np.errstate(invalid="ignore"):
                share = squares.max(axis=1) / squares.sum(axis=1)
            p_value = np.minimum(1.0, h * beta.sf(share, d / 2, (h - 1) * d / 2))
            for head in range(n_heads):
                entries[row, column, head] = {"largest_share": share[head], "p_value": p_value[head], "q_value": np.nan}
    heads = {"component": list(FACTORS), "head": np.arange(max(site.n_heads for site in model.sites))}
    table = filled(ROW_NORMS_SCHEMA, layer_coordinates([site.place for site in model.sites]) | heads, entries)
    table["q_value"].values[:] = benjamini_hochberg(table["p_value"].values)
    call = {"function": "rmtbase.results.row_norms.row_norms"}
    attributes = file_attributes("row_norms", model, {}, model.notes, model.warnings, call)
    return describe(table, ROW_NORMS_SCHEMA).assign_attrs(attributes)
