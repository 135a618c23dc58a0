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


def as_json(table: xr.Dataset, path: Path) -> dict[str, Any]:
    """Convert the statistics of every case of a table to JSON values."""
    fields = ("mean", "standard_error", "std", "std_standard_error", "moment_order", "analytic_mean")
    fields += ("analytic_mean_tolerance", "analytic_std", "analytic_std_tolerance", "analytic_method")
    cases = []
    for place in range(table.sizes["case"]):
        case = table.isel(case=place)
        statistics = {
            name: {field: _known(case[field].sel(statistic=name).item()) for field in fields}
            | {
                f"{field}_{p:g}": case[field].sel(statistic=name, probability=p).item()
                for p in _QUANTILES
                for field in ("quantile", "quantile_standard_error")
            }
            for name in table["statistic"].values.tolist()
        }
        cases.append({**_case(case), "statistics": statistics})
    return {"file": str(path), "normalization": table.attrs.get("normalization", "none"), "cases": cases}


def report(table: xr.Dataset) -> Iterator[Item]:
    """Print each case's statistics: simulated values with standard errors, analytic values and their method."""
    yield Heading("Random matrices")
    columns = [Column("statistic", "left"), Column("mean"), Column("std. error"), Column("sd"), Column("error of sd")]
    columns += [Column("analytic mean"), Column("analytic sd"), Column("analytic value is", "left")]
    for place in range(table.sizes["case"]):
        case = table.isel(case=place)
        rows = []
        for name, method in zip(
            *(case[field].values.tolist() for field in ("statistic", "analytic_method")), strict=True
        ):
            mean, std = (_beside_analytic(case.sel(statistic=name), moment) for moment in ("mean", "std"))
            rows.append((name, *mean[:2], *std[:2], mean[2], std[2], _short(method)))
        yield Rows(columns, rows, title=_title(case))
        yield from _without_moments(case)


def _beside_analytic(row: xr.Dataset, moment: str) -> tuple[str, str, str]:
    """Format a simulated moment to the second digit of its error, that error, and the analytic value beside it.

    The analytic value has as many digits, or as many as are known.
    """
    error_name = "standard_error" if moment == "mean" else f"{moment}_standard_error"
    names = (moment, error_name, f"analytic_{moment}", f"analytic_{moment}_tolerance")
    value, error, analytic, tolerance = (row[name].item() for name in names)
    place, analytic_place = last_place(error), last_place(error, tolerance)
    if place is None or analytic_place is None:
        plain = ["" if math.isnan(number) else f"{number:.5g}" for number in (value, error, analytic)]
        return plain[0], plain[1], plain[2]
    return to_place(value, place), to_place(error, place, value), to_place(analytic, analytic_place)


def _case(case: xr.Dataset) -> dict[str, Any]:
    """Return the values that identify a case."""
    if case.attrs["kind"] == "baseline":
        return {name: case[name].item() for name in ("d_model", "d_head", "sigma_q", "sigma_k")}
    return {"name": case["name"].item()}


def _without_moments(case: xr.Dataset) -> Iterator[str]:
    """Yield a line for each statistic without mean or variance: the reason, its median and its central 95 %."""
    if "moment_order" not in case:
        return
    for name, order in zip(case["statistic"].values.tolist(), case["moment_order"].values.tolist(), strict=True):
        lacks = missing_moment(name, order)
        if lacks is not None:
            low, median, high = (_quantile(case, name, p) for p in _QUANTILES)
            yield f"{lacks}; median {median}, 95 % from {low} to {high}"


def _quantile(case: xr.Dataset, statistic: str, probability: float) -> str:
    """Format a quantile with its standard error, where the draws tell it."""
    names = ("quantile", "quantile_standard_error")
    value, error = (case[name].sel(statistic=statistic, probability=probability).item() for name in names)
    place = last_place(error)
    return f"{value:.5g}" if place is None else f"{to_place(value, place)} ± {to_place(error, place, value)}"


def _title(case: xr.Dataset) -> str:
    facts, draws = _case(case), case["draws"].item() if "draws" in case else case.attrs["draws"]
    if "name" in facts:
        divided = f"normalization {case.attrs['normalization']}; " if "normalization" in case.attrs else ""
        return f"{facts['name']}; {divided}{draws} draws"
    return (
        f"W_QK at d_model {facts['d_model']}, d_head {facts['d_head']}, sigma {facts['sigma_q']:g}, "
        f"{facts['sigma_k']:g}; normalization {case.attrs['normalization']}; {draws} draws"
    )


def _known(value: Any) -> Any:
    """Return a value or method of a table, with None for the method "none"."""
    return None if value == "none" else value


def _short(method: str) -> str:
    """Shorten the method of a value: its accuracy, which is in the file, is left out."""
    if method == "none":
        return "not known at this shape"
    return method.partition(";")[0].partition(":")[0]
