"""Largest row norm of each head's W_Q and W_K.

Of h rows of d independent normal entries each squared norm is σ² χ²_d, and its share of the sum of all follows
Beta(d/2, (h - 1) d/2), whatever σ is. The p-value of the largest share is Bonferroni's bound, h times its tail.
"""

import numpy as np
from rmtbase.results.row_norms.schema import ROW_NORMS_SCHEMA
from scipy.stats import beta

from rmtbase.models import require_model
from rmtbase.results.attributes import file_attributes
from rmtbase.results.filled import filled
from rmtbase.results.scores import layer_coordinates
from rmtbase.statistics import benjamini_hochberg
from rmtbase.tables import describe

FACTORS = {"attention_query": "query", "attention_key": "key"}


def row_norms(model, progress=None):
    """Test the largest row of every head: dims layer, component, head; NaN where there is no head, and for zeros."""
    model, entries = require_model(model), {}
    for row, site in enumerate(model.sites):
        for column, (component, factor) in enumerate(FACTORS.items()):
            matrix = model.matrix(model.layers.index(site.place), component)
            squares = (np.asarray(model.by_head(row, factor, matrix), dtype=np.float64) ** 2).sum(axis=2)
            (_, h), d = squares.shape, matrix.shape[-1]
            with np.errstate(invalid="ignore"):
                shares = squares.max(axis=1) / squares.sum(axis=1)
            for head, share in enumerate(shares):
                p_value = np.minimum(1.0, h * beta.sf(share, d / 2, (h - 1) * d / 2))
                entries[row, column, head] = {"largest_share": share, "p_value": p_value, "q_value": np.nan}
    heads = {"component": list(FACTORS), "head": np.arange(max(site.n_heads for site in model.sites))}
    table = filled(ROW_NORMS_SCHEMA, layer_coordinates([site.place for site in model.sites]) | heads, entries)
    table["q_value"].values[:] = benjamini_hochberg(table["p_value"].values)
    attributes = file_attributes("row_norms", model, {}, model.notes, model.warnings, {"function": "row_norms"})
    return describe(table, ROW_NORMS_SCHEMA).assign_attrs(attributes)
