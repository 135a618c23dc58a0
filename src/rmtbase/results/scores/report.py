"""Summaries as tables for the terminal, and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import xarray as xr

from rmtbase.reasons import not_testable_json
from rmtbase.report import DETAILS, UNTESTED, Column, Heading, Item, Rows
from rmtbase.results.attributes import command_about
from rmtbase.results.scores._element_summary import summarize_elements
from rmtbase.results.scores._head_tests import LEVEL
from rmtbase.results.scores._heads import circuit_scores, circuits_of
from rmtbase.results.scores._why import Outcome, summarize_why
from rmtbase.results.scores.summary import HeadFinding, Summary, head_records, summarize_scores
from rmtbase.results.scores.words import compared
from rmtbase.statistics import SPECTRAL_STATISTICS
from rmtbase.tables import CIRCUITS
from rmtbase.words import plural

_LISTED = 12
_OUTCOMES = {Outcome.CAUSE: "cause", Outcome.REJECTED: "rejected", Outcome.NOT_REJECTED: "–"}


def report(tree: xr.DataTree) -> Iterator[Item]:
    """Give the answer in five lines; as details also the farthest heads, the statistics and the elements."""
    why, elements = summarize_why(tree), summarize_elements(tree)
    summaries = {name: summarize_scores(circuit_scores(tree, name)) for name in circuits_of(tree)}
    headings = {name: [Heading(CIRCUITS[name].symbol)] if len(summaries) > 1 else [] for name in summaries}
    yield Heading(f"{Heading.of_model(tree.attrs)}: {compared(tree)}")
    for name, summary in summaries.items():
        cause = ""
        if name == "qk" and why is not None:
            cause = why.answer()
        elif name == "qk" and summary.findings:
            cause = f"For the cause: {command_about(tree.attrs, 'score', '--why', 'all')}"
        yield from [*headings[name], *summary.answer(cause)]
    if elements is not None:
        yield elements.answer()
    yield DETAILS
    for name, summary in summaries.items():
        yield from [*headings[name], *summary.details(), *_farthest(summary)]
        if name == "qk" and why is not None:
            yield from why.sentences()
            if any(why.rejected.values()):
                columns = [Column("head", "left"), *(Column(test.replace("_", " ")) for test in why.tests)]
                rows = [
                    (row.name, *(_OUTCOMES.get(outcome, UNTESTED) for outcome in row.outcomes))
                    for row in why.rows[:_LISTED]
                ]
                yield from [Rows(columns, rows), *_more(len(why.rows), "head")]
    yield from () if elements is None else elements.sentences()
    yield f"Null: {tree.attrs['null']}; {tree.attrs['null_method']}; from {tree.attrs['table']}."


def _farthest(summary: Summary) -> Iterator[Item]:
    if not summary.findings:
        return

    def statistic(finding: HeadFinding) -> str:
        return ("ln " if SPECTRAL_STATISTICS[finding.statistic].on_log_scale else "") + finding.statistic

    yield Rows.of(
        summary.findings[:_LISTED],
        Column("layer", cell=lambda finding: f"{finding.stack} {finding.layer}".lstrip()),
        Column(summary.noun, cell=lambda finding: finding.head),
        Column("farthest statistic", "left", cell=statistic),
        Column("observed", form=".4g", cell=lambda finding: finding.observed),
        Column("null mean", form=".4g", cell=lambda finding: finding.null_mean),
        Column("null sd", form=".2g", cell=lambda finding: finding.null_std),
        Column("z", form="+.1f", cell=lambda finding: math.copysign(finding.distance, finding.z_score)),
        Column("q", cell=lambda finding: f"{'≤ ' if finding.at_floor else ''}{finding.omnibus_q_value:.2g}"),
        Column("moved share", form=".1%", cell=lambda finding: finding.how_much.moved_share),
        Column("equal axes", form=".1%", cell=lambda finding: finding.how_much.moved_share_equal_axes),
        named=3,
    )
    yield from _more(len(summary.findings), summary.noun)


def _more(count: int, noun: str) -> list[str]:
    more = count - _LISTED
    return [f"and {more} more {plural(more, noun)}; the scores file holds all of them"] if more > 0 else []


def as_json(tree: xr.DataTree) -> dict[str, Any]:
    """Return the summaries of W_QK, of further circuits (``circuits``) and of ``elements`` as plain data."""
    summaries = {name: _summary_json(circuit_scores(tree, name)) for name in circuits_of(tree)}
    plain = summaries.pop("qk") | ({"circuits": summaries} if summaries else {})
    if (elements := summarize_elements(tree)) is not None:
        plain["elements"] = {
            "n_matrices": elements.n_matrices,
            "n_differing": elements.n_differing if elements.n_matrices else None,
            "not_testable": not_testable_json(elements.not_testable),
            "initialization": elements.initialization,
            "flagged": elements.flagged,
            "super_weights": list(map(_finite, elements.super_weights)),
            "without_tail": not_testable_json(elements.without_tail),
            "sentences": elements.sentences(),
        }
    if (why := summarize_why(tree)) is not None:
        plain["why"] = {
            "with_named_cause": why.n_named,
            "wrong_share_of_named": LEVEL,
            "rejected": why.rejected,
            "testable": why.testable,
            "verdicts": why.verdicts,
            "detectable": why.missed,
        }
    return plain


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    """Replace numbers that are not finite by null: those of an element whose matrix has no fit."""
    unknown = [key for key, value in row.items() if isinstance(value, float) and not math.isfinite(value)]
    return row | dict.fromkeys(unknown)


def _summary_json(tree: xr.DataTree) -> dict[str, Any]:
    summary, findings = summarize_scores(tree), []
    for finding in summary.findings:
        plain, usual = finding._asdict() | finding.how_much._asdict(), {"stack": "", "noun": "head"}
        hidden = {"how_much", "distance", *(name for name, value in usual.items() if plain[name] == value)}
        findings.append({name: value for name, value in plain.items() if name not in hidden})
    return {
        "n_heads": summary.n_heads,
        "false_discovery_rate": summary.level,
        "flagged": summary.flagged,
        "not_tested_by": {name: reason.words for name, reason in summary.unscored.items()},
        "not_testable": not_testable_json(summary.not_testable),
        "heads": head_records(tree),
        "findings": findings,
        "warnings": list(summary.warnings),
        "sentences": summary.sentences(),
    }
