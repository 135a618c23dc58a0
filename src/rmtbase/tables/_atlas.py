"""What the atlas holds: the null of many shapes, each in a few kilobytes."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import xarray as xr

from rmtbase.errors import TableError
from rmtbase.tables._schema import Variable, check_attributes, check_variables

_BY_STATISTIC = ("case", "statistic")
_SELF = "each draw at its own estimate of sigma"

ATLAS_SCHEMA: dict[str, Variable] = {
    "d_model": Variable(("case",), "width of the residual stream d"),
    "d_head": Variable(("case",), "head dimension h, the rank of W_QK"),
    "draws": Variable(("case",), "number n of Monte Carlo draws"),
    "mean": Variable(_BY_STATISTIC, "Monte Carlo mean at sigma = 1"),
    "std": Variable(_BY_STATISTIC, "Monte Carlo standard deviation of one draw at sigma = 1"),
    "standard_error": Variable(_BY_STATISTIC, "standard error of the Monte Carlo mean at sigma = 1"),
    "quantile": Variable((*_BY_STATISTIC, "probability"), "Monte Carlo quantile at sigma = 1"),
    "mean_self_normalized": Variable(_BY_STATISTIC, f"Monte Carlo mean, {_SELF}"),
    "std_self_normalized": Variable(_BY_STATISTIC, f"Monte Carlo standard deviation of one draw, {_SELF}"),
    "quantile_self_normalized": Variable((*_BY_STATISTIC, "probability"), f"Monte Carlo quantile, {_SELF}"),
    "distance_center": Variable(
        _BY_STATISTIC, f"mean on the distance scale (ln x where x > 0 has no upper bound, else x), {_SELF}"
    ),
    "distance_spread": Variable(_BY_STATISTIC, f"standard deviation on the distance scale, {_SELF}"),
    "order_statistic_lower": Variable(
        (*_BY_STATISTIC, "rank"),
        f"rank-th smallest of the n draws, {_SELF}, on the distance scale less distance_center over distance_spread, "
        "rounded down by less than 2^-16; NaN beyond the middle",
    ),
    "order_statistic_upper": Variable(
        (*_BY_STATISTIC, "rank"), "as order_statistic_lower, the rank-th largest, rounded up"
    ),
    "largest_distance": Variable(
        ("case", "rank"),
        "rank-th largest, over the n draws, of the largest |x - distance_center| / distance_spread of any statistic, "
        "rounded up by less than 2^-16; NaN beyond n",
    ),
    "eigenvalue_mean": Variable(("case", "index"), "mean of the ordered eigenvalue at sigma = 1; NaN from d_head on"),
    "eigenvalue_quantile_self_normalized": Variable(
        ("case", "index", "probability"),
        f"quantile of the ordered eigenvalue, {_SELF}, to within 1/512 of its standard deviation; NaN from d_head on",
    ),
    "density": Variable(
        ("case", "bin"),
        "Monte Carlo density of the nonzero eigenvalues at sigma = 1, bin average; the edges are those of "
        "rmtbase.montecarlo.histogram_edges",
        "1/lambda",
    ),
    "density_standard_error": Variable(
        ("case", "bin"), "standard error of the density, from the spread between draws", "1/lambda"
    ),
    "checksum": Variable(("case",), "CRC-32 of the case's other values, as rmtbase.tables.atlas_checksum takes it"),
}
"""The variables of the atlas, of the raw product. ``rank`` counts from the end that a variable names: one by one at
first, then in steps that keep a p-value from the kept ranks within 3 % of the full sample's."""

ATLAS_ATTRIBUTES = (
    "schema_version",
    "rmtbase_version",
    "provenance",
    "kind",
    "normalization",
    "seed",
    "title",
    "creator",
    "license",
    "version",
)

_BULKY = ("order_statistic_lower", "order_statistic_upper", "largest_distance", "eigenvalue_quantile_self_normalized")


def atlas_encoding(dataset: xr.Dataset) -> dict[str, dict]:
    """How the atlas is stored: each case by itself, so that one is read without the others; all of it checksummed."""
    packed = {"zlib": True, "complevel": 9, "shuffle": True, "fletcher32": True}
    return {
        str(name): {**packed, "chunksizes": (1, *variable.shape[1:]) if name in _BULKY else variable.shape}
        for name, variable in dataset.variables.items()
        if variable.ndim and variable.dtype.kind in "fiu"
    }


def atlas_checksum(case: xr.Dataset) -> int:
    """CRC-32 of all that a single case holds, with its coordinates; of the numbers alone, not of the NaN between them.

    HDF5 checks its data, but not where in the file they lie: a flipped bit can make one variable's numbers another's.
    """
    ranks = case["rank"].values[~np.isnan(case["largest_distance"].values[0])]
    parts = {"probability": case["probability"].values, "rank": ranks}
    parts |= {name: case[name].values for name in ATLAS_SCHEMA if name != "checksum"}
    total = zlib.crc32("\n".join(case["statistic"].values.tolist()).encode())
    for name, values in parts.items():
        total = zlib.crc32(name.encode() + values[~np.isnan(values)].tobytes(), total)
    return total


def validate_atlas(dataset: xr.Dataset, path: Path | str) -> None:
    """Raise :class:`~rmtbase.errors.TableError` unless this is an atlas, or part of one, of this schema."""
    check_attributes(dataset.attrs, "atlas", ATLAS_ATTRIBUTES, path)
    check_variables(dataset, ATLAS_SCHEMA, path)
    for name in ATLAS_SCHEMA:
        if dataset[name].dtype.kind not in "fiu":
            raise TableError(path, f"variable {name!r} of type {dataset[name].dtype}", "numbers")
    if not bool((dataset["draws"] >= 2).all()):
        raise TableError(path, "cases of fewer than 2 draws", "at least 2")
    for name in ("std", "std_self_normalized", "distance_spread"):
        if not bool((dataset[name] > 0).all()):
            raise TableError(path, f"values of {name!r} that are not positive", "positive numbers")
    for k, checksum in enumerate(dataset["checksum"].values):
        if atlas_checksum(dataset.isel(case=[k])) != checksum:
            raise TableError(path, "contents that do not fit their checksum", "an atlas as it was written")
