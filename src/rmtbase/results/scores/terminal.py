"""Summaries as tables for the terminal, and as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rich.console import Console

from rmtbase.results.scores._element_summary import ElementsSummary
from rmtbase.results.scores._why import WhySummary
from rmtbase.results.scores.summary import HeadFinding, Summary
from rmtbase.statistics import SPECTRAL_STATISTICS
from rmtbase.tables import Circuit, not_testable_json
from rmtbase.terminal.rows import Column, number_text, print_rows
from rmtbase.terminal.streams import cell

_LISTED = 12
_LONGEST_LINE = 100_000  # characters: all heads of a large model that differ from the null are named


def print_summary(summary: Summary, title: str, console: Console, why: WhySummary | None = None) -> None:
    """Print the scores in words, and the farthest heads as a table with z of the logarithm if the name says so.

    The causes come first, if they were requested.
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
            number_text(finding.observed, 4),
            number_text(finding.null_mean, 4),
            number_text(finding.null_std, 2),
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
    """Print the causes for each head, if they were requested and any test rejected."""
    if summary is None or not any(summary.rejected.values()):
        return
    columns = [Column("head", "left"), *(Column(name.replace("_", " ")) for name in summary.tests)]
    marks = {1.0: "rejected", 0.0: "–"}
    rows = [(name, *(marks.get(each, "?") for each in rejected)) for name, rejected, _ in summary.rows[:_LISTED]]
    print_rows(console, columns, rows, named=1)
    if len(summary.rows) > _LISTED:
        console.print(f"and {len(summary.rows) - _LISTED} more heads; a scores file holds all of them")


def print_elements(summary: ElementsSummary | None, console: Console) -> None:
    """Print the scores of elements in words, if matrices were scored."""
    for line in () if summary is None else summary.sentences():
        console.print(cell(line, longest=_LONGEST_LINE))


def summaries_json(
    summaries: Mapping[Circuit, Summary], of_elements: ElementsSummary | None, of_why: WhySummary | None = None
) -> dict[str, Any]:
    """Return the summaries of W_QK, of further circuits (``circuits``) and of ``elements`` as plain data.

    The key ``why`` holds the summary of the group ``/why``: the numbers of heads that each test rejects and can decide,
    the heads with each verdict, and the smallest effects that the tests find.
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
    """Return a summary as plain data; numbers of an element whose matrix has no fit are null if not finite."""
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
    """Return a finding as plain data; with its stack if the model has several, and its noun if not ``head``."""
    plain = finding._asdict()
    return {name: value for name, value in plain.items() if (name, value) not in {("stack", ""), ("noun", "head")}}
