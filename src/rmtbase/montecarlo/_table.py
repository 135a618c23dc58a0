"""Table of a finished run: simulated and analytic values side by side, as an xarray dataset."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float64
from numpy.typing import NDArray

from rmtbase import statistics, tables
from rmtbase.ensembles import Ensemble
from rmtbase.laws import BINS, PROBABILITIES, GaussianChain, histogram_edges, logarithmic_edges, naive_marchenko_pastur
from rmtbase.laws import low_rank_product as low_rank_product_law
from rmtbase.linalg import DTYPE
from rmtbase.montecarlo._analytic import (
    UNKNOWN,
    AnalyticValue,
    element_density,
    element_moment_order,
    element_values,
    extreme_moments,
    head_shape,
    spectral_law,
    spectral_values,
)
from rmtbase.montecarlo._elements import require_element_ensemble
from rmtbase.montecarlo._machine import numerics_record
from rmtbase.montecarlo._plan import DRAWS_VERSION, Case, Plan, product_width
from rmtbase.montecarlo._summary import CaseSummary, DrawSource, SpectrumSummary, summarize_elements, summarize_spectra

_STATISTICS = tuple(statistics.SPECTRAL_STATISTICS.values())
_TOLERANCES = ("analytic_mean_tolerance", "analytic_std_tolerance")
_WORDS = "low_rank_product: W_QK = W_Q^T W_K, i.i.d. Gaussian factors of shape (d_head, d_model)"

Columns = Mapping[str, NDArray[Any]]
Variables = dict[str, Any]
ByStatistic = Float64[np.ndarray, "statistic ..."]

_DATA_FRAME = (
    "for a data frame use rmtbase.tables.to_pandas(table), or choose variables that share their dimensions: "
    "table[['eigenvalue_mean', 'eigenvalue_std']].to_dataframe(); without a choice all dimensions are crossed"
)


def make_table(source: DrawSource, numerics: Mapping[str, Any], self_normalize: bool = False) -> xr.Dataset:
    plan = source.plan
    names = [case.ensemble.name for case in plan.cases]
    record = numerics_record({"draws_version": DRAWS_VERSION, "names": names, **numerics}, plan.precision)
    shared = {
        "title": plan.title,
        "description": plan.description,
        "normalization": plan.normalization,
        "precision": plan.precision,
        "plan_hash": plan.hash,
        "provenance": tables.provenance(plan.record(), numerics=record | {"statistics_dtype": DTYPE}),
    }
    if plan.measure == "elements":
        return element_table(source, shared)
    if plan.is_baseline:
        kind = {"kind": "baseline", "ensemble": _WORDS}
        columns = _head_columns((*_shape(case), *pair) for case in plan.cases for pair in case.sigmas)
        return _joined(plan, _baseline_rows(source), columns, tables.BASELINE_SCHEMA, kind, shared)
    rows, kind = _spectra_rows(source, self_normalize), {"kind": "spectra", "ensemble": plan.ensemble}
    return _joined(plan, rows, _spectra_columns(plan), tables.SPECTRA_SCHEMA, kind, shared)


def element_table(source: DrawSource, shared: Mapping[str, Any]) -> xr.Dataset:
    plan = source.plan
    coordinates = _coordinates(tables.ELEMENT_FORMULAS, {"formula": tables.ELEMENT_FORMULAS.values()}, plan.bins)
    rows = []
    for number, case in enumerate(plan.cases):
        summary, share_outside = summarize_elements(source, number)
        orders = np.array([element_moment_order(case.ensemble, name) for name in tables.ELEMENT_FORMULAS])
        analytic = _analytic(element_values(case.ensemble, summary.bin_edge), tables.ELEMENT_FORMULAS)
        density = {"density_law": element_density(case.ensemble, summary.bin_edge)}
        variables = _variables(summary, orders, analytic) | density | share_outside
        rows.append(_row(variables, coordinates, tables.ELEMENTS_SCHEMA))
    ensembles = [require_element_ensemble(case.ensemble) for case in plan.cases]
    n_rows, n_columns = np.array([ensemble.element_shape for ensemble in ensembles]).T
    # The columns of a baseline table for W_QK (at σ = 1), and NaN for other ensembles.
    shapes = [head_shape(ensemble) for ensemble in ensembles]
    columns = _head_columns((np.nan,) * 4 if shape is None else (*shape, 1.0, 1.0) for shape in shapes)
    columns = {"name": _names(plan), "n_rows": n_rows, "n_columns": n_columns, **columns}
    return _joined(plan, rows, columns, tables.ELEMENTS_SCHEMA, {"kind": "elements"}, shared)


def _names(plan: Plan) -> NDArray[Any]:
    return np.array([case.ensemble.name for case in plan.cases], dtype=object)


def _head_columns(rows: Iterable[tuple[float, ...]]) -> Columns:
    names = ("d_model", "d_head", "sigma_q", "sigma_k")
    return dict(zip(names, map(np.array, zip(*rows, strict=True)), strict=True))


def _spectra_columns(plan: Plan) -> Columns:
    parameters = [case.parameters for case in plan.cases]
    columns = {"name": _names(plan), "rank": np.array([case.ensemble.rank for case in plan.cases])}
    for key in dict.fromkeys(key for mapping in parameters for key in mapping):
        column = [mapping.get(key) for mapping in parameters]
        numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in column)
        words = ["" if value is None else str(value) for value in column]
        columns[f"parameter_{key}"] = np.array(column) if numbers else np.array(words, dtype=object)
    return columns


def _shape(case: Case) -> tuple[int, int]:
    shape = head_shape(case.ensemble)
    assert shape is not None  # the ensembles of a baseline are of W_QK
    return shape


def _baseline_rows(source: DrawSource) -> list[xr.Dataset]:
    plan, rows = source.plan, []
    longest, coordinates = _longest(plan)
    for number, case in enumerate(plan.cases):
        d, h = _shape(case)
        unscaled_edges = histogram_edges(d, h)
        raw = summarize_spectra(source, number, lambda _, edges=unscaled_edges: edges, self_normalize=True)
        assert raw.own_scaled is not None  # it was asked for
        analytic_values = _analytic(spectral_values(case.ensemble), statistics.SPECTRAL_STATISTICS)
        for sigma_q, sigma_k in case.sigmas:
            scale = (sigma_q * sigma_k) ** 2 / (d if plan.normalization == "sqrt_d" else 1)
            summary = _rescaled(raw, scale, h)
            edges, shape = summary.bin_edge, (d, h, sigma_q, sigma_k, plan.normalization)
            law, naive = low_rank_product_law(*shape), naive_marchenko_pastur(*shape)
            analytic = _moved_analytic(analytic_values, scale, h)
            variables = _spectrum_variables(summary, case.ensemble, analytic, longest) | {
                **_self_normalized(raw.own_scaled, longest, scale),
                "density_marchenko_pastur": np.diff(naive.cdf(edges)) / np.diff(edges),
                "density_free": np.diff(law.cdf(edges)) / np.diff(edges),
                "edge_lower": np.float64(law.support[0]),
                "edge_upper": np.float64(law.support[1]),
            }
            if raw.sigma_estimate is not None:
                own_q, own_k = raw.sigma_estimate
                variables |= {"sigma_q_estimate": own_q * sigma_q, "sigma_k_estimate": own_k * sigma_k}
            rows.append(_row(variables, coordinates, tables.BASELINE_SCHEMA))
    return rows


def _spectra_rows(source: DrawSource, self_normalize: bool) -> list[xr.Dataset]:
    rows = []
    longest, coordinates = _longest(source.plan)
    for number, case in enumerate(source.plan.cases):
        law = spectral_law(case.ensemble)
        chain = law if self_normalize and isinstance(law, GaussianChain) else None
        bins = logarithmic_edges if chain is None else lambda _, dims=chain.dims: histogram_edges(dims=dims)
        summary = summarize_spectra(source, number, bins, self_normalize)
        edges = summary.bin_edge
        analytic = _analytic(spectral_values(case.ensemble), statistics.SPECTRAL_STATISTICS)
        lower, upper = (np.nan, np.nan) if law is None else law.support
        width, rank = product_width(case.ensemble), case.ensemble.rank
        scale = 1 / width if width and source.plan.normalization == "sqrt_d" else 1.0
        if scale != 1.0:
            summary, analytic = _rescaled(summary, scale, rank), _moved_analytic(analytic, scale, rank)
        variables = _spectrum_variables(summary, case.ensemble, analytic, longest) | {
            "density_law": np.full(BINS, np.nan) if law is None else np.diff(law.cdf(edges)) / np.diff(edges) / scale,
            "edge_lower": np.float64(lower * scale),
            "edge_upper": np.float64(upper * scale),
        }
        if summary.own_scaled is not None and summary.sigma_estimate is not None:
            variables |= _self_normalized(summary.own_scaled, longest, scale)
            variables["scale_estimate"] = np.prod(summary.sigma_estimate**2, axis=0)
        rows.append(_row(variables, coordinates, tables.SPECTRA_SCHEMA))
    return rows


def _longest(plan: Plan) -> tuple[int, Variables]:
    longest = max(case.ensemble.rank for case in plan.cases)
    fields = ("symbol", "formula", "convention", "scaling")
    words = {name: [str(getattr(statistic, name)) for statistic in _STATISTICS] for name in fields}
    return longest, _coordinates(statistics.SPECTRAL_STATISTICS, words, BINS) | {"index": np.arange(longest)}


def _coordinates(names: Iterable[str], words: Mapping[str, Iterable[str]], bins: int) -> Variables:
    return {
        "statistic": list(names),
        **{name: ("statistic", list(column)) for name, column in words.items()},
        "probability": np.array(PROBABILITIES),
        "bin": np.arange(bins),
        "edge": np.arange(bins + 1),
    }


def _analytic(by_name: Mapping[str, AnalyticValue], names: Iterable[str]) -> Variables:
    values = [by_name.get(name, UNKNOWN) for name in names]
    columns = dict(zip(AnalyticValue._fields, zip(*values, strict=True), strict=True))
    return {
        f"analytic_{name}": np.array(column, dtype=object if name == "method" else float)
        for name, column in columns.items()
    }


def _variables(summary: CaseSummary, orders: Float64[np.ndarray, " statistic"], extra: Variables) -> Variables:
    """Variables of every kind of table, with further ones; ``orders`` are the smallest orders of infinite moments."""
    return {
        "draws": np.int64(summary.draws),
        **summary.statistic.of_finite_moments(orders)._asdict(),
        "moment_order": orders,
        **extra,
        "bin_edge": summary.bin_edge,
        "density": summary.density,
        "density_standard_error": summary.density_standard_error,
        **({} if summary.sample is None else {"sample": summary.sample}),
    }


def _spectrum_variables(summary: SpectrumSummary, ensemble: Ensemble, analytic: Variables, longest: int) -> Variables:
    extremes = extreme_moments(ensemble)
    orders = statistics.moment_orders(extremes, ensemble.rank)
    ordered = summary.eigenvalue.of_finite_moments(statistics.eigenvalue_moment_orders(extremes, ensemble.rank))
    named = ordered._asdict()
    named["mean_standard_error"] = named.pop("standard_error")
    padded = {f"eigenvalue_{name}": _padded(values, longest) for name, values in named.items()}
    return _variables(summary, orders, analytic | padded)


def _self_normalized(own_scaled: statistics.SampleSummary, longest: int, scale: float = 1.0) -> Variables:
    name = "eigenvalue_quantile_self_normalized"
    return {
        name: _padded(own_scaled.quantile * scale, longest),
        f"{name}_standard_error": _padded(own_scaled.quantile_standard_error * scale, longest),
    }


def _padded(array: Float64[np.ndarray, "rank ..."], longest: int) -> Float64[np.ndarray, "{longest} ..."]:
    missing = longest - len(array)
    return np.pad(array, [(0, missing)] + [(0, 0)] * (array.ndim - 1), constant_values=np.nan)


def _rescaled(summary: SpectrumSummary, scale: float, rank: int) -> SpectrumSummary:
    """Rescale the summary to eigenvalues ``scale`` times larger: exact, as each statistic is monotone in the scale."""
    fields = summary.statistic._asdict()  # all but the mean and the quantiles are spreads
    moved = {name: _moved(field, scale, rank * (name in ("mean", "quantile"))) for name, field in fields.items()}
    return replace(
        summary,
        statistic=statistics.SampleSummary(**moved),
        bin_edge=summary.bin_edge * scale,
        density=summary.density / scale,
        density_standard_error=summary.density_standard_error / scale,
        sample=None if summary.sample is None else _moved(summary.sample, scale, rank),
        eigenvalue=statistics.SampleSummary(*(field * scale for field in summary.eigenvalue)),
    )


def _moved_analytic(analytic: Variables, scale: float, rank: int) -> Variables:
    moved = {name: _moved(analytic[name], scale) for name in ("analytic_std", *_TOLERANCES)}
    return analytic | moved | {"analytic_mean": _moved(analytic["analytic_mean"], scale, rank)}


def _moved(values: ByStatistic, scale: float, rank: int = 0) -> ByStatistic:
    return statistics.rescale_statistics(values.T, scale, rank).T


def _row(variables: Variables, coordinates: Variables, schema: Mapping[str, tables.Variable]) -> xr.Dataset:
    row = xr.Dataset({name: (schema[name].dims[1:], value) for name, value in variables.items()}, coords=coordinates)
    return row.assign_coords(draw=np.arange(row.sizes["draw"])) if "draw" in row.sizes else row


def _joined(
    plan: Plan,
    rows: list[xr.Dataset],
    columns: Columns,
    schema: Mapping[str, tables.Variable],
    kind: Mapping[str, str],
    shared: Mapping[str, Any],
) -> xr.Dataset:
    table = xr.concat(rows, dim="case", data_vars="all", coords="minimal", compat="override", join="exact")
    table = table.assign_coords({name: ("case", column) for name, column in columns.items()})
    table.attrs = {
        "schema_version": tables.SCHEMA_VERSION,
        **kind,
        "draws": max(plan.draws),
        "seed": plan.seed,
        "rmtbase_version": tables.software_version(),
        "comment": _DATA_FRAME,
        **shared,
    }
    return tables.describe(table, schema)
