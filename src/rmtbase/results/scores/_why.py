"""Causes of a head's difference from random heads: tests of four questions, and a verdict from the answers.

A cause is named only if the test whose null excludes it rejects, in one family of all heads and questions: of the heads
with a named cause at most 5 % are expected to have a wrong one (:func:`decide`). A test that does not reject names
no cause; ``detectable`` gives the effects that it could miss.
"""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import NamedTuple

import numpy as np
import xarray as xr

from rmtbase.errors import ParameterError
from rmtbase.heads.read_sites import sites_of
from rmtbase.models import WeightMatrices
from rmtbase.nulls import Null
from rmtbase.parameters import require_independent_entries
from rmtbase.progress import NotedOnce, Progress
from rmtbase.results.scores import _head_tests as head_tests
from rmtbase.results.scores._head_tests import ENTRY_TESTS, PValues
from rmtbase.results.scores._heads import layer_coordinates
from rmtbase.results.scores._scores_tree import Scope, scores_tree
from rmtbase.results.scores.schema import WHY_SCHEMA
from rmtbase.results.scores.words import templates
from rmtbase.tables import QK, describe, layer_names
from rmtbase.words import counted

_FACTORS = {"query": "W_Q", "key": "W_K"}


class CauseTest(NamedTuple):
    question: str  # question that ``why`` can ask
    hypothesis: str  # null hypothesis
    effect: str = ""  # effect whose smallest detectable size is reported


TESTS = {name: CauseTest(**test) for name, test in templates()["tests"].items()}  # in the order of reports
QUESTIONS = tuple(dict.fromkeys(test.question for test in TESTS.values()))
"""Questions that ``why`` can ask."""

_SHOWN_VERDICTS = 3  # verdicts that the answer names
_RELATIONS = {"axes": "along the head axes", "subspaces": "in what they read"}
NOTHING = "no difference found"
NOT_TESTABLE = "not testable"
TOO_FEW_DRAWS = "cannot tell with so few draws"


def require_tests(names: Sequence[str] | str, null: Null) -> tuple[str, ...]:
    """Return the tests of the named questions, in the order of :data:`TESTS`; ``"all"`` stands for all questions."""
    questions = [names] if isinstance(names, str) else list(names)
    if questions:
        require_independent_entries(null.initialization, "why")
    for name in questions:
        if name not in (*QUESTIONS, "all"):
            raise ParameterError("why", name, f"some of {', '.join(QUESTIONS)}, or all")
    return tuple(name for name, test in TESTS.items() if {"all", test.question} & set(questions))


def with_why(
    tree: xr.DataTree, model: WeightMatrices, null: Null, tests: Sequence[str], progress: Progress
) -> xr.DataTree:
    """Add the group ``/why`` to a model's scores against ``null``, and notes on tests that the model does not allow."""
    results, notes = dict[str, PValues](), []
    makers = {
        partial(_of_product, tree): ("gaussian",),
        head_tests.of_spectra: ("query", "key", "joint"),
        head_tests.of_resampled_heads: tuple(name for name, test in TESTS.items() if test.effect),
    }
    for make, names in makers.items():
        chosen = [name for name in tests if name in names]
        try:
            results |= make(model, chosen, null, progress) if chosen else {}
        except ParameterError as error:
            notes.append(f"why: not testable by {', '.join(chosen)}: {error}")
    order = [name for name in tests if name in results]
    if not order:
        raise ParameterError("why", list(tests), f"a test that the model allows ({'; '.join(notes)})")
    if any(name in order and directions not in order for name, directions in ENTRY_TESTS.items()):
        notes.append("why: elements are named as a cause only where directions are tested, too; ask both questions")
    tree["why"] = _group(model, {name: results[name] for name in order})
    for note in notes:
        progress.detail(note)
    tree.attrs["notes"] = json.dumps([*json.loads(tree.attrs["notes"]), *notes])
    return tree


def _of_product(
    tree: xr.DataTree, model: WeightMatrices, tests: Sequence[str], null: Null, progress: Progress
) -> dict[str, PValues]:
    """Return omnibus p-values against independent entries, which scores may have already."""
    if null.independent is not null:
        seen = [line for name in ("notes", "warnings") for line in json.loads(tree.attrs[name])]
        tree = scores_tree(model, "why", Scope(null.independent), NotedOnce(progress, seen))
    group = tree["null"].to_dataset()
    floors = group["p_value_floor"].values if "p_value_floor" in group else tree.attrs.get("p_value_floor", np.nan)
    smallest = float(np.max(floors)) / (1.0 if tree.attrs["null_method"] == "analytic" else 2.0)
    p_value = tree["heads"].to_dataset()["omnibus_p_value"].values
    return {name: PValues(p_value, np.full(p_value.shape, smallest)) for name in tests}


def _group(model: WeightMatrices, results: Mapping[str, PValues]) -> xr.Dataset:
    order, sites = list(results), [model.sites[index] for index in sites_of(model, QK)]
    shape = results[order[0]].p_value.shape
    p_value, floor, detectable = (
        np.stack([np.broadcast_to(values, shape) for values in of_tests], axis=-1)
        for of_tests in zip(*results.values(), strict=True)
    )
    decisions = head_tests.decide(results, head_tests.direction_gates(model) if ENTRY_TESTS.keys() & set(order) else {})
    verdicts = np.full(shape, "", dtype=object)
    for layer, site in enumerate(sites):
        for head in range(site.n_heads):
            at = layer, head
            rejected = dict(zip(order, decisions.rejected[at].tolist(), strict=True))
            named = {name for name, names in zip(order, decisions.named[at].tolist(), strict=True) if names}
            verdicts[at] = verdict(rejected, named, np.array(order)[~np.isnan(p_value[at])].tolist())
    variables = {
        "p_value": p_value,
        **decisions._asdict(),
        "named": decisions.named.astype(np.int8),
        "detectable": detectable,
        "p_value_floor": floor,
        "verdict": verdicts.astype(str),
    }
    dataset = xr.Dataset(
        {name: (WHY_SCHEMA[name].dims, values) for name, values in variables.items()},
        {
            **layer_coordinates([site.place for site in sites]),
            "head": np.arange(shape[1]),
            "test": order,
            "meaning": ("test", [TESTS[name].hypothesis for name in order]),
            "effect": ("test", [TESTS[name].effect for name in order]),
        },
    )
    return describe(dataset, WHY_SCHEMA)


def verdict(rejected: Mapping[str, float], named: Collection[str], testable: Collection[str]) -> str:
    """State the decisions of one head in words: its named causes, or by what it differs for an unresolved cause."""
    if not testable:
        return NOT_TESTABLE
    directions = [factor for name, factor in _FACTORS.items() if f"{name}_signs" in named]
    entries = [factor for name, factor in _FACTORS.items() if f"{name}_entries" in named]
    related = [words for name, words in _RELATIONS.items() if name in named]
    causes = [
        f"directions in {' and '.join(directions)}" if directions else "",
        f"W_Q and W_K are related {' and '.join(related)}" if related else "",
        f"elements of {' and '.join(entries)} are not independent draws of the initial law" if entries else "",
    ]
    if any(causes):
        return "; ".join(filter(None, causes))
    rejecting = {name for name, value in rejected.items() if value == 1.0}
    if "signs" in rejecting:
        return "W_QK has a direction; whether of W_Q, of W_K or of their relation is unresolved"
    either = [factor for name, factor in _FACTORS.items() if f"{name}_entries" in rejecting]
    unresolved = [factor for name, factor in _FACTORS.items() if name in rejecting and factor not in either]
    differing = [
        f"{_differ(either)}, cannot tell whether by directions or by the law of the elements" if either else "",
        f"{_differ(unresolved)}, cause unresolved" if unresolved else "",
    ]
    if any(differing) or {"gaussian", "joint"} & rejecting:
        return "; ".join(filter(None, differing)) or "the head differs, cause unresolved"
    if any(math.isnan(rejected[name]) for name in testable):
        return TOO_FEW_DRAWS
    return NOTHING if len(testable) == len(rejected) else f"{NOTHING}, not all tests can tell"


def _differ(factors: Sequence[str]) -> str:
    return f"{' and '.join(factors)} {'differ' if len(factors) > 1 else 'differs'}"


class Outcome(StrEnum):
    CAUSE = "rejected, names a cause"
    REJECTED = "rejected, names no cause"
    NOT_REJECTED = "not rejected"
    UNDECIDED = "cannot tell"


class HeadDecisions(NamedTuple):
    name: str
    outcomes: tuple[Outcome, ...]  # one for each test
    verdict: str


@dataclass(frozen=True)
class WhySummary:
    tests: tuple[str, ...]
    meanings: dict[str, str]  # null hypothesis of each test
    rejected: dict[str, int]  # number of heads that each test rejects, in its family
    testable: dict[str, int]  # number of heads that each test could decide
    n_named: int  # number of heads with a named cause, of which at most 5 % are expected to have a wrong one
    verdicts: dict[str, tuple[str, ...]]  # every verdict with the heads that have it, the most frequent first
    rows: tuple[HeadDecisions, ...]
    missed: dict[str, float]  # effects, and the median over heads of the smallest size found with probability 0.95

    @property
    def n_heads(self) -> int:
        return len(self.rows)

    def answer(self) -> str:
        parts = [f"{words} ({len(names)})" for words, names in self.verdicts.items()]
        others = sum(map(len, [*self.verdicts.values()][_SHOWN_VERDICTS:]))
        parts = parts[:_SHOWN_VERDICTS] + ([f"others ({others})"] if others else [])
        line = f"Cause, with the number of heads: {'; '.join(parts)}."
        control = " At most 5 % of the heads with a named cause are expected to have a wrong one."
        return line + control if self.n_named else line

    def control(self) -> str:
        naming = any(name in head_tests.NAMING for name in self.tests)
        wrong = "of the heads with a named cause, at most 5 % are expected to have a wrong one; " if naming else ""
        return (
            f"Errors: {wrong}of the heads that differ for an unresolved cause, at most 5 % are expected to be random."
        )

    def sentences(self) -> list[str]:
        heads = counted(self.n_heads, "head")
        lines = [f"{len(names)} of {heads}: {words}." for words, names in self.verdicts.items()]
        lines.append(self.control())
        decided = [name for name in self.tests if self.testable[name]]
        counts = ", ".join(f"{name} {self.rejected[name]} of {self.testable[name]}" for name in decided)
        undecided = ", ".join(name for name in self.tests if not self.testable[name])
        lines += [f"Heads rejected by each test, of those that it can decide on: {counts}."] if decided else []
        lines += [f"Cannot decide on any head: {undecided}."] if undecided else []
        sizes = "; ".join(f"{effect} below {size:.2g}" for effect, size in self.missed.items())
        return lines + ([f"Smaller effects are missed in more than 5 % of heads: {sizes}."] if sizes else [])


def summarize_why(scores: xr.DataTree) -> WhySummary | None:
    """Summarize the group ``/why``; None if the scores tree has none."""
    if "why" not in scores.children:
        return None
    group = scores["why"].to_dataset().transpose("layer", "head", "test", ...)
    tests = tuple(map(str, group["test"].values))
    rejected, named = group["rejected"].values, group["named"].values.astype(bool)
    cases = {Outcome.CAUSE: named, Outcome.REJECTED: rejected == 1.0, Outcome.NOT_REJECTED: rejected == 0.0}
    outcomes = np.select([*cases.values()], [*cases], Outcome.UNDECIDED)
    names, verdicts, rows = layer_names(group), dict[str, list[str]](), []
    for (layer, head), words in np.ndenumerate(group["verdict"].values):
        if words:  # the head exists
            name = f"{names[layer]} head {group['head'].values[head]}"
            verdicts.setdefault(str(words), []).append(name)
            rows.append(HeadDecisions(name, tuple(map(Outcome, outcomes[layer, head].tolist())), str(words)))
    sizes = group["detectable"].values.reshape(-1, len(tests))
    known = np.flatnonzero(~np.isnan(sizes).all(axis=0))
    counts = [mask.sum(axis=(0, 1)).tolist() for mask in (rejected == 1.0, ~np.isnan(rejected))]
    return WhySummary(
        tests=tests,
        meanings=dict(zip(tests, group["meaning"].values.tolist(), strict=True)),
        rejected=dict(zip(tests, counts[0], strict=True)),
        testable=dict(zip(tests, counts[1], strict=True)),
        n_named=sum(Outcome.CAUSE in row.outcomes for row in rows),
        verdicts={words: tuple(heads) for words, heads in sorted(verdicts.items(), key=lambda item: -len(item[1]))},
        rows=tuple(rows),
        missed={str(group["effect"].values[k]): float(np.nanmedian(sizes[:, k])) for k in known.tolist()},
    )
