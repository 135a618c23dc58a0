"""Decisions of the tests of causes, as two families of claims over heads and tests.

*Named causes.* A test names a cause of a head. The claims of all heads are one family: let P be a head's smallest Holm
p-value over its tests and S the set of heads with P ≤ α |S|/m by Benjamini and Hochberg; a head in S is given the
causes with a Holm p-value ≤ α |S|/m. Then the expected share of heads with any wrong cause, of the heads with a named
cause, is at most α, however the tests of one head depend on each other, and for independent heads.

*Differences.* A test says that a head differs, and names no cause. These claims are a family of the heads without a
named cause, so that of the heads said to differ for an unresolved cause at most α are random.

Elements are named as a cause only where the test of directions in the same factor has a p-value so large that a
direction at twice the threshold would hardly have one, and the test of directions in the other factor has p > 0.05: a
head with directions in one factor seldom has none in the other. Elsewhere their rejection is a difference.

Source: Y. Benjamini and M. Bogomolov, J. R. Stat. Soc. B 76, 297 (2014).
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from rmtbase.statistics import benjamini_hochberg, holm

LEVEL = 0.05
NAMING = ("query_signs", "key_signs", "axes", "subspaces", "query_entries", "key_entries")
"""Tests that can name a cause. A direction of W_QK may be one of W_Q, of W_K or of their relation, so it names none."""
ENTRY_TESTS: Mapping[str, str] = {"query_entries": "query_signs", "key_entries": "key_signs"}
"""Tests of elements, and the test of directions in the same factor."""


class Decisions(NamedTuple):
    """Decisions of every test of every head, with the dimensions (layer, head, test)."""

    q_value: Float[np.ndarray, "layer head test"]  # smallest level at which the test rejects in its family
    # the same for heads of any dependence: q times 1 + 1/2 + … + 1/m of m heads, and at most 1
    yekutieli_q_value: Float[np.ndarray, "layer head test"]
    holm_p_value: Float[np.ndarray, "layer head test"]  # Holm's p-value over all claims of the family
    # 1 if the test rejects, 0 if not, NaN if the head is not testable or its draws are too few
    rejected: Float[np.ndarray, "layer head test"]
    named: Bool[np.ndarray, "layer head test"]  # True if the test names a cause of the head


def decide(
    p_value: Mapping[str, Float[np.ndarray, "layer head"]],
    floor: Mapping[str, Float[np.ndarray, "layer head"]],
    gate: Mapping[str, float],
) -> Decisions:
    """Decide on every test of every head, in the order of ``p_value``."""
    tests = list(p_value)
    shape = p_value[tests[0]].shape
    p = np.stack([p_value[name] for name in tests], axis=-1).reshape(-1, len(tests))
    smallest = np.stack([floor[name] for name in tests], axis=-1).reshape(p.shape)
    naming = np.tile([name in NAMING for name in tests], (len(p), 1))
    for name in ENTRY_TESTS.keys() & set(tests):
        may_name = np.full(shape, True)
        for directions in ENTRY_TESTS.values():  # NaN: signs change nothing, so there is no direction
            least = gate[name] if directions == ENTRY_TESTS[name] else LEVEL
            may_name &= ~(p_value[directions] <= least) if directions in p_value else False
        naming[:, tests.index(name)] = may_name.ravel()
    causes = _adjusted(p, naming)
    with_cause = np.any(causes[0] < LEVEL, axis=1, keepdims=True)
    unnamed, every = _adjusted(np.where(with_cause, np.nan, p), ~naming), _adjusted(p, ~naming)

    q_value, yekutieli, of_all = (
        np.where(naming, of_causes, np.where(with_cause, of_every, of_unnamed)).reshape(*shape, -1)
        for of_causes, of_unnamed, of_every in zip(causes, unnamed, every, strict=True)
    )
    at_floor = np.less_equal(p, smallest * (1.0 + 1e-9)).reshape(q_value.shape)
    rejected = np.where(q_value < LEVEL, 1.0, np.where(at_floor, math.nan, 0.0))
    rejected = np.where(np.isnan(q_value), math.nan, rejected)
    named = np.equal(rejected, 1.0) & naming.reshape(q_value.shape)
    return Decisions(q_value, yekutieli, of_all, rejected, named)


def draws_to_decide(
    p_value: Mapping[str, Float[np.ndarray, "layer head"]],
    floor: Mapping[str, Float[np.ndarray, "layer head"]],
    gate: Mapping[str, float],
) -> tuple[Bool[np.ndarray, "layer head test"], int]:
    """Find the naming tests that a smaller possible p-value could decide, and the number of draws that it takes."""
    decisions = decide(p_value, floor, gate)
    tests = list(p_value)
    naming = np.array([name in NAMING for name in tests])
    undecided = np.isnan(decisions.rejected) & np.isfinite(decisions.q_value) & naming
    testable = np.isfinite(decisions.q_value).any(axis=-1)
    heads = undecided.any(axis=-1) | decisions.named.any(axis=-1)
    return undecided, math.ceil(int(naming.sum()) * int(testable.sum()) / (LEVEL * max(1, int(heads.sum()))))


def _adjusted(p: Float[np.ndarray, "head test"], belongs: Bool[np.ndarray, "head test"]) -> tuple[np.ndarray, ...]:
    """Return the q-values of the tests that belong to a family, those for heads of any dependence, and Holm's p-values.

    The level at which a claim with Holm p-value x is made is min over k of max(Q_k, x m/k): Q_k is the level from
    which on k heads are selected, and m is the number of heads.
    """
    # A test that may or may not belong, by the p-value of another, counts among the head's tests in either case.
    columns = belongs.any(axis=0)
    claims = np.where(belongs, p, np.where(np.isnan(p), math.nan, 1.0))
    claims[:, ~columns] = math.nan
    within = holm(claims, axis=1)
    least = np.array([row.min(initial=math.inf, where=~np.isnan(row)) for row in within])
    testable = np.isfinite(least)
    m = int(testable.sum())
    if m == 0:
        empty = np.full(p.shape, math.nan)
        return empty, empty, empty
    selected_from = np.sort(benjamini_hochberg(least[testable]))
    levels = np.minimum(within, 1.0) * m
    for size, level in enumerate(selected_from, 1):
        np.minimum(levels, np.maximum(level, within * (m / size)), out=levels)
    q_value = np.where(belongs, np.minimum(levels, 1.0), math.nan)
    of_all = np.where(belongs, holm(claims), math.nan)
    return q_value, np.minimum(1.0, (1.0 / np.arange(1, m + 1)).sum() * q_value), of_all
