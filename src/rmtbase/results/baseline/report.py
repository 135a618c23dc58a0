"""Statistics of a baseline table, on the terminal and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import xarray as xr

from rmtbase.report import Column, Heading, Item, Rows
from rmtbase.shown import last_place, to_place
from rmtbase.statistics import missing_moment

_QUANTILES = (0.025, 0.5, 0.975)  # shown where there is no mean, and always in JSON
_NO_METHOD = "none"


def as_json(table: xr.Dataset, path: Path) -> dict[str, Any]:
    """Convert the statistics of every case of a table to JSON values; None where no analytic value is known."""
    fields = ("mean", "standard_error", "std", "std_standard_error", "moment_order", "analytic_mean")
    fields += ("analytic_mean_tolerance", "analytic_std", "analytic_std_tolerance", "analytic_method")
    cases = []
    for place in range(table.sizes["case"]):
        case = table.isel(case=place)
        statistics = {}
        for name in case["statistic"].values.tolist():
            row = case.sel(statistic=name)
            values = {field: row[field].item() for field in fields}
            values["analytic_method"] = None if row["analytic_method"] == _NO_METHOD else values["analytic_method"]
            for p in _QUANTILES:
                for field in ("quantile", "quantile_standard_error"):
                    values[f"{field}_{p:g}"] = row[field].sel(probability=p).item()
            statistics[name] = values
        cases.append({**_case(case), "statistics": statistics})
    return {"file": str(path), "normalization": table.attrs.get("normalization", "none"), "cases": cases}


def report(table: xr.Dataset) -> Iterator[Item]:
    """Print each case's statistics: simulated values with standard errors, and analytic values.

    A line follows for each statistic without mean or variance: the reason, its median and its central 95 %.
    """
    yield Heading("Random matrices")
    numbers = map(Column, ("mean", "std. error", "sd", "error of sd", "analytic mean", "analytic sd"))
    columns = [Column("statistic", "left"), *numbers, Column("analytic value is", "left")]
    for place in range(table.sizes["case"]):
        case = table.isel(case=place)
        rows = []
        names = case["statistic"].values.tolist()
        for name in names:
            row = case.sel(statistic=name)
            mean, std = (_beside_analytic(row, moment) for moment in ("mean", "std"))
            known = "exact" if row["analytic_mean_tolerance"] == 0.0 else "approximate"
            known = "not known at this shape" if row["analytic_method"] == _NO_METHOD else known
            rows.append((name, *mean[:2], *std[:2], mean[2], std[2], known))
        yield Rows(columns, rows, title=_title(case))
        orders = case["moment_order"].values.tolist() if "moment_order" in case else [math.inf] * len(names)
        for name, order in zip(names, orders, strict=True):
            lacks = missing_moment(name, order)
            if lacks is not None:
                low, median, high = (_quantile(case.sel(statistic=name, probability=p)) for p in _QUANTILES)
                yield f"{lacks}; median {median}, 95 % from {low} to {high}"


def _beside_analytic(row: xr.Dataset, moment: str) -> tuple[str, str, str]:
    """Format a simulated moment to the second digit of its error, that error, and the analytic value."""
    error_name = "standard_error" if moment == "mean" else f"{moment}_standard_error"
    names = (moment, error_name, f"analytic_{moment}", f"analytic_{moment}_tolerance")
    value, error, analytic, tolerance = (row[name].item() for name in names)
    place, analytic_place = last_place(error), last_place(error, tolerance)
    if place is None or analytic_place is None:
        plain = ["" if math.isnan(number) else f"{number:.5g}" for number in (value, error, analytic)]
        return plain[0], plain[1], plain[2]
    return to_place(value, place), to_place(error, place, value), to_place(analytic, analytic_place)


def _quantile(row: xr.Dataset) -> str:
    """Format a quantile with its standard error, where the draws tell it."""
    value, error = (row[name].item() for name in ("quantile", "quantile_standard_error"))
    place = last_place(error)
    return f"{value:.5g}" if place is None else f"{to_place(value, place)} ± {to_place(error, place, value)}"


def _case(case: xr.Dataset) -> dict[str, Any]:
    names = ("d_model", "d_head", "sigma_q", "sigma_k") if case.attrs["kind"] == "baseline" else ("name",)
    return {name: case[name].item() for name in names}


def _title(case: xr.Dataset) -> str:
    facts, draws = _case(case), case["draws"].item() if "draws" in case else case.attrs["draws"]
    if "name" in facts:
        divided = f"normalization {case.attrs['normalization']}; " if "normalization" in case.attrs else ""
        return f"{facts['name']}; {divided}{draws} draws"
    return (
        f"W_QK at d_model {facts['d_model']}, d_head {facts['d_head']}, sigma {facts['sigma_q']:g}, "
        f"{facts['sigma_k']:g}; normalization {case.attrs['normalization']}; {draws} draws"
    )
