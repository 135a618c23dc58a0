"""Causes of a head's difference from random heads: tests of three questions, and a verdict from the answers.

Does the spectrum agree with independent entries of the initial law (*spectrum*, *entries*)? Is there any structure
beyond the sizes of single weights (*directions*)? Are W_Q and W_K related (*relation*)? A cause is named only if the
test whose null excludes it rejects, in one family of all heads and questions: of the heads with a named cause at most
5 % are expected to have a wrong one (``_cause_families``). A test that does not reject names no cause; ``detectable``
gives the effects that it could miss.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float

from rmtbase.errors import ParameterError
from rmtbase.heads.read_sites import sites_of
from rmtbase.models import WeightMatrices
from rmtbase.nulls import Null
from rmtbase.progress import Progress
from rmtbase.results.scores._cause_families import ENTRY_TESTS, NAMING, decide
from rmtbase.results.scores._head_tests import Found, direction_gates, of_resampled_heads, of_spectra
from rmtbase.results.scores._heads import layer_coordinates
from rmtbase.results.scores.schema import WHY_SCHEMA
from rmtbase.tables import CIRCUITS, describe, layer_names

TESTS: Mapping[str, str] = MappingProxyType(
    {
        "gaussian": "the spectrum of W_QK is that of independent entries of the initial law",
        "query": "the spectrum of W_Q is that of independent normal entries",
        "key": "the spectrum of W_K is that of independent normal entries",
        "joint": "the spectra of W_QK, W_Q and W_K and the angles between what they read, all at once, are those of "
        "independent normal entries",
        "query_entries": "the elements of W_Q are independent, of one variance and of the initial law",
        "key_entries": "the elements of W_K are independent, of one variance and of the initial law",
        "query_signs": "W_Q has no direction beyond the sizes of its weights: random signs make as large an eigenvalue",
        "key_signs": "W_K has no direction beyond the sizes of its weights: random signs make as large an eigenvalue",
        "signs": "W_QK has no direction beyond the sizes of the weights of W_Q and W_K",
        "axes": "W_Q and W_K are unrelated along the head axes: signed permutations of the axes change nothing",
        "subspaces": "W_Q and W_K read unrelated subspaces: random signs of W_K change no angles",
    }
)
"""Null hypothesis of each test, in the order of reports."""

QUESTIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "spectrum": ("gaussian", "query", "key", "joint"),
        "entries": ("query_entries", "key_entries"),
        "directions": ("query_signs", "key_signs", "signs"),
        "relation": ("axes", "subspaces"),
    }
)
"""Tests of each question that ``why`` can ask."""

EFFECTS: Mapping[str, str] = MappingProxyType(
    {
        "query_entries": "excess kurtosis of the elements of W_Q",
        "key_entries": "excess kurtosis of the elements of W_K",
        "query_signs": "share of ‖W_Q‖²_F in one direction",
        "key_signs": "share of ‖W_K‖²_F in one direction",
        "signs": "share of ‖W_QK‖²_F in one direction",
        "axes": "relative excess of ‖W_QK‖²_F over permuted axes",
        "subspaces": "excess of the mean cos² of the angles between what W_Q and W_K read",
    }
)
"""Effect whose smallest detectable size is reported, by test."""

_VERDICTS = 3  # verdicts that the answer names
NOTHING = "no difference found"
NOT_TESTABLE = "not testable"
TOO_FEW_DRAWS = "cannot tell with so few draws"


def require_tests(names: Sequence[str] | str) -> tuple[str, ...]:
    """Return the tests of the named questions, in the order of :data:`TESTS`; ``"all"`` stands for all questions."""
    wanted: set[str] = set()
    for name in [names] if isinstance(names, str) else names:
        if name not in (*QUESTIONS, "all"):
            raise ParameterError("why", name, f"some of {', '.join(QUESTIONS)}, or all")
        wanted |= set(TESTS) if name == "all" else set(QUESTIONS[name])
    return tuple(name for name in TESTS if name in wanted)


def with_why(
    tree: xr.DataTree,
    null: Null,
    model: WeightMatrices,
    tests: Sequence[str],
    scores_by: Callable[[Null, Progress], xr.DataTree],
    progress: Progress,
) -> xr.DataTree:
    """Add the group ``/why`` to a model's scores against ``null``; ``scores_by`` scores it against another null."""
    told = _NewNotes(progress, {line for name in ("notes", "warnings") for line in json.loads(tree.attrs[name])})

    def of_product() -> Found:
        scored = tree if null.independent is null else scores_by(null.independent, told)
        group = scored["null"].to_dataset()
        floors = (
            group["p_value_floor"].values if "p_value_floor" in group else scored.attrs.get("p_value_floor", np.nan)
        )
        smallest = float(np.max(floors))
        smallest = smallest if str(scored.attrs["null_method"]) == "analytic" else smallest / 2.0
        p_value = scored["heads"].to_dataset()["omnibus_p_value"].values
        return Found(p_value, np.full(p_value.shape, smallest))

    tree["why"], notes = why(model, tests, of_product, null.initialization, null.draws, null.seed, progress)
    for note in notes:
        progress.detail(note)
    tree.attrs["notes"] = json.dumps([*json.loads(tree.attrs["notes"]), *notes])
    return tree


class _NewNotes(NamedTuple):
    """Progress that passes on each note only once."""

    of: Progress
    told: set[str]

    def bar(self, label: str, total: int) -> Callable[[int], None]:
        return self.of.bar(label, total)

    def note(self, line: str) -> None:
        if line not in self.told:
            self.told.add(line)
            self.of.note(line)

    def detail(self, line: str) -> None:
        if line not in self.told:
            self.told.add(line)
            self.of.detail(line)


def why(
    model: WeightMatrices,
    tests: Sequence[str],
    of_product: Callable[[], Found],
    entries: str,
    draws: int | None,
    seed: int,
    progress: Progress,
) -> tuple[xr.Dataset, list[str]]:
    """Make the group ``/why`` of a scores file, and notes on tests that the model does not allow."""
    found: dict[str, Found] = {}
    notes = []
    for names, make in (
        (("gaussian",), lambda wanted: {"gaussian": of_product()}),
        (("query", "key", "joint"), lambda wanted: of_spectra(model, wanted, entries, draws, seed, progress)),
        (tuple(EFFECTS), lambda wanted: of_resampled_heads(model, wanted, entries, draws, seed, progress)),
    ):
        wanted = [name for name in tests if name in names]
        try:
            found |= make(wanted) if wanted else {}
        except ParameterError as error:
            notes.append(f"why: not testable by {', '.join(wanted)}: {error}")
    order = [name for name in tests if name in found]
    sites = [model.sites[index] for index in sites_of(model, CIRCUITS["qk"])]
    if not order:
        raise ParameterError("why", list(tests), f"a test that the model allows ({'; '.join(notes)})")
    p_value = {name: found[name].p_value for name in order}
    floor = {name: found[name].floor for name in order}
    shape = p_value[order[0]].shape
    decisions = decide(p_value, floor, direction_gates(model) if ENTRY_TESTS.keys() & set(order) else {})
    if any(name in order and directions not in order for name, directions in ENTRY_TESTS.items()):
        notes.append("why: elements are named as a cause only where directions are tested, too; ask both questions")
    verdicts = np.full(shape, "", dtype=object)
    for layer, site in enumerate(sites):
        for head in range(site.n_heads):
            at = layer, head
            tested = [not math.isnan(p_value[name][at]) for name in order]
            rejected = dict(zip(order, decisions.rejected[at].tolist(), strict=True))
            named = {name for name, names in zip(order, decisions.named[at].tolist(), strict=True) if names}
            verdicts[at] = verdict(rejected, named, [name for name, p in zip(order, tested, strict=True) if p])

    def by_test(values: Mapping[str, np.ndarray]) -> Float[np.ndarray, "layer head test"]:
        return np.stack([values[name] for name in order], axis=-1)

    dims = ("layer", "head", "test")
    dataset = xr.Dataset(
        {
            "p_value": (dims, by_test(p_value)),
            "q_value": (dims, decisions.q_value),
            "yekutieli_q_value": (dims, decisions.yekutieli_q_value),
            "holm_p_value": (dims, decisions.holm_p_value),
            "rejected": (dims, decisions.rejected),
            "named": (dims, decisions.named.astype(np.int8)),
            "detectable": (dims, by_test({name: np.broadcast_to(found[name].detectable, shape) for name in order})),
            "p_value_floor": (dims, by_test(floor)),
            "verdict": (dims[:2], verdicts.astype(str)),
        },
        {
            **layer_coordinates([site.place for site in sites]),
            "head": np.arange(shape[1]),
            "test": order,
            "meaning": ("test", [TESTS[name] for name in order]),
            "effect": ("test", [EFFECTS.get(name, "") for name in order]),
        },
    )
    return describe(dataset, WHY_SCHEMA), notes


@dataclass(frozen=True)
class WhySummary:
    """Summary of the group ``/why`` of a scores file."""

    tests: tuple[str, ...]  # names of the tests
    rejected: dict[str, int]  # number of heads that each test rejects, in its family
    testable: dict[str, int]  # number of heads that each test could decide
    n_heads: int  # number of heads
    n_named: int  # number of heads with a named cause, of which at most 5 % are expected to have a wrong one
    verdicts: dict[str, tuple[str, ...]]  # every verdict with the heads that have it, the most frequent first
    rows: tuple[HeadDecisions, ...]  # heads with their decisions
    # effects, and the median over heads of the smallest size that is found with probability 0.95
    missed: tuple[tuple[str, float], ...]

    def answer(self) -> str:
        """Name the most frequent verdicts in one line, each with its number of heads."""
        first = [f"{words} ({len(names)})" for words, names in list(self.verdicts.items())[:_VERDICTS]]
        rest = sum(map(len, self.verdicts.values())) - sum(map(len, list(self.verdicts.values())[:_VERDICTS]))
        line = f"Cause, with the number of heads: {'; '.join(first)}{f'; others ({rest})' if rest else ''}."
        control = " At most 5 % of the heads with a named cause are expected to have a wrong one."
        return line + control if self.n_named else line

    def control(self) -> str:
        """State which share of the named causes may be wrong."""
        naming = any(name in NAMING for name in self.tests)
        differing = "of the heads that differ for an unresolved cause, at most 5 % are expected to be random"
        wrong = "of the heads with a named cause, at most 5 % are expected to have a wrong one"
        return f"Errors: {wrong}; {differing}." if naming else f"Errors: {differing}."

    def sentences(self) -> list[str]:
        """Report how many heads have each verdict, what each test found, and which effects it could miss."""
        heads = f"{self.n_heads} head{'s' * (self.n_heads != 1)}"
        lines = [f"{len(names)} of {heads}: {words}." for words, names in self.verdicts.items()]
        lines.append(self.control())
        decided = [name for name in self.tests if self.testable[name]]
        counts = ", ".join(f"{name} {self.rejected[name]} of {self.testable[name]}" for name in decided)
        undecided = ", ".join(name for name in self.tests if not self.testable[name])
        lines += [f"Heads rejected by each test, of those that it can decide on: {counts}."] if decided else []
        lines += [f"Cannot decide on any head: {undecided}."] if undecided else []
        if self.missed:
            sizes = "; ".join(f"{effect} below {size:.2g}" for effect, size in self.missed)
            lines.append(f"Smaller effects are missed in more than 5 % of heads: {sizes}.")
        return lines


class HeadDecisions(NamedTuple):
    """Decisions of the tests of one head."""

    name: str  # name of the head
    rejected: tuple[float, ...]  # for each test 1 (rejected), 0 (not rejected) or NaN (undecided)
    named: tuple[bool, ...]  # whether each test names a cause
    verdict: str  # the verdict

    def marks(self) -> list[tuple[float, bool]]:
        """Pair both decisions of each test."""
        return list(zip(self.rejected, self.named, strict=True))


def summarize_why(scores: xr.DataTree) -> WhySummary | None:
    """Summarize the group ``/why``; None if the scores tree has none."""
    if "why" not in scores.children:
        return None
    group = scores["why"].to_dataset().transpose("layer", "head", "test", ...)
    tests = tuple(map(str, group["test"].values))
    rejected, named = group["rejected"].values, group["named"].values.astype(bool)
    names, verdicts, rows = layer_names(group), dict[str, list[str]](), []
    for (layer, head), words in np.ndenumerate(group["verdict"].values):
        if words:  # the head exists
            name = f"{names[layer]} head {group['head'].values[head]}"
            verdicts.setdefault(str(words), []).append(name)
            decisions = tuple(rejected[layer, head].tolist()), tuple(named[layer, head].tolist())
            rows.append(HeadDecisions(name, *decisions, str(words)))
    ordered = sorted(verdicts.items(), key=lambda verdict: -len(verdict[1]))
    sizes = group["detectable"].values.reshape(-1, len(tests))
    missed = [
        (str(group["effect"].values[k]), float(np.nanmedian(sizes[:, k])))
        for k in range(len(tests))
        if not np.isnan(sizes[:, k]).all()
    ]
    rejections, decided = (
        dict(zip(tests, mask.sum(axis=(0, 1)).tolist(), strict=True)) for mask in (rejected == 1.0, ~np.isnan(rejected))
    )
    return WhySummary(
        tests=tests,
        rejected=rejections,
        testable=decided,
        n_heads=len(rows),
        n_named=sum(any(row.named) for row in rows),
        verdicts={words: tuple(heads) for words, heads in ordered},
        rows=tuple(rows),
        missed=tuple(missed),
    )


def verdict(rejected: Mapping[str, float], named: Collection[str], testable: Collection[str]) -> str:
    """State the decisions of one head in words.

    Where no cause is named, a factor whose elements are of another law differs by them or by directions, and a spectrum
    that differs for no known cause is unresolved.
    """
    if not testable:
        return NOT_TESTABLE
    factors = {"query": "W_Q", "key": "W_K"}
    directions = [factor for name, factor in factors.items() if f"{name}_signs" in named]
    entries = [factor for name, factor in factors.items() if f"{name}_entries" in named]
    related = [words for name, words in _RELATIONS.items() if name in named]
    parts = [f"directions in {' and '.join(directions)}"] if directions else []
    if related:
        parts.append(f"W_Q and W_K are related {' and '.join(related)}")
    if entries:
        parts.append(f"elements of {' and '.join(entries)} are not independent draws of the initial law")
    if parts:
        return "; ".join(parts)
    rejecting = {name for name, value in rejected.items() if value == 1.0}
    if "signs" in rejecting:
        return "W_QK has a direction; whether of W_Q, of W_K or of their relation is unresolved"
    either = [factor for name, factor in factors.items() if f"{name}_entries" in rejecting]
    unresolved = [factor for name, factor in factors.items() if name in rejecting and factor not in either]
    if either:
        parts.append(f"{_differ(either)}, cannot tell whether by directions or by the law of the elements")
    if unresolved:
        parts.append(f"{_differ(unresolved)}, cause unresolved")
    if parts or {"gaussian", "joint"} & rejecting:
        return "; ".join(parts) or "the head differs, cause unresolved"
    if any(math.isnan(rejected[name]) for name in testable):
        return TOO_FEW_DRAWS
    return NOTHING if len(testable) == len(rejected) else f"{NOTHING}, not all tests can tell"


def _differ(factors: Sequence[str]) -> str:
    return f"{' and '.join(factors)} {'differ' if len(factors) > 1 else 'differs'}"


_RELATIONS = {"axes": "along the head axes", "subspaces": "in what they read"}
