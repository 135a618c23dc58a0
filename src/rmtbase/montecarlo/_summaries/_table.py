"""The table of a finished run: simulated and analytic values side by side, as an xarray dataset."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from rmtbase.laws import low_rank_product as low_rank_product_law
from rmtbase.laws import naive_marchenko_pastur
from rmtbase.linalg import DTYPE, MATMUL_PRECISION, PRNG_IMPLEMENTATION
from rmtbase.montecarlo._plans._plan import DRAWS_VERSION, Plan
from rmtbase.montecarlo._stores._source import DrawSource, blocks
from rmtbase.montecarlo._summaries._analytic import AnalyticValue, analytic_law, analytic_values
from rmtbase.montecarlo._summaries._element_table import element_table_of_readings
from rmtbase.montecarlo._summaries._summary import CaseSummary, summarize_case
from rmtbase.nulls import BINS, PROBABILITIES, histogram_edges, logarithmic_edges
from rmtbase.statistics import SPECTRAL_STATISTICS, SampleSummary
from rmtbase.tables import (
    BASELINE_SCHEMA,
    SCHEMA_VERSION,
    SPECTRA_SCHEMA,
    Variable,
    describe,
    provenance,
    software_version,
)

_STATISTICS = tuple(SPECTRAL_STATISTICS.values())


class Case(NamedTuple):
    """One row of a W_QK table."""

    d_model: int
    d_head: int
    sigma_q: float
    sigma_k: float


def make_table(source: DrawSource, numerics: Mapping[str, Any]) -> xr.Dataset:
    """The table of a plan whose every chunk is there.

    Args:
        source: the draws.
        numerics: what the run records of itself: solvers, device.

    Returns:
        A baseline table (``kind`` baseline, :data:`rmtbase.tables.BASELINE_SCHEMA`) where the plan's ensemble is
        low_rank_product, a table of spectra (``kind`` spectra, :data:`rmtbase.tables.SPECTRA_SCHEMA`) for any other; a
        table of elements (``kind`` elements, :data:`rmtbase.tables.ELEMENTS_SCHEMA`) where it measures elements.
    """
    plan = source.plan
    shared = {
        "title": plan.title,
        "description": plan.description,
        "normalization": plan.normalization,
        "precision": plan.precision,
        "plan_hash": plan.hash,
        "provenance": provenance(plan.record(), numerics=_numerics(plan, numerics)),
    }
    if plan.measure == "elements":
        readings = [partial(blocks, source, case) for case in range(len(plan.cases))]
        return element_table_of_readings(
            plan.ensembles, plan.draws, readings, plan.seed, keep_sample=plan.keep_sample, attributes=shared
        )
    is_baseline = plan.ensemble == "low_rank_product"
    rows, schema = (_baseline_rows(source), BASELINE_SCHEMA) if is_baseline else (_spectra_rows(source), SPECTRA_SCHEMA)
    table = xr.concat(rows, dim="case", data_vars="all", coords="minimal", compat="override", join="exact")
    coordinates = _baseline_coordinates(plan) if is_baseline else _spectra_coordinates(plan)
    table = table.assign_coords({name: ("case", column) for name, column in coordinates.items()})
    table.attrs = {
        "schema_version": SCHEMA_VERSION,
        "kind": "baseline" if is_baseline else "spectra",
        "ensemble": _WORDS if is_baseline else plan.ensemble,
        "draws": max(plan.draws),
        "seed": plan.seed,
        "rmtbase_version": software_version(),
        **shared,
    }
    return describe(table, schema)


_WORDS = "low_rank_product: W_QK = W_Q^T W_K, i.i.d. Gaussian factors of shape (d_head, d_model)"


def _numerics(plan: Plan, numerics: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "dtype": plan.precision,
        "statistics_dtype": DTYPE,
        "matmul_precision": MATMUL_PRECISION,
        "prng": PRNG_IMPLEMENTATION,
        "prng_partitionable": True,
        "key": "fold_in(fold_in(key(seed), crc32(name of the case)), draw)",
        "draws_version": DRAWS_VERSION,
        "names": [ensemble.name for ensemble in plan.ensembles],
        **numerics,
    }


def _baseline_coordinates(plan: Plan) -> dict[str, np.ndarray]:
    cases = [Case(*_shape(case), *pair) for number, case in enumerate(plan.cases) for pair in plan.case_sigmas(number)]
    return {name: np.array(column) for name, column in zip(Case._fields, zip(*cases, strict=True), strict=True)}


def _spectra_coordinates(plan: Plan) -> dict[str, np.ndarray]:
    """The name and rank of each case, and each parameter that any case gives, as numbers or else as words."""
    names = [ensemble.name for ensemble in plan.ensembles]
    coordinates = {"name": np.array(names, dtype=object), "rank": np.array([one.rank for one in plan.ensembles])}
    for key in dict.fromkeys(key for case in plan.cases for key in case):
        column = [case.get(key) for case in plan.cases]
        numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in column)
        words = ["" if value is None else str(value) for value in column]
        coordinates[f"parameter_{key}"] = np.array(column) if numbers else np.array(words, dtype=object)
    return coordinates


def _shape(case: Mapping[str, Any]) -> tuple[int, int]:
    return case["d_model"], case["d_head"]


def _baseline_rows(source: DrawSource) -> list[xr.Dataset]:
    plan = source.plan
    longest = max(ensemble.rank for ensemble in plan.ensembles)
    rows = []
    for number, case in enumerate(plan.cases):
        shape = _shape(case)
        edges = histogram_edges(*shape)
        summary = summarize_case(source, number, lambda _, edges=edges: edges, self_normalize=True)
        analytic = analytic_values(plan.ensemble, case)
        rows += [
            _baseline_row(summary, analytic, Case(*shape, *pair), plan.normalization, longest)
            for pair in plan.case_sigmas(number)
        ]
    return rows


def _baseline_row(
    summary: CaseSummary,
    analytic: Mapping[str, AnalyticValue],
    case: Case,
    normalization: str,
    longest: int,
) -> xr.Dataset:
    d, h = case.d_model, case.d_head
    scale = (case.sigma_q * case.sigma_k) ** 2 / (d if normalization == "sqrt_d" else 1)
    edges = summary.bin_edge * scale
    sigmas = (case.sigma_q, case.sigma_k)
    law = low_rank_product_law(d, h, *sigmas, normalization)  # type: ignore[arg-type]
    naive = naive_marchenko_pastur(d, h, *sigmas, normalization)  # type: ignore[arg-type]
    assert summary.own_quantile is not None  # it was asked for
    variables = _common(summary, analytic, scale, h, longest) | {
        "eigenvalue_quantile_self_normalized": _padded(summary.own_quantile * scale, longest),
        "density_marchenko_pastur": np.diff(naive.cdf(edges)) / np.diff(edges),
        "density_free": np.diff(law.cdf(edges)) / np.diff(edges),
        "edge_lower": np.float64(law.support[0]),
        "edge_upper": np.float64(law.support[1]),
    }
    if summary.sigma_estimate is not None:
        own_q, own_k = summary.sigma_estimate
        variables |= {"sigma_q_estimate": own_q * case.sigma_q, "sigma_k_estimate": own_k * case.sigma_k}
    return _row(variables, BASELINE_SCHEMA, longest)


def _spectra_rows(source: DrawSource) -> list[xr.Dataset]:
    plan = source.plan
    longest = max(ensemble.rank for ensemble in plan.ensembles)
    rows = []
    for number, case in enumerate(plan.cases):
        summary = summarize_case(source, number, logarithmic_edges)
        rank = plan.ensembles[number].rank
        law = analytic_law(plan.ensemble, case, plan.ensembles[number])
        nothing = np.full(BINS, np.nan)
        density = nothing if law is None else np.diff(law.cdf(summary.bin_edge)) / np.diff(summary.bin_edge)
        variables = _common(summary, analytic_values(plan.ensemble, case), 1.0, rank, longest) | {
            "density_law": density,
            "edge_lower": np.float64(np.nan if law is None else law.support[0]),
            "edge_upper": np.float64(np.nan if law is None else law.support[1]),
        }
        rows.append(_row(variables, SPECTRA_SCHEMA, longest))
    return rows


def _common(
    summary: CaseSummary, analytic: Mapping[str, AnalyticValue], scale: float, rank: int, longest: int
) -> dict[str, Any]:
    """What every kind of table holds, at eigenvalues ``scale`` times larger than the summary's."""
    values = [analytic[one.name] for one in _STATISTICS]
    statistic = _rescaled(summary.statistic, scale, rank)
    variables = {
        "draws": np.int64(summary.draws),
        "mean": statistic.mean,
        "std": statistic.std,
        "standard_error": statistic.standard_error,
        "std_standard_error": statistic.std_standard_error,
        "quantile": statistic.quantile,
        "analytic_mean": _by_statistic(lambda one, k: one.rescale(values[k].mean, scale, rank)),
        "analytic_std": _by_statistic(lambda one, k: one.rescale_spread(values[k].std, scale)),
        "analytic_method": np.array([value.method for value in values], dtype=object),
        "eigenvalue_mean": _padded(summary.eigenvalue.mean * scale, longest),
        "eigenvalue_std": _padded(summary.eigenvalue.std * scale, longest),
        "eigenvalue_quantile": _padded(summary.eigenvalue.quantile * scale, longest),
        "bin_edge": summary.bin_edge * scale,
        "density": summary.density / scale,
        "density_standard_error": summary.density_standard_error / scale,
    }
    if summary.sample is not None:
        sample = summary.sample
        variables["sample"] = _by_statistic(lambda one, k: one.rescale(sample[k], scale, rank))
    return variables


def _rescaled(summary: SampleSummary, scale: float, rank: int) -> SampleSummary:
    """The summary of every statistic at eigenvalues ``scale`` times larger: exact, for each is monotone in it."""
    return SampleSummary(
        mean=_by_statistic(lambda one, k: one.rescale(summary.mean[k], scale, rank)),
        std=_by_statistic(lambda one, k: one.rescale_spread(summary.std[k], scale)),
        standard_error=_by_statistic(lambda one, k: one.rescale_spread(summary.standard_error[k], scale)),
        std_standard_error=_by_statistic(lambda one, k: one.rescale_spread(summary.std_standard_error[k], scale)),
        quantile=_by_statistic(lambda one, k: one.rescale(summary.quantile[k], scale, rank)),
    )


def _by_statistic(value: Callable[[Any, int], Any]) -> np.ndarray:
    return np.stack([np.asarray(value(one, k), dtype=float) for k, one in enumerate(_STATISTICS)])


def _padded(array: np.ndarray, longest: int) -> np.ndarray:
    missing = longest - len(array)
    return np.pad(array, [(0, missing)] + [(0, 0)] * (array.ndim - 1), constant_values=np.nan)


def _row(variables: Mapping[str, Any], schema: Mapping[str, Variable], longest: int) -> xr.Dataset:
    """One case: the schema names each variable's dims, case first; a row is the table without that dim."""
    row = xr.Dataset(
        {name: (schema[name].dims[1:], value) for name, value in variables.items()},
        coords={
            "statistic": [one.name for one in _STATISTICS],
            "symbol": ("statistic", [one.symbol for one in _STATISTICS]),
            "formula": ("statistic", [one.formula for one in _STATISTICS]),
            "convention": ("statistic", [one.convention for one in _STATISTICS]),
            "scaling": ("statistic", [str(one.scaling) for one in _STATISTICS]),
            "probability": np.array(PROBABILITIES),
            "index": np.arange(longest),
            "bin": np.arange(BINS),
            "edge": np.arange(BINS + 1),
        },
    )
    return row.assign_coords(draw=np.arange(row.sizes["draw"])) if "draw" in row.sizes else row
