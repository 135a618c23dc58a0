"""What the atlas holds: the null of many shapes, each in a few kilobytes."""

from __future__ import annotations

from dataclasses import replace

import xarray as xr

from rmtbase.tables._digest import row_checksums
from rmtbase.tables._domain import COUNT, DRAWS, FALLING, FINITE, NON_NEGATIVE, POSITIVE, RISING, SIZE
from rmtbase.tables._schema import Variable

_BY_STATISTIC = ("case", "statistic")
_FALLING_ANY = replace(RISING, words="numbers in falling order, or NaN", order="falling")
_SELF = "each draw at its own estimate of sigma"

ATLAS_SCHEMA: dict[str, Variable] = {
    "d_model": Variable(("case",), "width of the residual stream d", domain=SIZE),
    "d_head": Variable(("case",), "head dimension h, the rank of W_QK", domain=SIZE),
    "draws": Variable(("case",), "number n of Monte Carlo draws", domain=DRAWS),
    "mean": Variable(_BY_STATISTIC, "Monte Carlo mean at sigma = 1", domain=FINITE),
    "std": Variable(_BY_STATISTIC, "Monte Carlo standard deviation of one draw at sigma = 1", domain=POSITIVE),
    "standard_error": Variable(_BY_STATISTIC, "standard error of the Monte Carlo mean at sigma = 1", domain=POSITIVE),
    "quantile": Variable((*_BY_STATISTIC, "probability"), "Monte Carlo quantile at sigma = 1", domain=RISING),
    "mean_self_normalized": Variable(_BY_STATISTIC, f"Monte Carlo mean, {_SELF}", domain=FINITE),
    "std_self_normalized": Variable(
        _BY_STATISTIC, f"Monte Carlo standard deviation of one draw, {_SELF}", domain=POSITIVE
    ),
    "quantile_self_normalized": Variable(
        (*_BY_STATISTIC, "probability"), f"Monte Carlo quantile, {_SELF}", domain=RISING
    ),
    "distance_center": Variable(
        _BY_STATISTIC,
        f"mean on the distance scale (ln x where x > 0 has no upper bound, else x), {_SELF}",
        domain=FINITE,
    ),
    "distance_spread": Variable(_BY_STATISTIC, f"standard deviation on the distance scale, {_SELF}", domain=POSITIVE),
    "order_statistic_lower": Variable(
        (*_BY_STATISTIC, "rank"),
        f"rank-th smallest of the n draws, {_SELF}, on the distance scale less distance_center over distance_spread, "
        "rounded down by less than 2^-16; NaN beyond the middle",
        domain=RISING,
    ),
    "order_statistic_upper": Variable(
        (*_BY_STATISTIC, "rank"), "as order_statistic_lower, the rank-th largest, rounded up", domain=_FALLING_ANY
    ),
    "largest_distance": Variable(
        ("case", "rank"),
        "rank-th largest, over the n draws, of the largest |x - distance_center| / distance_spread of any statistic, "
        "rounded up by less than 2^-16; NaN beyond n",
        domain=FALLING,
    ),
    "eigenvalue_mean": Variable(
        ("case", "index"), "mean of the ordered eigenvalue at sigma = 1; NaN from d_head on", domain=FALLING
    ),
    "eigenvalue_quantile_self_normalized": Variable(
        ("case", "index", "probability"),
        f"quantile of the ordered eigenvalue, {_SELF}, to within 1/512 of its standard deviation; NaN from d_head on",
        domain=RISING,
    ),
    "density": Variable(
        ("case", "bin"),
        "Monte Carlo density of the nonzero eigenvalues at sigma = 1, bin average; the edges are those of "
        "rmtbase.montecarlo.histogram_edges",
        "1/lambda",
        domain=NON_NEGATIVE,
    ),
    "density_standard_error": Variable(
        ("case", "bin"), "standard error of the density, from the spread between draws", "1/lambda", domain=NON_NEGATIVE
    ),
    "checksum": Variable(
        ("case",),
        "63 bits of the SHA-256 of all else that the case holds, as rmtbase.tables.with_checksums takes it",
        domain=COUNT,
    ),
}
"""The variables of the atlas, of the raw product. ``rank`` counts from the end that a variable names: one by one at
first, then in steps that keep a p-value from the kept ranks within 3 % of the full sample's."""

_BULKY = ("order_statistic_lower", "order_statistic_upper", "largest_distance", "eigenvalue_quantile_self_normalized")


def atlas_encoding(dataset: xr.Dataset) -> dict[str, dict]:
    """How the atlas is stored: each case by itself, so that one is read without the others; all of it checksummed."""
    packed = {"zlib": True, "complevel": 9, "shuffle": True, "fletcher32": True}
    return {
        str(name): {**packed, "chunksizes": (1, *variable.shape[1:]) if name in _BULKY else variable.shape}
        for name, variable in dataset.variables.items()
        if variable.ndim and variable.dtype.kind in "fiu"
    }


def with_checksums(atlas: xr.Dataset) -> xr.Dataset:
    """The atlas with a checksum of every case, by which one can be verified that is read without the others."""
    return atlas.assign(checksum=("case", row_checksums(atlas, "case", "checksum")))
