"""What a file of effective depths holds."""

from __future__ import annotations

from pathlib import Path

import xarray as xr

from rmtbase.tables._schema import Variable, check_attributes, check_variables

_MATRIX = ("layer", "component")

EFFECTIVE_DEPTH_SCHEMA: dict[str, Variable] = {
    "effective_depth": Variable(_MATRIX, "depth of the nearest residual path; NaN where a matrix has no shape"),
    "effective_depth_low": Variable(_MATRIX, "lower end of the depth's bootstrap interval, if a depth fits"),
    "effective_depth_high": Variable(_MATRIX, "upper end of the depth's bootstrap interval, if a depth fits"),
    "sigma": Variable(_MATRIX, "sigma of the nearest path's blocks, whose elements have variance sigma^2 / d"),
    "scale": Variable(_MATRIX, "factor c by which the nearest path is multiplied"),
    "distance": Variable(_MATRIX, "distance to the nearest path's law, as the attribute distance says"),
    "p_value": Variable(_MATRIX, "p-value of the fit: draws of the nearest path, refitted, at least as far from a law"),
    "fits": Variable(_MATRIX, "1 where the nearest depth fits: p_value above the attribute level; 0 where none does"),
    "n_rows": Variable(_MATRIX, "rows (outputs)"),
    "n_columns": Variable(_MATRIX, "columns (inputs)"),
    "distance_profile": Variable((*_MATRIX, "depth"), "smallest distance to the law of each depth"),
    "scale_profile": Variable((*_MATRIX, "depth"), "scale at which it is attained"),
    "sigma_profile": Variable((*_MATRIX, "depth"), "sigma at which it is attained"),
    "singular_value": Variable((*_MATRIX, "index"), "singular values, descending; padded with NaN"),
}
"""The variables of a file of effective depths, one entry for each weight matrix of a model."""

_ATTRIBUTES = ("provenance", "model", "part", "distance", "level", "draws", "seed")


def validate_effective_depths(dataset: xr.Dataset, path: Path | str) -> None:
    """Raise :class:`~rmtbase.errors.TableError` unless these are effective depths of the schema's major version."""
    check_attributes(dataset.attrs, "effective_depth", _ATTRIBUTES, path)
    check_variables(dataset, EFFECTIVE_DEPTH_SCHEMA, path)
