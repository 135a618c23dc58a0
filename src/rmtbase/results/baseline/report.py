"""Statistics of a baseline table, on the terminal and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import xarray as xr

from rmtbase.report import Column, Heading, Item, Rows, number_text
from rmtbase.statistics import missing_moment

_QUANTILES = (0.025, 0.5, 0.975)  # shown where there is no mean, and always in JSON


def as_json(table: xr.Dataset, path: Path) -> dict[str, Any]:
    """Convert the statistics of every case of a table to JSON values."""
    fields = ("mean", "std", "standard_error", "moment_order", "analytic_mean", "analytic_std", "analytic_method")
    fields = tuple(field for field in fields if field in table)
    cases = []
    for place in range(table.sizes["case"]):
        case = table.isel(case=place)
        statistics = {
            name: {field: _known(case[field].sel(statistic=name).item()) for field in fields}
            | {f"quantile_{p:g}": case["quantile"].sel(statistic=name, probability=p).item() for p in _QUANTILES}
            for name in table["statistic"].values.tolist()
        }
        cases.append({**_case(case), "statistics": statistics})
    return {"file": str(path), "normalization": table.attrs.get("normalization", "none"), "cases": cases}


def report(table: xr.Dataset) -> Iterator[Item]:
    """Print each case's statistics: simulated values with standard errors, analytic values and their method."""
    yield Heading("Random matrices")
    numbers = (("mean", 8), ("standard_error", 2), ("std", 5), ("analytic_mean", 8), ("analytic_std", 5))
    columns = [Column("statistic", "left"), *map(Column, ("mean", "std. error", "sd", "analytic mean", "analytic sd"))]
    columns.append(Column("analytic value is", "left"))
    for place in range(table.sizes["case"]):
        case = table.isel(case=place)
        rows = []
        for name in table["statistic"].values.tolist():
            one = case.sel(statistic=name)
            texts = (number_text(one[field].item(), digits) for field, digits in numbers)
            rows.append((name, *texts, _short(str(one["analytic_method"].item()))))
        yield Rows(columns, rows, title=_title(case))
        yield from _without_moments(case)


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
            low, median, high = (
                number_text(case["quantile"].sel(statistic=name, probability=p).item(), 5) for p in _QUANTILES
            )
            yield f"{lacks}; median {median}, 95 % from {low} to {high}"


def _title(case: xr.Dataset) -> str:
    facts, draws = _case(case), case["draws"].item() if "draws" in case else case.attrs["draws"]
    if "name" in facts:
        return f"{facts['name']}; {draws} draws"
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
