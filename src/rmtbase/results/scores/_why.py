"""Causes of a head's difference from random heads: tests of three questions, and a verdict from the answers.

Does the spectrum agree with independent entries of the initial law (*spectrum*, *entries*)? Is there any structure
beyond the sizes of single weights (*directions*)? Are W_Q and W_K related (*relation*)? A cause is named only if the
test whose null excludes it rejects. A test that does not reject names no cause; ``detectable`` gives the effects that
it could miss.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
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
from rmtbase.results.scores._head_tests import Found, of_resampled_heads, of_spectra
from rmtbase.results.scores._heads import layer_coordinates
from rmtbase.results.scores.schema import WHY_SCHEMA
from rmtbase.statistics import benjamini_hochberg, benjamini_yekutieli, holm
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

LEVEL = 0.05
_VERDICTS = 3  # verdicts that the answer names
NOTHING = "no difference found"
NOT_TESTABLE = "not testable"
TOO_FEW_DRAWS = "cannot tell with so few draws"


def require_tests(names: Sequence[str] | str) -> tuple[str, ...]:
    """Return the tests of the named questions, in the order of :data:`TESTS`; ``"all"`` stands for all questions.

    Raises:
        ParameterError: a name is not in :data:`QUESTIONS`.
    """
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
        p_value = scored["heads"].to_dataset()["omnibus_p_value"].values
        return Found(p_value, smallest if str(scored.attrs["null_method"]) == "analytic" else smallest / 2.0)

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
    """Make the group ``/why`` of a scores file, and notes on tests that the model does not allow.

    Args:
        model: model whose heads were scored.
        tests: names in :data:`TESTS`.
        of_product: scores W_QK against independent entries.
        entries: the initial law of the elements, one of ``rmtbase.parameters.INITIALIZATIONS``.
        draws: number of draws of each test; if None, 10 000 for spectra and 999 for resampled heads.
        seed: seed of the draws.
        progress: shows the draws.
    """
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
    p_value = np.stack([found[name].p_value for name in order], axis=-1)
    detectable = np.stack([np.broadcast_to(found[name].detectable, p_value.shape[:2]) for name in order], axis=-1)

    def adjusted(by: Callable[[np.ndarray], np.ndarray]) -> Float[np.ndarray, "layer head test"]:
        return np.stack([by(p_value[..., k]) for k in range(len(order))], axis=-1)

    q_value = adjusted(benjamini_hochberg)
    floors = np.array([found[name].floor for name in order])
    rejected = _rejected(p_value, q_value, floors)
    verdicts = np.empty(rejected.shape[:2], dtype=object)
    for layer, head in np.ndindex(*verdicts.shape):
        there = head < sites[layer].n_heads
        verdicts[layer, head] = verdict(dict(zip(order, rejected[layer, head], strict=True))) if there else ""
        if verdicts[layer, head] == NOT_TESTABLE and not np.isnan(p_value[layer, head]).all():
            verdicts[layer, head] = TOO_FEW_DRAWS
    dims = ("layer", "head", "test")
    dataset = xr.Dataset(
        {
            "p_value": (dims, p_value),
            "q_value": (dims, q_value),
            "yekutieli_q_value": (dims, adjusted(benjamini_yekutieli)),
            "holm_p_value": (dims, adjusted(holm)),
            "detectable": (dims, detectable),
            "p_value_floor": (("test",), floors),
            "verdict": (dims[:2], verdicts.astype(str)),
        },
        {
            **layer_coordinates([site.place for site in sites]),
            "head": np.arange(p_value.shape[1]),
            "test": order,
            "meaning": ("test", [TESTS[name] for name in order]),
            "effect": ("test", [EFFECTS.get(name, "") for name in order]),
        },
    )
    return describe(dataset, WHY_SCHEMA), notes


@dataclass(frozen=True)
class WhySummary:
    """Summary of the group ``/why`` of a scores file.

    Attributes:
        tests: names of the tests.
        rejected: number of heads that each test rejects at a false discovery rate of 5 %.
        testable: number of heads that each test could decide.
        n_heads: number of heads.
        verdicts: every verdict with the heads that have it, the most frequent first.
        rows: each head's name, 1 (rejected), 0 (not rejected) or NaN (undecided) for each test, and the verdict.
        missed: effects, and the median over heads of the smallest size that is found with probability 0.95.
    """

    tests: tuple[str, ...]
    rejected: dict[str, int]
    testable: dict[str, int]
    n_heads: int
    verdicts: dict[str, tuple[str, ...]]
    rows: tuple[tuple[str, tuple[float, ...], str], ...]
    missed: tuple[tuple[str, float], ...]

    def answer(self) -> str:
        """Name the most frequent verdicts in one line, each with its number of heads."""
        first = [f"{words} ({len(names)})" for words, names in list(self.verdicts.items())[:_VERDICTS]]
        rest = sum(map(len, self.verdicts.values())) - sum(map(len, list(self.verdicts.values())[:_VERDICTS]))
        return f"Cause, with the number of heads: {'; '.join(first)}{f'; others ({rest})' if rest else ''}."

    def sentences(self) -> list[str]:
        """Report how many heads have each verdict, what each test found, and which effects it could miss."""
        heads = f"{self.n_heads} head{'s' * (self.n_heads != 1)}"
        lines = [f"{len(names)} of {heads}: {words}." for words, names in self.verdicts.items()]
        each = ", ".join(f"{name} {self.rejected[name]} of {self.testable[name]}" for name in self.tests)
        lines.append(
            f"Heads rejected by each test at a false discovery rate of 5 %, of those that it can decide on: {each}."
        )
        if self.missed:
            sizes = "; ".join(f"{effect} below {size:.2g}" for effect, size in self.missed)
            lines.append(f"Smaller effects are missed in more than 5 % of heads: {sizes}.")
        return lines


def summarize_why(scores: xr.DataTree) -> WhySummary | None:
    """Summarize the group ``/why``; None if the scores tree has none."""
    if "why" not in scores.children:
        return None
    group = scores["why"].to_dataset().transpose("layer", "head", "test", ...)
    tests = tuple(map(str, group["test"].values))
    rejected = _rejected(group["p_value"].values, group["q_value"].values, group["p_value_floor"].values)
    names, verdicts, rows = layer_names(group), dict[str, list[str]](), []
    for (layer, head), words in np.ndenumerate(group["verdict"].values):
        if words:  # the head exists
            name = f"{names[layer]} head {group['head'].values[head]}"
            verdicts.setdefault(str(words), []).append(name)
            rows.append((name, tuple(rejected[layer, head].tolist()), str(words)))
    ordered = sorted(verdicts.items(), key=lambda each: -len(each[1]))
    sizes = group["detectable"].values.reshape(-1, len(tests))
    missed = [
        (str(group["effect"].values[k]), float(np.nanmedian(sizes[:, k])))
        for k in range(len(tests))
        if not np.isnan(sizes[:, k]).all()
    ]
    counts = (each.sum(axis=(0, 1)).tolist() for each in (rejected == 1.0, ~np.isnan(rejected)))
    of_tests, testable = (dict(zip(tests, each, strict=True)) for each in counts)
    of_verdicts = {words: tuple(of) for words, of in ordered}
    return WhySummary(tests, of_tests, testable, len(rows), of_verdicts, tuple(rows), tuple(missed))


def _rejected(p_value: np.ndarray, q_value: np.ndarray, floors: np.ndarray) -> Float[np.ndarray, "layer head test"]:
    """Return 1 if a test rejects and 0 if not; NaN if a head is not testable, or the draws are too few to decide."""
    rejected = np.where(q_value < LEVEL, 1.0, np.where(p_value <= floors * (1.0 + 1e-9), np.nan, 0.0))
    return np.where(np.isnan(p_value), np.nan, rejected)


def verdict(rejected: Mapping[str, float]) -> str:
    """Combine the tests of one head into a verdict.

    A direction in a factor, or a relation, also changes spectra and elements. So elements are named as a cause only in
    a factor without a direction, and a spectrum that differs for no known cause is unresolved.

    Args:
        rejected: by name of the test, 1 if it rejects, 0 if not, NaN if it cannot decide.
    """

    def yes(name: str) -> bool:
        return rejected.get(name, math.nan) == 1.0

    if all(np.isnan(each) for each in rejected.values()):
        return NOT_TESTABLE
    factors = {"query": "W_Q", "key": "W_K"}
    directions = [factor for name, factor in factors.items() if yes(f"{name}_signs")]
    entries = [factor for name, factor in factors.items() if yes(f"{name}_entries") and factor not in directions]
    unresolved = [factor for name, factor in factors.items() if yes(name) and factor not in directions + entries]
    related = [words for name, words in _RELATIONS.items() if yes(name)]
    parts = [f"directions in {' and '.join(directions)}"] if directions else []
    if related:
        parts.append(f"W_Q and W_K are related {' and '.join(related)}")
    if entries:
        parts.append(f"elements of {' and '.join(entries)} are not independent draws of the initial law")
    if not parts and yes("signs"):
        return "W_QK has a direction; whether of W_Q, of W_K or of their relation is unresolved"
    if unresolved:
        differ = "differ" if len(unresolved) > 1 else "differs"
        parts.append(f"{' and '.join(unresolved)} {differ}, cause unresolved")
    if not parts and (yes("gaussian") or yes("joint")):
        parts.append("the head differs, cause unresolved")
    if parts:
        return "; ".join(parts)
    return NOTHING if not any(np.isnan(each) for each in rejected.values()) else f"{NOTHING}, not all tests can tell"


_RELATIONS = {"axes": "along the head axes", "subspaces": "in what they read"}
