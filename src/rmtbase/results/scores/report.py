"""Summaries as tables for the terminal, and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import xarray as xr

from rmtbase.report import Column, Heading, Item, Rows
from rmtbase.results.scores._element_summary import ElementsSummary, summarize_elements
from rmtbase.results.scores._heads import circuit_scores, circuits_of
from rmtbase.results.scores._why import WhySummary, summarize_why
from rmtbase.results.scores.summary import HeadFinding, Summary, summarize_scores
from rmtbase.statistics import SPECTRAL_STATISTICS
from rmtbase.tables import CIRCUITS, not_testable_json
from rmtbase.terminal.endings import detail

_LISTED = 12
_LONGEST_LINE = 100_000  # characters: all heads of a large model that differ from the null are named


def report(tree: xr.DataTree) -> Iterator[Item]:
    """Print the scores of a model: the heads of each circuit, the causes if these were asked for, and the elements."""
    attributes, why = tree.attrs, summarize_why(tree)
    detail(f"null: {attributes['null']}; {attributes['null_method']}; from {attributes['table']}")
    title = Heading.of_model(attributes)
    names = circuits_of(tree)
    for name in names:
        circuit = CIRCUITS[name]
        named = f"{title}: {circuit.symbol}" if len(names) > 1 else title
        summary = summarize_scores(circuit_scores(tree, name))
        yield from _summary_items(summary, named, why if name == "qk" else None)
    yield from _why_items(why)
    yield from _element_items(summarize_elements(tree))


def _summary_items(summary: Summary, title: str, why: WhySummary | None = None) -> Iterator[Item]:
    """Yield the scores in words, and the farthest heads as a table with z of the logarithm if the name says so.

    The causes come first, if they were requested.
    """
    yield Heading(title)
    yield from [*([] if why is None else why.sentences()), *summary.overview()]
    if not summary.findings:
        return
    listed, left_out = summary.findings[:_LISTED], len(summary.findings[_LISTED:])
    columns = [
        Column("layer"),
        Column(summary.noun),
        Column("farthest statistic", "left"),
        Column("observed", form=".4g"),
        Column("null mean", form=".4g"),
        Column("null sd", form=".2g"),
        Column("z", form="+.1f"),
        *map(Column, ("q", "above edge", "below edge")),
    ]
    rows = [
        (
            f"{finding.stack} {finding.layer}".lstrip(),
            finding.head,
            f"{'ln ' if SPECTRAL_STATISTICS[finding.statistic].on_log_scale else ''}{finding.statistic}",
            finding.observed,
            finding.null_mean,
            finding.null_std,
            math.copysign(finding.distance, finding.z_score),
            f"{'≤ ' if finding.at_floor else ''}{finding.omnibus_q_value:.2g}",
            finding.outliers_above,
            finding.outliers_below,
        )
        for finding in listed
    ]
    yield Rows(columns, rows, named=3)
    if left_out:
        heads = summary.noun if left_out == 1 else f"{summary.noun}s"
        yield f"and {left_out} more {heads}; the scores file holds all of them"


def _why_items(summary: WhySummary | None) -> Iterator[Item]:
    """Print the causes for each head, if they were requested and any test rejected."""
    if summary is None or not any(summary.rejected.values()):
        return
    columns = [Column("head", "left"), *(Column(name.replace("_", " ")) for name in summary.tests)]
    marks = {1.0: "rejected", 0.0: "–"}
    rows = [(name, *(marks.get(each, "?") for each in rejected)) for name, rejected, _ in summary.rows[:_LISTED]]
    yield Rows(columns, rows, named=1)
    if len(summary.rows) > _LISTED:
        yield f"and {len(summary.rows) - _LISTED} more heads; the scores file holds all of them"


def _element_items(summary: ElementsSummary | None) -> Iterator[Item]:
    """Print the scores of elements in words, if matrices were scored."""
    yield from () if summary is None else summary.sentences()


def as_json(tree: xr.DataTree) -> dict[str, Any]:
    """Return the summaries of W_QK, of further circuits (``circuits``) and of ``elements`` as plain data.

    The key ``why`` holds the summary of the group ``/why``: the numbers of heads that each test rejects and can decide,
    the heads with each verdict, and the smallest effects that the tests find.
    """
    summaries = {name: _summary_json(summarize_scores(circuit_scores(tree, name))) for name in circuits_of(tree)}
    first, *others = summaries
    elements, why = summarize_elements(tree), summarize_why(tree)
    return (
        summaries[first]
        | ({"circuits": {name: summaries[name] for name in others}} if others else {})
        | ({} if elements is None else {"elements": _elements_json(elements)})
        | ({} if why is None else {"why": _why_json(why)})
    )


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
    plain, usual = finding._asdict(), {("stack", ""), ("noun", "head"), ("distance", finding.distance)}
    return {name: value for name, value in plain.items() if (name, value) not in usual}
