"""Schema of a file of effective depths."""

from __future__ import annotations

from rmtbase.tables import EVERY_FILE, Kind, Variable, register
from rmtbase.tables.domain import (
    FALLING,
    FLAG_OR_NAN,
    INTEGER,
    JSON_LIST,
    NON_NEGATIVE_OR_NAN,
    POSITIVE_OR_NAN,
    PROBABILITY,
    SIZE,
    SIZE_OR_NAN,
    SPREAD,
    TEXT,
    Domain,
)

_MATRIX = ("layer", "component")

EFFECTIVE_DEPTH_SCHEMA: dict[str, Variable] = {
    "effective_depth": Variable(
        _MATRIX, "depth of the nearest residual path; NaN where a matrix has no shape", SIZE_OR_NAN
    ),
    "effective_depth_low": Variable(
        _MATRIX, "lower end of the depth's bootstrap interval, if a depth fits", SIZE_OR_NAN
    ),
    "effective_depth_high": Variable(
        _MATRIX, "upper end of the depth's bootstrap interval, if a depth fits", SIZE_OR_NAN
    ),
    "sigma": Variable(
        _MATRIX, "sigma of the nearest path's blocks, whose elements have variance sigma^2 / d", POSITIVE_OR_NAN
    ),
    "scale": Variable(_MATRIX, "factor c by which the nearest path is multiplied", POSITIVE_OR_NAN),
    "distance": Variable(
        _MATRIX, "distance to the nearest path's law, as the attribute distance says", NON_NEGATIVE_OR_NAN
    ),
    "p_value": Variable(
        _MATRIX, "p-value of the fit: draws of the nearest path, refitted, at least as far from a law", PROBABILITY
    ),
    "fits": Variable(
        _MATRIX, "1 where the nearest depth fits: p_value above the attribute level; 0 where none does", FLAG_OR_NAN
    ),
    "reason": Variable(_MATRIX, "why the matrix cannot be tested; empty where it was", TEXT),
    "n_rows": Variable(_MATRIX, "rows (outputs)", SIZE_OR_NAN),
    "n_columns": Variable(_MATRIX, "columns (inputs)", SIZE_OR_NAN),
    "distance_profile": Variable((*_MATRIX, "depth"), "smallest distance to the law of each depth", SPREAD),
    "scale_profile": Variable((*_MATRIX, "depth"), "scale at which it is attained", SPREAD),
    "sigma_profile": Variable((*_MATRIX, "depth"), "sigma at which it is attained", SPREAD),
    "singular_value": Variable((*_MATRIX, "index"), "singular values, descending; padded with NaN", FALLING),
}
"""Variables of a file of effective depths, with one entry for each weight matrix of a model."""


register(
    Kind(
        "effective_depth",
        {"": EFFECTIVE_DEPTH_SCHEMA},
        EVERY_FILE
        | {"model": TEXT, "distance": TEXT, "level": PROBABILITY, "draws": SIZE, "seed": INTEGER}
        | {"part": Domain("'path' or 'update'", kinds="OUT", choices=("path", "update"))},
        {"revision": TEXT, "family": TEXT, "notes": JSON_LIST, "warnings": JSON_LIST},
    )
)
