"""What a file of rmtbase holds: every variable with its dimensions, long name, units and domain.

A table is built by :func:`describe`, which attaches the long names and units written here, and checked against the same
lines when it is opened, so that a file and its description cannot drift apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import xarray as xr

from rmtbase.tables._domain import (
    ANY,
    COUNT,
    DRAWS,
    EDGES,
    FALLING,
    FINITE,
    FINITE_OR_NAN,
    FLAG_OR_NAN,
    LAYERS,
    LEVELS,
    NAMES,
    NON_NEGATIVE,
    NON_NEGATIVE_OR_NAN,
    NUMBERS_OF_LAYERS,
    ORDER,
    PLACES,
    POSITIVE,
    POSITIVE_OR_NAN,
    PROBABILITY,
    RANKS,
    RISING,
    SIZE,
    SIZE_OR_NAN,
    SPREAD,
    TEXT,
    Domain,
)

SCHEMA_VERSION = "1.5"


@dataclass(frozen=True)
class Variable:
    """One variable of a table.

    Attributes:
        dims: its dimensions.
        long_name: in words.
        domain: what its values can be.
        units: "" where none, and then the variable has no such attribute.
        since: the first schema version that has it.
        part: the part of a table that it belongs to, where that may be left out, as a whole; "" for what must be there.
    """

    dims: tuple[str, ...]
    long_name: str
    domain: Domain = ANY
    units: str = ""
    since: str = "1.0"
    part: str = ""


Schema = Mapping[str, Variable]


class Outline(Protocol):
    """What a dataset and a group of a file that has not been read have in common."""

    @property
    def attrs(self) -> Mapping[Any, Any]: ...
    @property
    def variables(self) -> Mapping[Any, Any]: ...
    @property
    def coords(self) -> Iterable[Any]: ...
    @property
    def sizes(self) -> Mapping[Any, int]: ...


_CASE = ("case",)
_STATISTIC = ("case", "statistic")
_INDEX = ("case", "index")
_BIN = ("case", "bin")
_density = partial(Variable, _BIN, units="1/lambda")
_density_of_elements = partial(Variable, _BIN, units="1/w")
_SAMPLE = "sample"  # what a table made with ``keep_sample = false`` lacks

BASELINE_SCHEMA: dict[str, Variable] = {
    "d_model": Variable(_CASE, "width of the residual stream d", SIZE),
    "d_head": Variable(_CASE, "head dimension h, the rank of W_QK", SIZE),
    "sigma_q": Variable(_CASE, "standard deviation of the elements of W_Q", POSITIVE),
    "sigma_k": Variable(_CASE, "standard deviation of the elements of W_K", POSITIVE),
    "mean": Variable(_STATISTIC, "Monte Carlo mean, NaN where there is none", FINITE_OR_NAN),
    "std": Variable(
        _STATISTIC, "Monte Carlo standard deviation of one draw, NaN where there is none", NON_NEGATIVE_OR_NAN
    ),
    "standard_error": Variable(
        _STATISTIC, "standard error of the Monte Carlo mean, NaN where std is", NON_NEGATIVE_OR_NAN
    ),
    "std_standard_error": Variable(
        _STATISTIC,
        "standard error of the Monte Carlo standard deviation, NaN where the fourth moment is infinite",
        NON_NEGATIVE_OR_NAN,
    ),
    "moment_order": Variable(
        _STATISTIC,
        "order from which on the moments E|x|^p are infinite, below which they are finite: there is no mean where it "
        "is at most 1, no std where it is at most 2; of a condition number (g + 1)/2, of singular values g + 1, with "
        "the two smallest dimensions g apart",
        ORDER,
        since="1.3",
    ),
    "quantile": Variable((*_STATISTIC, "probability"), "Monte Carlo quantile", replace(FINITE, order="rising")),
    "analytic_mean": Variable(_STATISTIC, "analytic mean, NaN where no formula is offered"),
    "analytic_std": Variable(_STATISTIC, "analytic standard deviation, NaN where no formula is offered", SPREAD),
    "analytic_method": Variable(_STATISTIC, "how the analytic value is known, with its accuracy", TEXT),
    "sample": Variable((*_STATISTIC, "draw"), "the statistic of each draw", FINITE, part=_SAMPLE),
    "sigma_q_estimate": Variable(
        ("case", "draw"), "each draw's own estimate of sigma_Q, sqrt(|W_Q|_F^2 / (d h))", POSITIVE, part=_SAMPLE
    ),
    "sigma_k_estimate": Variable(
        ("case", "draw"), "each draw's own estimate of sigma_K, sqrt(|W_K|_F^2 / (d h))", POSITIVE, part=_SAMPLE
    ),
    "eigenvalue_mean": Variable(
        _INDEX, "mean of the ordered eigenvalue; NaN where infinite, and from d_head on", FALLING
    ),
    "eigenvalue_std": Variable(
        _INDEX, "standard deviation of the ordered eigenvalue; NaN where infinite, and from d_head on", SPREAD
    ),
    "eigenvalue_quantile": Variable(
        (*_INDEX, "probability"), "quantile of the ordered eigenvalue; padded with NaN from d_head on", RISING
    ),
    "eigenvalue_quantile_self_normalized": Variable(
        (*_INDEX, "probability"),
        "quantile of the ordered eigenvalue after rescaling each draw by sigma^4 over its own estimate of it; "
        "padded with NaN from d_head on",
        RISING,
    ),
    "bin_edge": Variable(("case", "edge"), "edges of the histogram bins in lambda", EDGES),
    "bin_center": Variable(_BIN, "eigenvalue lambda, centre of the bin", EDGES, since="1.3"),
    "density": _density("Monte Carlo density of the nonzero eigenvalues, bin average", NON_NEGATIVE),
    "density_standard_error": _density("standard error of the density, from the spread between draws", NON_NEGATIVE),
    "density_marchenko_pastur": _density(
        "bin average of the Marchenko-Pastur density with edges d sigma^4 (1 +- sqrt(gamma))^2, often quoted for "
        "W_QK but the law of a single factor: too narrow",
        NON_NEGATIVE,
    ),
    "density_free": _density("bin average of the free-product density, the limit of W_QK's spectrum", NON_NEGATIVE),
    "edge_lower": Variable(_CASE, "lower edge of the free-product law", NON_NEGATIVE),
    "edge_upper": Variable(_CASE, "upper edge of the free-product law", POSITIVE),
    "draws": Variable(_CASE, "number of draws", DRAWS, since="1.1"),
}
"""The variables of a baseline file. All dimensionless; an eigenvalue is in units where the elements have the case's
sigma_q and sigma_k, divided by d_model where the file's ``normalization`` is ``sqrt_d``."""

OF_ANY_ENSEMBLE: dict[str, Variable] = {
    **{name: BASELINE_SCHEMA[name] for name in ("draws", "analytic_mean", "analytic_std", "analytic_method")},
    "moment_order": BASELINE_SCHEMA["moment_order"],
    **{name: replace(BASELINE_SCHEMA[name], domain=ANY) for name in ("mean", "sample")},
    **{name: replace(BASELINE_SCHEMA[name], domain=SPREAD) for name in ("std", "standard_error", "std_standard_error")},
    "quantile": replace(BASELINE_SCHEMA["quantile"], domain=RISING),
}
"""The statistics of draws of any matrix: some are not numbers, where an eigenvalue is rounding or a power overflows."""

SPECTRA_SCHEMA: dict[str, Variable] = {
    **OF_ANY_ENSEMBLE,
    **{name: BASELINE_SCHEMA[name] for name in ("eigenvalue_mean", "eigenvalue_std", "eigenvalue_quantile")},
    **{name: BASELINE_SCHEMA[name] for name in ("bin_edge", "bin_center", "density", "density_standard_error")},
    "name": Variable(_CASE, "ensemble with its parameters, as it keys the draws", NAMES),
    "rank": Variable(_CASE, "number of structurally nonzero eigenvalues", SIZE),
    "density_law": _density("bin average of the limiting law's density, NaN where none is known", NON_NEGATIVE_OR_NAN),
    "edge_lower": Variable(_CASE, "lower edge of the limiting law, NaN where none is known", SPREAD),
    "edge_upper": Variable(_CASE, "upper edge of the limiting law, NaN where none is known", SPREAD),
    # What a table that was not made for a null lacks.
    "scale_estimate": Variable(("case", "draw"), "each draw's own estimate of prod sigma^2", POSITIVE, part="null"),
    "eigenvalue_quantile_self_normalized": replace(BASELINE_SCHEMA["eigenvalue_quantile_self_normalized"], part="null"),
}
"""The variables of a table of spectra of any ensemble: λ of the raw matrix, each factor as the ensemble draws it. Each
parameter of the ensemble is a coordinate of its own, ``parameter_depth(case)`` say."""

_OF_W_QK = "of W_QK; NaN for any other ensemble"

ELEMENTS_SCHEMA: dict[str, Variable] = {
    **OF_ANY_ENSEMBLE,
    "name": Variable(_CASE, "ensemble with its parameters, as it keys the draws", NAMES),
    "n_rows": Variable(_CASE, "rows of the matrix", SIZE),
    "n_columns": Variable(_CASE, "columns of the matrix", SIZE),
    "d_model": Variable(_CASE, f"width of the residual stream d, {_OF_W_QK}", SIZE_OR_NAN, since="1.2"),
    "d_head": Variable(_CASE, f"head dimension h, {_OF_W_QK}", SIZE_OR_NAN, since="1.2"),
    "sigma_q": Variable(_CASE, f"standard deviation of the elements of W_Q, {_OF_W_QK}", POSITIVE_OR_NAN, since="1.2"),
    "sigma_k": Variable(_CASE, f"standard deviation of the elements of W_K, {_OF_W_QK}", POSITIVE_OR_NAN, since="1.2"),
    "bin_edge": Variable(("case", "edge"), "edges of the histogram bins in w", EDGES),
    "bin_center": Variable(_BIN, "element w, centre of the bin", EDGES, since="1.3"),
    "density": _density_of_elements("Monte Carlo density of the elements, bin average", NON_NEGATIVE),
    "density_standard_error": _density_of_elements(
        "standard error of the density, from the spread between draws", NON_NEGATIVE
    ),
    "density_law": _density_of_elements(
        "bin average of the law of one element, NaN where none is offered", NON_NEGATIVE_OR_NAN
    ),
    "share_outside": Variable(_CASE, "share of the elements that lie in no bin", PROBABILITY),
}
"""The variables of a table of elements w, as the ensemble draws them: of W_QK the raw product at sigma = 1."""

ELEMENT_FORMULAS: dict[str, str] = {
    "mean": "m = sum w / N",
    "std": "s = sqrt(sum (w - m)^2 / (N - 1))",
    "skewness": "m3 / m2^(3/2), mk = sum (w - m)^k / N",
    "excess_kurtosis": "m4 / m2^2 - 3",
    "largest_magnitude": "max |w - m| / s",
    "histogram_entropy": "-sum p ln(p / width), p the shares of the bins",
    "histogram_kl": "sum p ln(p / q), q the shares of N(0, sum w^2 / N)",
    "weibull_shape": "k, slope of ln(-ln(1 - (i - 1/2)/N)) on ln |w|_(i), middle 80 %",
    "weibull_scale": "exp(mean X - mean Y / k) of the same line",
    "weibull_r_squared": "R^2 of the same line",
}
"""The statistics of the elements w of one matrix, in the order of the tables, with their formulas."""

_SELF = "each draw at its own estimate of sigma"

ATLAS_SCHEMA: dict[str, Variable] = {
    "d_model": Variable(_CASE, "width of the residual stream d", SIZE),
    "d_head": Variable(_CASE, "head dimension h, the rank of W_QK", SIZE),
    "draws": Variable(_CASE, "number n of Monte Carlo draws", DRAWS),
    "mean": Variable(_STATISTIC, "Monte Carlo mean at sigma = 1", FINITE),
    "std": Variable(_STATISTIC, "Monte Carlo standard deviation of one draw at sigma = 1", POSITIVE),
    "standard_error": Variable(_STATISTIC, "standard error of the Monte Carlo mean at sigma = 1", POSITIVE),
    "quantile": Variable((*_STATISTIC, "probability"), "Monte Carlo quantile at sigma = 1", RISING),
    "mean_self_normalized": Variable(_STATISTIC, f"Monte Carlo mean, {_SELF}", FINITE),
    "std_self_normalized": Variable(_STATISTIC, f"Monte Carlo standard deviation of one draw, {_SELF}", POSITIVE),
    "quantile_self_normalized": Variable((*_STATISTIC, "probability"), f"Monte Carlo quantile, {_SELF}", RISING),
    "distance_center": Variable(
        _STATISTIC, f"mean on the distance scale (ln x where x > 0 has no upper bound, else x), {_SELF}", FINITE
    ),
    "distance_spread": Variable(_STATISTIC, f"standard deviation on the distance scale, {_SELF}", POSITIVE),
    "order_statistic_lower": Variable(
        (*_STATISTIC, "rank"),
        f"rank-th smallest of the n draws, {_SELF}, on the distance scale less distance_center over distance_spread, "
        "rounded down by less than 2^-16; NaN beyond the middle",
        RISING,
    ),
    "order_statistic_upper": Variable(
        (*_STATISTIC, "rank"),
        "as order_statistic_lower, the rank-th largest, rounded up",
        replace(RISING, words="numbers in falling order, or NaN", order="falling"),
    ),
    "largest_distance": Variable(
        ("case", "rank"),
        "rank-th largest, over the n draws, of the largest |x - distance_center| / distance_spread of any statistic, "
        "rounded up by less than 2^-16; NaN beyond n",
        FALLING,
    ),
    "eigenvalue_mean": Variable(_INDEX, "mean of the ordered eigenvalue at sigma = 1; NaN from d_head on", FALLING),
    "eigenvalue_quantile_self_normalized": Variable(
        (*_INDEX, "probability"),
        f"quantile of the ordered eigenvalue, {_SELF}, to within 1/512 of its standard deviation; NaN from d_head on",
        RISING,
    ),
    "density": _density(
        "Monte Carlo density of the nonzero eigenvalues at sigma = 1, bin average; the edges are those of "
        "rmtbase.montecarlo.histogram_edges",
        NON_NEGATIVE,
    ),
    "density_standard_error": _density("standard error of the density, from the spread between draws", NON_NEGATIVE),
    "checksum": Variable(
        _CASE,
        "63 bits of the SHA-256 of all else that the case holds, as rmtbase.tables.with_checksums takes it",
        COUNT,
    ),
}
"""The variables of the atlas: of the raw product, many shapes, each in a few kilobytes. ``rank`` counts from the end
that a variable names: one by one at first, then in steps that keep a p-value from the kept ranks within 3 % of the full
sample's."""

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
    "n_rows": Variable(_MATRIX, "rows (outputs)", SIZE_OR_NAN),
    "n_columns": Variable(_MATRIX, "columns (inputs)", SIZE_OR_NAN),
    "distance_profile": Variable((*_MATRIX, "depth"), "smallest distance to the law of each depth", SPREAD),
    "scale_profile": Variable((*_MATRIX, "depth"), "scale at which it is attained", SPREAD),
    "sigma_profile": Variable((*_MATRIX, "depth"), "sigma at which it is attained", SPREAD),
    "singular_value": Variable((*_MATRIX, "index"), "singular values, descending; padded with NaN", FALLING),
}
"""The variables of a file of effective depths, one entry for each weight matrix of a model."""

_OF_A_LAYER = {
    "n_heads": "heads of the layer",
    "n_key_heads": "key heads of the layer",
    "d_query": "width of what the queries read",
    "d_key": "width of what the keys and values read",
    "d_head": "rows of a head's W_Q and W_K",
    "d_value": "rows of a head's W_V",
    "d_output": "width of what the heads write to",
}

_NAMED = {
    "statistic": "statistic",
    "element_statistic": "statistic of the elements",
    "component": "weight matrix",
    "model": "model that is compared, by the name of its file",
    "pair": "two of the models",
    "contrast": "two groups of models",
    "measure": "what is measured of a model",
    "published_model": "model of published numbers",
}

COORDINATES: dict[str, Variable] = {
    **{name: Variable((name,), words, NAMES) for name, words in _NAMED.items()},
    "case": Variable(("case",), "case of the table", PLACES),
    "probability": Variable(("probability",), "probability of the quantile", LEVELS),
    "expert": Variable(("expert",), "expert of a mixture", PLACES),
    "depth": Variable(("depth",), "depth of the residual path", RANKS),
    "rank": Variable(("rank",), "rank, counted from the end", RANKS),
    "index": Variable(("index",), "place of the eigenvalue, from the largest, which is 0", PLACES),
    "bin": Variable(("bin",), "bin of the histogram", EDGES),
    "edge": Variable(("edge",), "edge of the histogram", PLACES),
    "draw": Variable(("draw",), "draw", PLACES),
    "layer": Variable(("layer",), "layer", LAYERS),
    "stack": Variable(("layer",), "stack of the layer", TEXT),
    "stack_layer": Variable(
        ("layer",), "number of the layer in its stack; -1 for what lies outside the layers", NUMBERS_OF_LAYERS
    ),
    **{name: Variable(("layer",), words, SIZE) for name, words in _OF_A_LAYER.items()},
    "head": Variable(("head",), "head", PLACES),
    "null_scale": Variable(
        ("layer", "head"),
        "factor of the null's eigenvalues at sigma = 1 where a head's matrices are products; NaN where it has no shape",
        POSITIVE_OR_NAN,
    ),
    "symbol": Variable(("statistic",), "symbol of the statistic, in LaTeX", TEXT),
    "formula": Variable(("statistic",), "formula of the statistic", TEXT),
    "convention": Variable(("statistic",), "values that the statistic is of", TEXT),
    "scaling": Variable(("statistic",), "power of sigma_Q^2 sigma_K^2 with which the statistic scales", TEXT),
}
"""What the coordinates of a table can be, whatever its kind. Those of names and of levels are always there; those of a
layer where they are not the same in all. ``layer`` is the layer's own number, -1 for what lies outside the layers; of a
model of several stacks it counts the layers of all, and ``stack`` and ``stack_layer`` say which one it is."""

PARAMETER = "parameter_"
"""How the names of coordinates begin that are parameters of a table's ensemble."""

REQUIRED_COORDINATES = frozenset({*_NAMED, "probability", "depth", "rank"})


def describe(dataset: xr.Dataset, schema: Schema) -> xr.Dataset:
    """The dataset with the schema's long names and units on every variable and coordinate; its dimensions are checked.

    ``bin`` holds the centres of the bins where these are the same for every case, so that a density is drawn over them.
    """
    words = dict(COORDINATES)
    if "bin_edge" in dataset and {"bin", "edge"} <= set(dataset.sizes):
        edges = dataset["bin_edge"].transpose(..., "edge").values
        centers = 0.5 * (edges[..., :-1] + edges[..., 1:])
        center = schema.get("bin_center", BASELINE_SCHEMA["bin_center"])
        first = centers.reshape(-1, centers.shape[-1])[0]
        if (centers == first).all():
            dataset = dataset.assign_coords(bin=first)
            words["bin"] = replace(words["bin"], long_name=center.long_name)
        if "bin_center" in schema:
            dataset = dataset.assign_coords(bin_center=(center.dims, centers))
    for name, variable in {**words, **schema}.items():
        if name not in dataset.variables or (name not in schema and not set(variable.dims) <= set(dataset.sizes)):
            continue
        if dataset[name].dims != variable.dims:
            raise ValueError(f"variable {name!r} has dims {dataset[name].dims}; expected {variable.dims}")
        units = {"units": variable.units} if variable.units else {}
        dataset[name].attrs.update(long_name=variable.long_name, **units)
    for name in (one for one in map(str, dataset.coords) if one.startswith(PARAMETER)):
        dataset[name].attrs["long_name"] = f"{name.removeprefix(PARAMETER)} of the ensemble"
    return names_as_objects(dataset)


def names_as_objects(dataset: xr.Dataset) -> xr.Dataset:
    """The dataset with names held as objects, of which xarray makes no axis: a line cannot join two statistics."""
    names = [name for name in _NAMED if name in dataset.indexes]
    return dataset.assign_coords({name: dataset[name].astype(object) for name in names})
