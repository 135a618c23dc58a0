"""The table of a finished run: simulated and analytic values side by side, as an xarray dataset."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float64

from rmtbase.laws import low_rank_product as low_rank_product_law
from rmtbase.laws import naive_marchenko_pastur
from rmtbase.linalg import DTYPE
from rmtbase.montecarlo._analytic import UNKNOWN, AnalyticValue, head_shape, spectral_law, spectral_values
from rmtbase.montecarlo._element_table import element_table
from rmtbase.montecarlo._machine import numerics_record
from rmtbase.montecarlo._plan import DRAWS_VERSION, Plan
from rmtbase.montecarlo._summary import (
    CaseSummary,
    DrawSource,
    blocks,
    join_rows,
    make_row,
    summarize_case,
)
from rmtbase.nulls import BINS, PROBABILITIES, histogram_edges, logarithmic_edges
from rmtbase.statistics import SPECTRAL_STATISTICS, SampleSummary
from rmtbase.tables import BASELINE_SCHEMA, SPECTRA_SCHEMA, provenance

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
    record = numerics_record(
        {"draws_version": DRAWS_VERSION, "names": [ensemble.name for ensemble in plan.ensembles], **numerics},
        plan.precision,
    )
    shared = {
        "title": plan.title,
        "description": plan.description,
        "normalization": plan.normalization,
        "precision": plan.precision,
        "plan_hash": plan.hash,
        "provenance": provenance(plan.record(), numerics=record | {"statistics_dtype": DTYPE}),
    }
    if plan.measure == "elements":
        readings = [partial(blocks, source, case) for case in range(len(plan.cases))]
        return element_table(plan.ensembles, readings, plan.seed, keep_sample=plan.keep_sample, attributes=shared)
    own = {"draws": max(plan.draws), "seed": plan.seed}
    if plan.is_baseline:
        own = {"kind": "baseline", "ensemble": _WORDS} | own
        return join_rows(_baseline_rows(source), _baseline_coordinates(plan), BASELINE_SCHEMA, own, shared)
    own = {"kind": "spectra", "ensemble": plan.ensemble} | own
    return join_rows(_spectra_rows(source), _spectra_coordinates(plan), SPECTRA_SCHEMA, own, shared)


_WORDS = "low_rank_product: W_QK = W_Q^T W_K, i.i.d. Gaussian factors of shape (d_head, d_model)"


def _baseline_cases(plan: Plan, number: int) -> list[Case]:
    """The rows of one shape, one for each σ."""
    shape = head_shape(plan.ensembles[number])
    assert shape is not None  # the ensembles of a baseline are of W_QK
    return [Case(*shape, *pair) for pair in plan.case_sigmas(number)]


def _baseline_coordinates(plan: Plan) -> dict[str, np.ndarray]:
    cases = [case for number in range(len(plan.cases)) for case in _baseline_cases(plan, number)]
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


def _baseline_rows(source: DrawSource) -> list[xr.Dataset]:
    plan, rows = source.plan, []
    for number, ensemble in enumerate(plan.ensembles):
        cases = _baseline_cases(plan, number)
        edges = histogram_edges(cases[0].d_model, cases[0].d_head)
        summary = summarize_case(source, number, lambda _, edges=edges: edges, self_normalize=True)
        known = spectral_values(ensemble)
        rows += [_baseline_row(summary, known, case, plan.normalization, _longest(plan)) for case in cases]
    return rows


def _baseline_row(
    summary: CaseSummary, known: Mapping[str, AnalyticValue], case: Case, normalization: str, longest: int
) -> xr.Dataset:
    d, h = case.d_model, case.d_head
    scale = (case.sigma_q * case.sigma_k) ** 2 / (d if normalization == "sqrt_d" else 1)
    edges = summary.bin_edge * scale
    sigmas = (case.sigma_q, case.sigma_k)
    law = low_rank_product_law(d, h, *sigmas, normalization)  # type: ignore[arg-type]
    naive = naive_marchenko_pastur(d, h, *sigmas, normalization)  # type: ignore[arg-type]
    assert summary.own_quantile is not None  # it was asked for
    variables = _common(summary, known, scale, h, longest) | {
        "eigenvalue_quantile_self_normalized": _padded(summary.own_quantile * scale, longest),
        "density_marchenko_pastur": np.diff(naive.cdf(edges)) / np.diff(edges),
        "density_free": np.diff(law.cdf(edges)) / np.diff(edges),
        "edge_lower": np.float64(law.support[0]),
        "edge_upper": np.float64(law.support[1]),
    }
    if summary.sigma_estimate is not None:
        own_q, own_k = summary.sigma_estimate
        variables |= {"sigma_q_estimate": own_q * case.sigma_q, "sigma_k_estimate": own_k * case.sigma_k}
    return make_row(variables, _row_coordinates(longest), BASELINE_SCHEMA)


def _spectra_rows(source: DrawSource) -> list[xr.Dataset]:
    longest, rows = _longest(source.plan), []
    for number, ensemble in enumerate(source.plan.ensembles):
        summary = summarize_case(source, number, logarithmic_edges)
        law = spectral_law(ensemble)
        nothing = np.full(BINS, np.nan)
        density = nothing if law is None else np.diff(law.cdf(summary.bin_edge)) / np.diff(summary.bin_edge)
        variables = _common(summary, spectral_values(ensemble), 1.0, ensemble.rank, longest) | {
            "density_law": density,
            "edge_lower": np.float64(np.nan if law is None else law.support[0]),
            "edge_upper": np.float64(np.nan if law is None else law.support[1]),
        }
        rows.append(make_row(variables, _row_coordinates(longest), SPECTRA_SCHEMA))
    return rows


def _common(
    summary: CaseSummary, known: Mapping[str, AnalyticValue], scale: float, rank: int, longest: int
) -> dict[str, Any]:
    """What every kind of table holds, at eigenvalues ``scale`` times larger than the summary's."""
    values = [known.get(one.name, UNKNOWN) for one in _STATISTICS]
    variables = {
        "draws": np.int64(summary.draws),
        **_rescaled(summary.statistic, scale, rank),
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


_POSITIONS = ("mean", "quantile")  # the other fields of a summary are spreads


def _rescaled(summary: SampleSummary, scale: float, rank: int) -> dict[str, Float64[np.ndarray, "statistic ..."]]:
    """The summary of every statistic at eigenvalues ``scale`` times larger: exact, for each is monotone in it."""
    return {
        name: _by_statistic(
            lambda one, k, values=values, name=name: (
                one.rescale(values[k], scale, rank) if name in _POSITIONS else one.rescale_spread(values[k], scale)
            )
        )
        for name, values in summary._asdict().items()
    }


def _by_statistic(value: Callable[[Any, int], Any]) -> Float64[np.ndarray, "statistic ..."]:
    return np.stack([np.asarray(value(one, k), dtype=float) for k, one in enumerate(_STATISTICS)])


def _longest(plan: Plan) -> int:
    return max(ensemble.rank for ensemble in plan.ensembles)


def _padded(array: Float64[np.ndarray, "rank ..."], longest: int) -> Float64[np.ndarray, "{longest} ..."]:
    missing = longest - len(array)
    return np.pad(array, [(0, missing)] + [(0, 0)] * (array.ndim - 1), constant_values=np.nan)


def _row_coordinates(longest: int) -> dict[str, Any]:
    return {
        "statistic": [one.name for one in _STATISTICS],
        "symbol": ("statistic", [one.symbol for one in _STATISTICS]),
        "formula": ("statistic", [one.formula for one in _STATISTICS]),
        "convention": ("statistic", [one.convention for one in _STATISTICS]),
        "scaling": ("statistic", [str(one.scaling) for one in _STATISTICS]),
        "probability": np.array(PROBABILITIES),
        "index": np.arange(longest),
        "bin": np.arange(BINS),
        "edge": np.arange(BINS + 1),
    }
