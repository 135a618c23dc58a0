"""Alarm for heads that depart from the null, valid at one level over all looks at a run.

Each p-value p of a head is calibrated to an e-value, a number ≥ 0 whose expectation is at most 1 as long as the head
follows the null. The calibrator is a mixture of steps: with thresholds c_m and shares v_m ≥ 0 that sum to 1,

    e(p) = Σ_m v_m 1{p ≤ c_m} / c_m,    E e(p) = Σ_m v_m P(p ≤ c_m) / c_m ≤ 1.

The evidence after k looks is S_k = Σ_{j ≤ k} w_j e(p_j), with weights w_j ≥ 0 that sum to at most 1; weights,
thresholds and shares are set before the first look. S_k rises to S_∞ = Σ_j w_j e(p_j), and E S_∞ ≤ Σ_j w_j ≤ 1
*however the looks depend on each other*, because expectations add up under any dependence. Weights hardly move between
looks, so their p-values are nearly the same, and a product of e-values would not be valid. Hence
P(S_k ≥ 1/α for some k) ≤ α by Markov's inequality.

The H heads may depend on each other as well. The alarm is raised by the e-Benjamini–Hochberg procedure: it names the j
heads with the largest evidence, for the largest j at which the j-th largest evidence is at least H / (j α). Evidence
never decreases, so a head that is named stays named, and all heads ever named are those named by S_∞. Their expected
false share is at most α; if all heads follow the null, so is the probability of any alarm at any look.

The four thresholds spend α where it is useful (``Spending.for_heads``). Let T be the total weight of the planned looks.
A single head is named

* at its first look, if p ≤ α w_1 / (5 H);
* within about √K looks, if p stays below the geometric mean of this bound and the next;
* by the last planned look, if p stays ≤ 2 α T / (5 H), the *smallest effect* of one head that can be detected;

and all heads are named together if all their p-values stay ≤ α T / 5.

If all looks are identical, the probability of a false alarm is 2 α T / 5 or more. If they are independent it is far
smaller, because a threshold that holds under every dependence is then hardly reached by chance.

Sources: V. Vovk and R. Wang, Ann. Stat. 49, 1736 (2021), calibrators, and e-values merged by weighted averages; R. Wang
and A. Ramdas, J. R. Stat. Soc. B 84, 822 (2022), e-BH under any dependence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float

from rmtbase.parameters import require_positive_integer, require_probability
from rmtbase.results.trajectory.schema import ALARM_VARIABLES, DEPARTURES_SCHEMA, STEP
from rmtbase.tables import describe, groups_of, heads_present, tree_of

ALARM_LEVEL = 0.05
ANALYTIC_FLOOR = 1e-6  # of p-values for an analytic null; of smaller ones only the order of magnitude is known

_OF_ALARM = ("planned_looks", "alarm_level")
_FORESEEN = 10_000  # looks
_LATER = 0.1  # share of the weight that is reserved for looks beyond those planned
_OPEN_WEIGHT = 0.75  # weight of the first 14 looks if none are planned
_SHARES = (0.2, 0.2, 0.4, 0.2)  # of the level: for one look, √K looks, all looks, and all heads together
_SOON = 100  # looks
_ROUNDED = 1.0 + 1e-9  # sums of weights are known to rounding


@dataclass(frozen=True)
class Spending:
    """Allocation of the level of an alarm, set before the first look."""

    n_heads: int  # H, the number of heads
    floor: float  # the smallest p-value that the null can give
    planned: int | None  # K, the number of planned looks; None if open
    level: float  # α
    thresholds: tuple[float, ...]  # c_m, ascending

    @classmethod
    def for_heads(cls, n_heads: int, floor: float, planned: int | None = None, level: float = ALARM_LEVEL) -> Spending:
        weight = 1.0 - _LATER if planned is not None else _OPEN_WEIGHT
        at_once, _, at_last, together = _SHARES
        per_head = level / max(n_heads, 1)
        first, last = at_once * per_head * float(look_weights(1, planned)[0]), at_last * per_head * weight
        thresholds = (first, math.sqrt(first * last), last, together * level * weight)
        return cls(n_heads, floor, planned, level, tuple(max(threshold, floor) for threshold in thresholds))

    def calibrated(self, p_value: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        p_value = np.nan_to_num(p_value, nan=np.inf)
        steps = zip(_SHARES, self.thresholds, strict=True)
        return np.sum([share / threshold * (p_value <= threshold) for share, threshold in steps], axis=0)

    def looks_to_name(self, p_value: float = 0.0, seen: int = 0, departed: int = 1) -> int | None:
        """Count the looks until ``departed`` heads that stay at a p-value are named; None if 10 000 do not suffice.

        They depart after ``seen`` looks that gave no evidence; no p-value is below the floor of the null.
        """
        e_value = float(self.calibrated(np.array(max(p_value, self.floor))))
        reached = np.cumsum(look_weights(seen + _FORESEEN, self.planned)[seen:]) * e_value * _ROUNDED
        named = reached >= self.n_heads / (departed * self.level)
        return int(np.argmax(named)) + 1 if named.any() else None

    def largest_p_value_named(self, seen: int = 0) -> float | None:
        """Find the largest threshold that names a head that stays there, by the last planned look or 100 more."""
        within = self.planned - seen if self.planned is not None else _SOON
        for threshold in sorted(self.thresholds, reverse=True):
            looks = self.looks_to_name(threshold, seen)
            if looks is not None and looks <= within:
                return threshold
        return None


def look_weights(looks: int, planned: int | None = None) -> Float[np.ndarray, " look"]:
    """Weights of the first looks: 1/log₂(k + 1) − 1/log₂(k + 2), or 0.9/K for each of K planned ones; all sum to 1."""
    place = np.arange(1, looks + 1)
    beyond = place if planned is None else np.maximum(place - planned, 1)
    telescoping = 1.0 / np.log2(beyond + 1.0) - 1.0 / np.log2(beyond + 2.0)
    if planned is None:
        return telescoping
    return np.where(place <= planned, (1.0 - _LATER) / planned, _LATER * telescoping)


def evidence(p_value: Float[np.ndarray, "look ..."], spending: Spending) -> Float[np.ndarray, "look ..."]:
    weights = look_weights(len(p_value), spending.planned)
    return np.cumsum(weights.reshape(-1, *[1] * (p_value.ndim - 1)) * spending.calibrated(p_value), axis=0)


def raised(e_value: Float[np.ndarray, " head"], level: float = ALARM_LEVEL) -> Bool[np.ndarray, " head"]:
    """Mask of the heads for which the alarm is raised, by the e-Benjamini–Hochberg procedure."""
    order = np.argsort(-e_value, kind="stable")
    rank = np.arange(1, e_value.size + 1)
    reached = np.flatnonzero(e_value[order] * rank * level * _ROUNDED >= e_value.size)
    raised_for = np.zeros(e_value.size, dtype=bool)
    raised_for[order[: reached[-1] + 1 if reached.size else 0]] = True
    return raised_for


def with_alarm(tree: xr.DataTree, planned_looks: int | None = None, level: float = ALARM_LEVEL) -> xr.DataTree:
    """Add to a trajectory the evidence against its first null after each look, and the step of each head's alarm."""
    level = require_probability("level", level)
    if planned_looks is not None:
        planned_looks = require_positive_integer("planned_looks", planned_looks)
    groups = groups_of(tree)
    departures, heads = groups["/departures"], groups["/heads"]
    present = heads_present(heads.isel({STEP: 0}))
    spending = Spending.for_heads(int(present.sum()), alarm_floor(tree), planned_looks, level)
    e_value = evidence(departures["omnibus_p_value"].isel(null=0).values, spending)
    named = np.zeros(e_value.shape, dtype=bool)
    for k, evidence_of_look in enumerate(e_value):
        named[k, present] = raised(evidence_of_look[present], level)
    first = np.where(named.any(axis=0), heads[STEP].values[np.argmax(named, axis=0)].astype(float), np.nan)
    values = {"e_value": ((STEP, "layer", "head"), e_value), "alarm_step": (("layer", "head"), first)}
    groups["/departures"] = describe(departures.assign(values), DEPARTURES_SCHEMA)
    return tree_of(groups, {**tree.attrs, "planned_looks": planned_looks or 0, "alarm_level": level})


def spending_of(tree: xr.DataTree) -> Spending | None:
    if "alarm_level" not in tree.attrs:
        return None
    present = heads_present(groups_of(tree)["/heads"].isel({STEP: 0}))
    planned = int(tree.attrs["planned_looks"]) or None
    return Spending.for_heads(int(present.sum()), alarm_floor(tree), planned, float(tree.attrs["alarm_level"]))


def alarm_sentence(tree: xr.DataTree) -> str:
    spending = spending_of(tree)
    if spending is None:
        return ""
    named = int(np.isfinite(groups_of(tree)["/departures"]["alarm_step"].values).sum())
    least = spending.largest_p_value_named()
    seen = "cannot name a head if no other differs"
    if least is not None:
        seen = f"names a head that stays at p ≤ {least:.2g} from the first look on, even if no other differs"
    raised_for = f"raised for {named}" if named else "not raised for any"
    return (
        f"The alarm, false in at most {spending.level:.0%} of runs over all looks, was {raised_for} of "
        f"{spending.n_heads} heads. It {seen}; it cannot tell smaller differences from none."
    )


def without_alarm(tree: xr.DataTree) -> xr.DataTree:
    groups = groups_of(tree)
    groups["/departures"] = groups["/departures"].drop_vars(ALARM_VARIABLES, errors="ignore")
    return tree_of(groups, {name: value for name, value in tree.attrs.items() if name not in _OF_ALARM})


def alarm_floor(tree: xr.DataTree) -> float:
    """Smallest omnibus p-value that the first null can give, the largest over head shapes."""
    if str(tree.attrs["null_method"]) == "analytic":
        return ANALYTIC_FLOOR
    null = groups_of(tree)["/null"]
    draws = null["null_draws"].values if "null_draws" in null else np.array([tree.attrs["null_draws"]])
    return float(1.0 / (draws.min() + 1))
