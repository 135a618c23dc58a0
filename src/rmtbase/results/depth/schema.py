"""Schema of a file of effective depths."""

from functools import partial

from rmtbase.tables import EVERY_FILE, Kind, Variable, register
from rmtbase.tables.domain import (
    FALLING,
    FLAG_OR_NAN,
    INTEGER,
    JSON_LIST,
    NON_NEGATIVE_OR_NAN,
    POSITIVE_OR_NAN,
    PROBABILITY,
    REASON,
    SIZE,
    SIZE_OR_NAN,
    SPREAD,
    TEXT,
    Domain,
)

_MATRIX = ("layer", "component")
_matrix = partial(Variable, _MATRIX)
_profile = partial(Variable, (*_MATRIX, "depth"))

EFFECTIVE_DEPTH_SCHEMA: dict[str, Variable] = {
    "n_rows": _matrix("rows (outputs)", SIZE_OR_NAN),
    "n_columns": _matrix("columns (inputs)", SIZE_OR_NAN),
    "effective_depth": _matrix("depth of the nearest residual path; NaN where a matrix has no shape", SIZE_OR_NAN),
    "effective_depth_low": _matrix("lower end of the depth's bootstrap interval, if a depth fits", SIZE_OR_NAN),
    "effective_depth_high": _matrix("upper end of the depth's bootstrap interval, if a depth fits", SIZE_OR_NAN),
    "sigma": _matrix("sigma of the nearest path's blocks, whose elements have variance sigma^2 / d", POSITIVE_OR_NAN),
    "scale": _matrix("factor c by which the nearest path is multiplied", POSITIVE_OR_NAN),
    "distance": _matrix("distance to the nearest path's law, as the attribute distance says", NON_NEGATIVE_OR_NAN),
    "p_value": _matrix("p-value of the fit: draws of the nearest path, refitted, at least as far off", PROBABILITY),
    "fits": _matrix("1 where the nearest depth fits, with p_value above the attribute level; 0 if none", FLAG_OR_NAN),
    "reason": _matrix("why the matrix cannot be tested; empty where it was", REASON),
    "distance_profile": _profile("smallest distance to the law of each depth", SPREAD),
    "scale_profile": _profile("scale at which it is attained", SPREAD),
    "sigma_profile": _profile("sigma at which it is attained", SPREAD),
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
