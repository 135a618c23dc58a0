"""What a file of rmtbase holds: every variable with its dimensions, long name and units.

A table is built by :func:`describe`, which attaches the long names and units written here, and checked against the same
lines when it is opened, so that a file and its description cannot drift apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xarray as xr

from rmtbase.errors import TableError
from rmtbase.parameters import NORMALIZATIONS

SCHEMA_VERSION = "1.1"


@dataclass(frozen=True)
class Variable:
    """One variable of a table."""

    dims: tuple[str, ...]
    long_name: str
    units: str = "1"


BASELINE_SCHEMA: dict[str, Variable] = {
    "d_model": Variable(("case",), "width of the residual stream d"),
    "d_head": Variable(("case",), "head dimension h, the rank of W_QK"),
    "sigma_q": Variable(("case",), "standard deviation of the elements of W_Q"),
    "sigma_k": Variable(("case",), "standard deviation of the elements of W_K"),
    "mean": Variable(("case", "statistic"), "Monte Carlo mean"),
    "std": Variable(("case", "statistic"), "Monte Carlo standard deviation of one draw"),
    "standard_error": Variable(("case", "statistic"), "standard error of the Monte Carlo mean"),
    "std_standard_error": Variable(("case", "statistic"), "standard error of the Monte Carlo standard deviation"),
    "quantile": Variable(("case", "statistic", "probability"), "Monte Carlo quantile"),
    "analytic_mean": Variable(("case", "statistic"), "analytic mean, NaN where no formula is offered"),
    "analytic_std": Variable(("case", "statistic"), "analytic standard deviation, NaN where no formula is offered"),
    "analytic_method": Variable(("case", "statistic"), "how the analytic value is known, with its accuracy"),
    "sample": Variable(("case", "statistic", "draw"), "the statistic of each draw"),
    "sigma_q_estimate": Variable(("case", "draw"), "each draw's own estimate of sigma_Q, sqrt(|W_Q|_F^2 / (d h))"),
    "sigma_k_estimate": Variable(("case", "draw"), "each draw's own estimate of sigma_K, sqrt(|W_K|_F^2 / (d h))"),
    "eigenvalue_mean": Variable(("case", "index"), "mean of the ordered eigenvalue; padded with NaN from d_head on"),
    "eigenvalue_std": Variable(
        ("case", "index"), "standard deviation of the ordered eigenvalue; padded with NaN from d_head on"
    ),
    "eigenvalue_quantile": Variable(
        ("case", "index", "probability"), "quantile of the ordered eigenvalue; padded with NaN from d_head on"
    ),
    "eigenvalue_quantile_self_normalized": Variable(
        ("case", "index", "probability"),
        "quantile of the ordered eigenvalue after rescaling each draw by sigma^4 over its own estimate of it; "
        "padded with NaN from d_head on",
    ),
    "bin_edge": Variable(("case", "edge"), "edges of the histogram bins in lambda"),
    "density": Variable(("case", "bin"), "Monte Carlo density of the nonzero eigenvalues, bin average", "1/lambda"),
    "density_standard_error": Variable(
        ("case", "bin"), "standard error of the density, from the spread between draws", "1/lambda"
    ),
    "density_marchenko_pastur": Variable(
        ("case", "bin"),
        "bin average of the Marchenko-Pastur density with edges d sigma^4 (1 +- sqrt(gamma))^2, often quoted for "
        "W_QK but the law of a single factor: too narrow",
        "1/lambda",
    ),
    "density_free": Variable(
        ("case", "bin"), "bin average of the free-product density, the limit of W_QK's spectrum", "1/lambda"
    ),
    "edge_lower": Variable(("case",), "lower edge of the free-product law"),
    "edge_upper": Variable(("case",), "upper edge of the free-product law"),
    "draws": Variable(("case",), "number of draws"),
}
"""The variables of a baseline file. All dimensionless; an eigenvalue is in units where the elements have the case's
sigma_q and sigma_k, divided by d_model where the file's ``normalization`` is ``sqrt_d``."""

_SINCE_1_1 = frozenset({"draws"})
_SAMPLE = frozenset({"sample", "sigma_q_estimate", "sigma_k_estimate"})
"""What a table made with ``keep_sample = false`` lacks."""

SPECTRA_SCHEMA: dict[str, Variable] = {
    **{
        name: variable
        for name, variable in BASELINE_SCHEMA.items()
        if name
        not in {
            *("d_model", "d_head", "sigma_q", "sigma_k", "sigma_q_estimate", "sigma_k_estimate"),
            *("eigenvalue_quantile_self_normalized", "density_marchenko_pastur", "density_free"),
        }
    },
    "name": Variable(("case",), "ensemble with its parameters, as it keys the draws"),
    "rank": Variable(("case",), "number of structurally nonzero eigenvalues"),
    "density_law": Variable(
        ("case", "bin"), "bin average of the limiting law's density, NaN where none is known", "1/lambda"
    ),
    "edge_lower": Variable(("case",), "lower edge of the limiting law, NaN where none is known"),
    "edge_upper": Variable(("case",), "upper edge of the limiting law, NaN where none is known"),
}
"""The variables of a table of spectra of any ensemble: λ of the raw matrix, each factor as the ensemble draws it. Each
parameter of the ensemble is a coordinate of its own, ``parameter_depth(case)`` say."""

BASELINE_ATTRIBUTES = (
    "schema_version",
    "rmtbase_version",
    "provenance",
    "kind",
    "normalization",
    "draws",
    "seed",
)

_HEAD = ("layer", "head")
_STATISTIC = ("layer", "head", "statistic")

SCORES_SCHEMA: dict[str, dict[str, Variable]] = {
    "heads": {
        "observed": Variable(_STATISTIC, "observed value, raw product W_Q^T W_K"),
        "null_mean": Variable(
            _STATISTIC,
            "mean of the null at the head's own sigma estimates; NaN where no null of the statistic is known",
        ),
        "null_std": Variable(_STATISTIC, "standard deviation of the null at the head's own sigma estimates"),
        "null_quantile": Variable(
            (*_STATISTIC, "probability"), "quantile of the null at the head's own sigma estimates"
        ),
        "z_score": Variable(_STATISTIC, "(observed - null_mean) / null_std"),
        "p_value": Variable(_STATISTIC, "two-sided p-value against the null"),
        "q_value": Variable(
            _STATISTIC, "Benjamini-Hochberg q-value over all heads of the model, each statistic by itself"
        ),
        "omnibus_p_value": Variable(
            _HEAD,
            "p-value of all statistics together: of the largest distance, against the null draws' own largest; where "
            "the null is analytic, the Cauchy combination of the statistics' p-values",
        ),
        "farthest_statistic": Variable(
            _HEAD, "statistic with the largest distance from the null: |z|, of ln x where x > 0 has no upper bound"
        ),
        "omnibus_q_value": Variable(_HEAD, "Benjamini-Hochberg q-value of omnibus_p_value over all heads"),
        "sigma_q": Variable(_HEAD, "estimate of sigma_Q, sqrt(|W_Q|_F^2 / (d h))"),
        "sigma_k": Variable(_HEAD, "estimate of sigma_K, sqrt(|W_K|_F^2 / (d h))"),
        "outliers_above": Variable(_HEAD, "eigenvalues above the null's upper edge quantile"),
        "outliers_below": Variable(_HEAD, "eigenvalues below the null's lower edge quantile"),
        "key_head": Variable(_HEAD, "index of the key head that the query head reads"),
        "eigenvalue": Variable((*_HEAD, "index"), "eigenvalues of W_QK^T W_QK, descending, raw product"),
    },
    "matrices": {
        "observed": Variable(("layer", "component", "statistic"), "observed value"),
        "null_mean": Variable(("layer", "component", "statistic"), "mean of the null"),
        "null_std": Variable(("layer", "component", "statistic"), "standard deviation of the null"),
        "z_score": Variable(("layer", "component", "statistic"), "(observed - null_mean) / null_std"),
        "p_value": Variable(("layer", "component", "statistic"), "two-sided p-value against the null"),
        "q_value": Variable(
            ("layer", "component", "statistic"),
            "Benjamini-Hochberg q-value over all matrices of the model, each statistic by itself",
        ),
        "sigma": Variable(("layer", "component"), "standard deviation of the elements"),
        "n_rows": Variable(("layer", "component"), "rows (outputs)"),
        "n_columns": Variable(("layer", "component"), "columns (inputs)"),
    },
    "spectra": {
        "outliers_above": Variable(("layer", "component"), "eigenvalues above the null's upper edge quantile"),
        "outliers_below": Variable(("layer", "component"), "eigenvalues below the null's lower edge quantile"),
        "marchenko_pastur_distance": Variable(
            ("layer", "component"),
            "largest distance between the spectrum's distribution function and Marchenko-Pastur's",
        ),
    },
    "null": {
        "eigenvalue_mean": Variable(("index",), "mean ordered eigenvalue of the null, sigma = 1, raw product"),
        "eigenvalue_quantile": Variable(
            ("index", "probability"),
            "quantile of the null's ordered eigenvalue, each draw at its own estimate of sigma, raw product; where the "
            "null is analytic, of a gamma law but for the extreme eigenvalues",
        ),
        "bin_edge": Variable(("edge",), "edges of the histogram bins in lambda, sigma = 1, raw product"),
        "density": Variable(
            ("bin",),
            "Monte Carlo density of the null's eigenvalues, bin average; where the null is analytic, density_free",
            "1/lambda",
        ),
        "density_standard_error": Variable(
            ("bin",), "standard error of the Monte Carlo density; 0 where the null is analytic", "1/lambda"
        ),
        "density_free": Variable(("bin",), "bin average of the free-product density", "1/lambda"),
        "edge_quantile_lower": Variable((), "edge quantile of the self-normalised smallest eigenvalue"),
        "edge_quantile_upper": Variable((), "edge quantile of the self-normalised largest eigenvalue"),
    },
    "own_null": {
        "eigenvalue_mean": Variable(
            (*_HEAD, "index"),
            "mean ordered eigenvalue of the head's own null, over its sigma_q^2 sigma_k^2, raw product",
        ),
        "eigenvalue_quantile": Variable(
            (*_HEAD, "index", "probability"),
            "quantile of the ordered eigenvalue of the head's own null, over its sigma_q^2 sigma_k^2, raw product",
        ),
        "edge_quantile_lower": Variable(_HEAD, "edge quantile of the smallest eigenvalue of the head's own null"),
        "edge_quantile_upper": Variable(_HEAD, "edge quantile of the largest eigenvalue of the head's own null"),
    },
}
"""The variables of each group of a scores file. ``spectra`` are further variables of ``/matrices``, present where
asked for; ``own_null`` stands in the place of ``null`` where each head has a null of its own (``null_method`` is
``"resampled"``); all else is always there."""

SCORES_ATTRIBUTES = (
    "schema_version",
    "rmtbase_version",
    "provenance",
    "kind",
    "model",
    "family",
    "null",
    "table",
)


def null_method(attributes: Mapping[Any, Any]) -> str:
    """How the null of a scores file is known: ``"analytic"``, ``"simulated"`` or ``"resampled"``, each head's its own.

    ``"simulated"`` where the file does not say.
    """
    return str(attributes.get("null_method", "simulated"))


def describe(dataset: xr.Dataset, schema: dict[str, Variable]) -> xr.Dataset:
    """The dataset with the schema's long names and units on every variable it knows; its dimensions are checked."""
    for name, variable in schema.items():
        if name not in dataset.variables:
            continue
        if dataset[name].dims != variable.dims:
            raise ValueError(f"variable {name!r} has dims {dataset[name].dims}; expected {variable.dims}")
        dataset[name].attrs.update(long_name=variable.long_name, units=variable.units)
    return dataset


def baseline_shapes(dataset: xr.Dataset) -> list[tuple[int, int]]:
    """(d_model, d_head) of every case of a baseline table."""
    return list(zip(dataset["d_model"].values.tolist(), dataset["d_head"].values.tolist(), strict=True))


def validate_baseline(dataset: xr.Dataset, path: Path | str) -> None:
    """Raise :class:`~rmtbase.errors.TableError` unless this is a baseline table of the schema's major version."""
    check_attributes(dataset.attrs, "baseline", BASELINE_ATTRIBUTES, path)
    check_variables(dataset, _present(dataset, BASELINE_SCHEMA), path)
    _check_contents(dataset, path)


def validate_spectra(dataset: xr.Dataset, path: Path | str) -> None:
    """Raise :class:`~rmtbase.errors.TableError` unless this is a table of spectra of the schema's major version."""
    check_attributes(dataset.attrs, "spectra", BASELINE_ATTRIBUTES, path)
    check_variables(dataset, _present(dataset, SPECTRA_SCHEMA), path)


def _present(dataset: xr.Dataset, schema: dict[str, Variable]) -> dict[str, Variable]:
    """The schema without what this table need not have: what came later, and the sample where none was kept."""
    optional = _SINCE_1_1 if dataset.attrs.get("schema_version") == "1.0" else frozenset()
    if not _SAMPLE & set(dataset.variables):
        optional |= _SAMPLE
    return {name: variable for name, variable in schema.items() if name not in optional}


def validate_scores(tree: xr.DataTree, path: Path | str) -> None:
    """Raise :class:`~rmtbase.errors.TableError` unless this is a scores file of the schema's major version."""
    check_attributes(tree.attrs, "scores", SCORES_ATTRIBUTES, path)
    for group in ("heads", "null"):
        if group not in tree.children:
            raise TableError(path, f"no group /{group}", f"the groups of a scores file, /{group} among them")
        own = group == "null" and null_method(tree.attrs) == "resampled"
        check_variables(tree[group].to_dataset(), SCORES_SCHEMA["own_null" if own else group], path)
    if "matrices" in tree.children:
        check_variables(tree["matrices"].to_dataset(), SCORES_SCHEMA["matrices"], path)


def _check_contents(dataset: xr.Dataset, path: Path | str) -> None:
    normalization = dataset.attrs["normalization"]
    if normalization not in NORMALIZATIONS:
        raise TableError(path, f"normalization {normalization!r}", "'sqrt_d' or 'none'")
    for dim, least in (("case", 1), ("statistic", 1), ("draw", 2)):
        if dataset.sizes.get(dim, least) < least:
            raise TableError(path, f"{dataset.sizes[dim]} entries of {dim}", f"at least {least}")
    for name in _present(dataset, BASELINE_SCHEMA):
        if name != "analytic_method" and dataset[name].dtype.kind not in "fiu":
            raise TableError(path, f"variable {name!r} of type {dataset[name].dtype}", "numbers")
    if "sample" in dataset and bool(dataset["sample"].isnull().any()):
        raise TableError(path, "NaN in variable 'sample'", "a number for every draw")
    for name in ("sigma_q", "sigma_k", "sigma_q_estimate", "sigma_k_estimate"):
        if name in dataset and not bool((dataset[name] > 0).all()):
            raise TableError(path, f"values of {name!r} that are not positive", "positive numbers")


def check_attributes(found: dict, kind: str, expected: tuple[str, ...], path: Path | str) -> None:
    """Raise :class:`~rmtbase.errors.TableError` unless they are of that kind of file and the schema's major version."""
    want = f"a {kind} file written by rmtbase (schema {SCHEMA_VERSION})"
    if "schema_version" not in found or "rmtbase_version" not in found:
        raise TableError(path, "a netCDF file that rmtbase did not write (no schema_version)", want)
    if found.get("kind") != kind:
        raise TableError(path, f"a file of kind {found.get('kind')!r}", want)
    if str(found["schema_version"]).split(".")[0] != SCHEMA_VERSION.split(".")[0]:
        raise TableError(
            path,
            f"schema version {found['schema_version']}",
            f"{want}; make the table again with this version",
        )
    missing = [name for name in expected if name not in found]
    if missing:
        raise TableError(path, f"attributes {', '.join(missing)} missing", want)


def check_variables(dataset: xr.Dataset, schema: dict[str, Variable], path: Path | str) -> None:
    """Raise :class:`~rmtbase.errors.TableError` unless every variable of the schema is there with its dimensions."""
    """Raise :class:`~rmtbase.errors.TableError` unless every variable is there with the schema's dimensions."""
    for name, variable in schema.items():
        if name not in dataset.variables:
            raise TableError(path, f"no variable {name!r}", f"{name}{variable.dims}")
        if dataset[name].dims != variable.dims:
            raise TableError(path, f"variable {name!r} with dims {dataset[name].dims}", f"{name}{variable.dims}")
