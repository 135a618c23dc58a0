"""Summaries as tables for the terminal, and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import xarray as xr

from rmtbase.report import DETAILS, UNTESTED, Column, Heading, Item, Rows
from rmtbase.results.attributes import command_about
from rmtbase.results.scores._cause_families import LEVEL
from rmtbase.results.scores._element_summary import ElementsSummary, summarize_elements
from rmtbase.results.scores._heads import circuit_scores, circuits_of
from rmtbase.results.scores._null_words import compared
from rmtbase.results.scores._why import WhySummary, summarize_why
from rmtbase.results.scores.summary import HeadFinding, Summary, head_records, summarize_scores
from rmtbase.statistics import SPECTRAL_STATISTICS
from rmtbase.tables import CIRCUITS, not_testable_json, plural

_LISTED = 12


def report(tree: xr.DataTree) -> Iterator[Item]:
    """Give the answer in five lines; as details also the farthest heads, the statistics and the elements."""
    why, elements = summarize_why(tree), summarize_elements(tree)
    summaries = {name: summarize_scores(circuit_scores(tree, name)) for name in circuits_of(tree)}
    yield Heading(f"{Heading.of_model(tree.attrs)}: {compared(tree)}")
    for name, summary in summaries.items():
        if len(summaries) > 1:
            yield Heading(CIRCUITS[name].symbol)
        cause = ""
        if name == "qk" and (why is not None or summary.findings):
            cause = (
                f"For the cause: {command_about(tree.attrs, 'score', '--why', 'all')}" if why is None else why.answer()
            )
        yield from summary.answer(cause)
    if elements is not None:
        yield elements.answer()
    yield DETAILS
    for name, summary in summaries.items():
        if len(summaries) > 1:
            yield Heading(CIRCUITS[name].symbol)
        yield from [*summary.details(), *_farthest(summary), *(_why_items(why) if name == "qk" else ())]
    yield from () if elements is None else elements.sentences()
    yield f"Null: {tree.attrs['null']}; {tree.attrs['null_method']}; from {tree.attrs['table']}."


def _farthest(summary: Summary) -> Iterator[Item]:
    """Yield the farthest heads as a table, with z of the logarithm if the name says so."""
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
        Column("q"),
        Column("moved share", form=".1%"),
        Column("equal axes", form=".1%"),
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
            finding.how_much.moved_share,
            finding.how_much.moved_share_equal_axes,
        )
        for finding in listed
    ]
    yield Rows(columns, rows, named=3)
    if left_out:
        yield f"and {left_out} more {plural(left_out, summary.noun)}; the scores file holds all of them"


def _why_items(summary: WhySummary | None) -> Iterator[Item]:
    """Yield what each test of the causes found, if any was requested."""
    if summary is None:
        return
    yield from summary.sentences()
    if not any(summary.rejected.values()):
        return
    columns = [Column("head", "left"), *(Column(name.replace("_", " ")) for name in summary.tests)]
    marks = {1.0: "rejected", 0.0: "–"}
    rows = [
        (head.name, *("cause" if names else marks.get(rejects, UNTESTED) for rejects, names in head.marks()))
        for head in summary.rows[:_LISTED]
    ]
    yield Rows(columns, rows, named=1)
    if len(summary.rows) > _LISTED:
        yield f"and {len(summary.rows) - _LISTED} more heads; the scores file holds all of them"


def as_json(tree: xr.DataTree) -> dict[str, Any]:
    """Return the summaries of W_QK, of further circuits (``circuits``) and of ``elements`` as plain data.

    The key ``why`` holds the summary of the group ``/why``: the number of heads with a named cause and the expected
    share of wrong ones among them, the numbers of heads that each test rejects and can decide, the heads with each
    verdict, and the smallest effects that the tests find.
    """
    summaries = {name: _summary_json(circuit_scores(tree, name)) for name in circuits_of(tree)}
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
        "with_named_cause": summary.n_named,
        "wrong_share_of_named": LEVEL,
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


def _summary_json(tree: xr.DataTree) -> dict[str, Any]:
    summary = summarize_scores(tree)
    return {
        "n_heads": summary.n_heads,
        "false_discovery_rate": summary.level,
        "flagged": summary.flagged,
        "not_tested_by": summary.unscored,
        "not_testable": not_testable_json(summary.not_testable),
        "heads": head_records(tree),
        "findings": [_finding_json(finding) for finding in summary.findings],
        "warnings": list(summary.warnings),
        "sentences": summary.sentences(),
    }


def _finding_json(finding: HeadFinding) -> dict[str, Any]:
    """Return a finding as plain data; with its stack if the model has several, and its noun if not ``head``."""
    plain, usual = finding._asdict(), {("stack", ""), ("noun", "head"), ("distance", finding.distance)}
    plain |= plain.pop("how_much")._asdict()
    return {name: value for name, value in plain.items() if (name, value) not in usual}
