"""Statistics of a baseline table, on the terminal and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import xarray as xr

from rmtbase.report import Column, Heading, Item, Rows
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
    columns = {
        "statistic": Column("statistic", "left"),
        "mean": Column("mean", form=".8g"),
        "standard_error": Column("std. error", form=".2g"),
        "std": Column("sd", form=".5g"),
        "analytic_mean": Column("analytic mean", form=".8g"),
        "analytic_std": Column("analytic sd", form=".5g"),
        "analytic_method": Column("analytic value is", "left"),
    }
    for place in range(table.sizes["case"]):
        case = table.isel(case=place)
        *values, methods = (case[field].values.tolist() for field in columns)
        rows = list(zip(*values, map(_short, methods), strict=True))
        yield Rows(list(columns.values()), rows, title=_title(case))
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
            low, median, high = (case["quantile"].sel(statistic=name, probability=p).item() for p in _QUANTILES)
            yield f"{lacks}; median {median:.5g}, 95 % from {low:.5g} to {high:.5g}"


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
