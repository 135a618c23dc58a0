"""Tables for the terminal, and the same as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import xarray as xr
from rich.console import Console

from rmtbase.cli._rows import Column, print_rows
from rmtbase.cli._terminal import cell
from rmtbase.scoring import ElementsSummary, HeadFinding, Summary, WhySummary, not_testable_json
from rmtbase.statistics import SPECTRAL_STATISTICS, missing_moment
from rmtbase.tables import Circuit

_LISTED = 12
_QUANTILES = (0.025, 0.5, 0.975)  # that are shown where there is no mean, and in JSON always
_LONGEST_LINE = 100_000  # characters: the heads of a large model that left the null are all named


def table_json(table: xr.Dataset, path: Path) -> dict[str, Any]:
    """The statistics of every case of a table."""
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


def print_table(table: xr.Dataset, console: Console) -> None:
    """Each case's statistics: simulated with standard error, analytic, and how the latter is known."""
    numbers = (("mean", 8), ("standard_error", 2), ("std", 5), ("analytic_mean", 8), ("analytic_std", 5))
    columns = [Column("statistic", "left"), *map(Column, ("mean", "std. error", "sd", "analytic mean", "analytic sd"))]
    columns.append(Column("analytic value is", "left"))
    for place in range(table.sizes["case"]):
        case = table.isel(case=place)
        rows = []
        for name in table["statistic"].values.tolist():
            one = case.sel(statistic=name)
            texts = (_number(one[field].item(), digits) for field, digits in numbers)
            rows.append((name, *texts, _short(str(one["analytic_method"].item()))))
        print_rows(console, columns, rows, title=_title(case))
        for line in _without_moments(case):
            console.print(cell(line))


def print_summary(summary: Summary, title: str, console: Console, why: WhySummary | None = None) -> None:
    """The scores in words, and the farthest heads as a table: z is of the logarithm where the statistic is named so.

    Why heads left the null comes first, where that was asked.
    """
    console.print(cell(title, "bold"))
    for line in [*([] if why is None else why.sentences()), *summary.overview()]:
        console.print(cell(line, longest=_LONGEST_LINE))
    if not summary.findings:
        return
    listed, left_out = summary.findings[:_LISTED], len(summary.findings[_LISTED:])
    columns = [Column("layer"), Column(summary.noun), Column("farthest statistic", "left")]
    columns += map(Column, ("observed", "null mean", "null sd", "z", "q", "above edge", "below edge"))
    rows = [
        (
            f"{finding.stack} {finding.layer}".lstrip(),
            str(finding.head),
            f"{'ln ' if SPECTRAL_STATISTICS[finding.statistic].on_log_scale else ''}{finding.statistic}",
            _number(finding.observed, 4),
            _number(finding.null_mean, 4),
            _number(finding.null_std, 2),
            f"{math.copysign(finding.distance, finding.z_score):+.1f}",
            f"{'≤ ' if finding.at_floor else ''}{finding.omnibus_q_value:.2g}",
            str(finding.outliers_above),
            str(finding.outliers_below),
        )
        for finding in listed
    ]
    print_rows(console, columns, rows, named=3)
    if left_out:
        heads = summary.noun if left_out == 1 else f"{summary.noun}s"
        console.print(f"and {left_out} more {heads}; a scores file and its CSV hold all of them")


def print_why(summary: WhySummary | None, console: Console) -> None:
    """Print the causes of each head, where that was asked and any test rejected."""
    if summary is None or not any(summary.rejected.values()):
        return
    columns = [Column("head", "left"), *(Column(name.replace("_", " ")) for name in summary.tests)]
    marks = {1.0: "rejected", 0.0: "–"}
    rows = [(name, *(marks.get(each, "?") for each in rejected)) for name, rejected, _ in summary.rows[:_LISTED]]
    print_rows(console, columns, rows, named=1)
    if len(summary.rows) > _LISTED:
        console.print(f"and {len(summary.rows) - _LISTED} more heads; a scores file holds all of them")


def print_elements(summary: ElementsSummary | None, console: Console) -> None:
    """The scores of elements in words, where matrices were scored."""
    for line in () if summary is None else summary.sentences():
        console.print(cell(line, longest=_LONGEST_LINE))


def summaries_json(
    summaries: Mapping[Circuit, Summary], of_elements: ElementsSummary | None, of_why: WhySummary | None = None
) -> dict[str, Any]:
    """The summary of W_QK as plain data, under ``circuits`` those of further ones, under ``elements`` of elements.

    Under ``why`` that of the group ``/why``: how many heads each test rejects, of how many that it can tell about, the
    heads of each verdict, and the smallest effects that the tests find.
    """
    first, *others = summaries
    further = {circuit.name: _summary_json(summaries[circuit]) for circuit in others}
    elements = {} if of_elements is None else {"elements": _elements_json(of_elements)}
    why = {} if of_why is None else {"why": _why_json(of_why)}
    return _summary_json(summaries[first]) | ({"circuits": further} if further else {}) | elements | why


def _why_json(summary: WhySummary) -> dict[str, Any]:
    return {
        "rejected": summary.rejected,
        "testable": summary.testable,
        "verdicts": summary.verdicts,
        "detectable": dict(summary.missed),
    }


def _elements_json(summary: ElementsSummary) -> dict[str, Any]:
    """Numbers that are none, of an element whose matrix has no fit, as null."""
    extremes = [
        {name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in one.items()}
        for one in summary.super_weights
    ]
    return {
        "n_matrices": summary.n_matrices,
        "n_differing": summary.n_differing if summary.n_matrices else None,
        "not_testable": not_testable_json(summary.not_testable),
        "initialization": summary.initialization,
        "flagged": summary.flagged,
        "super_weights": extremes,
        "without_tail": not_testable_json(summary.without_tail),
        "sentences": summary.sentences(),
    }


def _summary_json(summary: Summary) -> dict[str, Any]:
    return {
        "n_heads": summary.n_heads,
        "false_discovery_rate": summary.level,
        "flagged": summary.flagged,
        "not_tested_by": summary.unscored,
        "not_testable": not_testable_json(summary.not_testable),
        "findings": [_finding_json(finding) for finding in summary.findings],
        "warnings": list(summary.warnings),
        "sentences": summary.sentences(),
    }


def _finding_json(finding: HeadFinding) -> dict[str, Any]:
    """A finding; its stack where a model has several, and what it is of where that is no head."""
    plain = finding._asdict()
    return {name: value for name, value in plain.items() if (name, value) not in {("stack", ""), ("noun", "head")}}


def _case(case: xr.Dataset) -> dict[str, Any]:
    """What tells the case from others."""
    if case.attrs["kind"] == "baseline":
        return {name: case[name].item() for name in ("d_model", "d_head", "sigma_q", "sigma_k")}
    return {"name": case["name"].item()}


def _without_moments(case: xr.Dataset) -> Iterator[str]:
    """Of each statistic that has no mean or no variance: why, its median and where 95 % of it lie."""
    if "moment_order" not in case:
        return
    for name, order in zip(case["statistic"].values.tolist(), case["moment_order"].values.tolist(), strict=True):
        lacks = missing_moment(name, order)
        if lacks is not None:
            low, median, high = (
                _number(case["quantile"].sel(statistic=name, probability=p).item(), 5) for p in _QUANTILES
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


def _number(value: float, digits: int) -> str:
    return "" if math.isnan(value) else f"{value:.{digits}g}"


def _known(value: Any) -> Any:
    """A value of a table, or how it is known: None where there is no way."""
    return None if value == "none" else value


def _short(method: str) -> str:
    """How a value is known, without its accuracy, which is in the file."""
    if method == "none":
        return "not known at this shape"
    return method.partition(";")[0].partition(":")[0]
