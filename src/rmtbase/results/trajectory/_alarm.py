"""An alarm that may be asked after every look at a run: which heads have left the null, at a level over all looks.

Each p-value p of a head is calibrated to an e-value, a number ≥ 0 whose expectation is at most 1 while the head is at
the null, by a mixture of steps: with thresholds c_m and shares v_m ≥ 0 that sum to 1,

    e(p) = Σ_m v_m 1{p ≤ c_m} / c_m,    E e(p) = Σ_m v_m P(p ≤ c_m) / c_m ≤ 1.

The evidence after k looks is S_k = Σ_{j ≤ k} w_j e(p_j), with weights w_j ≥ 0 that sum to at most 1; weights,
thresholds and shares are set before the first look. S_k rises to S_∞ = Σ_j w_j e(p_j), and E S_∞ ≤ Σ_j w_j ≤ 1
*however the looks depend on each other*, for expectations add up whatever depends on what: of weights that hardly move
between looks, p-values are nearly the same, and a product of e-values would not do. So P(S_k ≥ 1/α for some k) ≤ α by
Markov's inequality.

Over H heads, which may depend on each other too, the alarm is raised by the e-Benjamini–Hochberg procedure: for the j
heads of largest evidence, with the largest j for which the j-th of them is at least H / (j α). As evidence only rises,
who is named once stays so, and all ever named are those named by S_∞: their expected false share is at most α, and with
no head beyond the null so is the probability of any alarm at any look.

The four thresholds spend α where it can be used (:meth:`Spending.of`). With T the weight of the looks that are
planned, a lone head is named

* at its first look, where p ≤ α w_1 / (5 H);
* within about √K looks, where p stays below the geometric mean of that and of the next;
* by the last look planned, where p stays ≤ 2 α T / (5 H), the *smallest effect* that can be seen of one head; and
* all heads together are, where they stay ≤ α T / 5.

If all looks are the same, the alarm is false with probability 2 α T / 5 or more. If they are independent it is false
far less often, for a threshold that holds for every dependence cannot be reached by chance then.

Sources: V. Vovk and R. Wang, Ann. Stat. 49, 1736 (2021), calibrators, and e-values merged by weighted averages; R. Wang
and A. Ramdas, J. R. Stat. Soc. B 84, 822 (2022), e-BH under any dependence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float, Int

from rmtbase.errors import ParameterError
from rmtbase.parameters import require_finite_number, require_positive_integer
from rmtbase.results.trajectory.schema import ALARM_VARIABLES, DEPARTURES_SCHEMA, STEP
from rmtbase.tables import describe, groups_of, heads_present, tree_of

ALARM_LEVEL = 0.05
ANALYTIC_FLOOR = 1e-6
"""f where the null is analytic: of a smaller p-value the order of magnitude alone is known."""

_OF_ALARM = ("planned_looks", "alarm_level")
_FORESEEN = 10_000  # looks
_LATER = 0.1  # share of the weight that is left for looks beyond those planned
_OPEN_WEIGHT = 0.75  # of the first 14 looks, where none are planned
_SHARES = (0.2, 0.2, 0.4, 0.2)  # of the level: for one look, √K, all, and all heads together
_SOON = 100  # looks
_ROUNDED = 1.0 + 1e-9  # sums of weights are known to rounding


@dataclass(frozen=True)
class Spending:
    """How the level of an alarm is spent: set before the first look.

    Attributes:
        n_heads: H, heads that are looked at.
        floor: the smallest p-value that the null can give.
        planned: looks that are planned, K; None where that is open.
        level: α.
        thresholds: c_m, ascending.
    """

    n_heads: int
    floor: float
    planned: int | None
    level: float
    thresholds: tuple[float, ...]

    @classmethod
    def of(cls, n_heads: int, floor: float, planned: int | None = None, level: float = ALARM_LEVEL) -> Spending:
        """The thresholds for so many heads and looks: those of the module, none below the floor."""
        whole = 1.0 - _LATER if planned is not None else _OPEN_WEIGHT
        at_once, _, at_last, together = _SHARES
        each = level / max(n_heads, 1)
        first, last = at_once * each * float(look_weights(1, planned)[0]), at_last * each * whole
        wanted = (first, math.sqrt(first * last), last, together * level * whole)
        return cls(n_heads, floor, planned, level, tuple(max(one, floor) for one in wanted))

    def calibrated(self, p_value: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """The e-value of each p-value; 0 where there is none."""
        p_value = np.nan_to_num(p_value, nan=np.inf)
        steps = (share / one * (p_value <= one) for share, one in zip(_SHARES, self.thresholds, strict=True))
        return np.sum([*steps], axis=0)

    def looks_to_name(self, p_value: float = 0.0, seen: int = 0, departed: int = 1) -> int | None:
        """How many looks it takes until the alarm is raised for heads that stay at a p-value, or at the null's floor.

        That many of the heads leave the null together after ``seen`` looks, none of which has told anything. None: no
        10 000 looks would, as the weights left, times the e-value, stay below n_heads / (departed α). More draws of
        the null, or an analytic one, have a larger e-value; a plan keeps weight for later looks.
        """
        e_value = float(self.calibrated(np.array(max(p_value, self.floor))))
        reached = np.cumsum(look_weights(seen + _FORESEEN, self.planned)[seen:]) * e_value * _ROUNDED
        named = reached >= self.n_heads / (departed * self.level)
        return int(np.argmax(named)) + 1 if named.any() else None

    def largest_p_value_named(self, seen: int = 0, departed: int = 1) -> float | None:
        """The smallest effect that can be seen: the largest p-value at which heads that stay there are still named.

        By the last look planned, or within 100 more where none are; None where not even the floor is.
        """
        within = max(self.planned - seen, 1) if self.planned is not None else _SOON
        for one in sorted(self.thresholds, reverse=True):
            looks = self.looks_to_name(one, seen, departed)
            if looks is not None and looks <= within:
                return one
        return None


def look_weights(looks: int, planned: int | None = None) -> Float[np.ndarray, " look"]:
    """The weights of the first looks.

    Of all that may come they sum to 1: without a plan w_k = 1/log₂(k + 1) − 1/log₂(k + 2), which sum to the first term;
    of K planned looks each has 0.9/K, and those beyond share the rest in that way.
    """
    place = np.arange(1, looks + 1)
    if planned is None:
        return _telescoping(place)
    later = np.where(place > planned, _LATER * _telescoping(np.maximum(place - planned, 1)), 0.0)
    return np.where(place <= planned, (1.0 - _LATER) / planned, later)


def evidence(p_value: Float[np.ndarray, "look ..."], spending: Spending) -> Float[np.ndarray, "look ..."]:
    """S_k of every head after each look."""
    weights = look_weights(len(p_value), spending.planned)
    return np.cumsum(weights.reshape(-1, *[1] * (p_value.ndim - 1)) * spending.calibrated(p_value), axis=0)


def raised(e_value: Float[np.ndarray, " head"], level: float = ALARM_LEVEL) -> Bool[np.ndarray, " head"]:
    """For which heads the alarm is raised: e-Benjamini–Hochberg."""
    order = np.argsort(-e_value, kind="stable")
    rank = np.arange(1, e_value.size + 1)
    reached = np.flatnonzero(e_value[order] * rank * level * _ROUNDED >= e_value.size)
    found = np.zeros(e_value.size, dtype=bool)
    found[order[: reached[-1] + 1 if reached.size else 0]] = True
    return found


def with_alarm(tree: xr.DataTree, planned_looks: int | None = None, level: float = ALARM_LEVEL) -> xr.DataTree:
    """A trajectory with the evidence against its first null after each look, and when the alarm was raised.

    Args:
        tree: a trajectory, each of whose steps is a look.
        planned_looks: how many were planned before the first; None where that was open.
        level: α.

    Raises:
        ParameterError: a level not between 0 and 1, or a number of looks that is no positive integer.
    """
    level = require_finite_number("level", level)
    if not 0 < level < 1:
        raise ParameterError("level", level, "a number between 0 and 1")
    if planned_looks is not None:
        planned_looks = require_positive_integer("planned_looks", planned_looks)
    groups = groups_of(tree)
    departures, heads = groups["/departures"], groups["/heads"]
    present = heads_present(heads.isel({STEP: 0}))
    spending = Spending.of(int(present.sum()), alarm_floor(tree), planned_looks, level)
    e_value = evidence(departures["omnibus_p_value"].isel(null=0).values, spending)
    named = np.zeros(e_value.shape, dtype=bool)
    for k, one in enumerate(e_value):
        named[k, present] = raised(one[present], level)
    dims = (STEP, "layer", "head")
    values = dict(zip(ALARM_VARIABLES, ((dims, e_value), (dims[1:], _first(named, heads[STEP].values))), strict=True))
    groups["/departures"] = describe(departures.assign(values), DEPARTURES_SCHEMA)
    return tree_of(groups, {**tree.attrs, "planned_looks": planned_looks or 0, "alarm_level": level})


def spending_of(tree: xr.DataTree) -> Spending | None:
    """How the level of a trajectory's alarm is spent; None where there is no alarm."""
    if "alarm_level" not in tree.attrs:
        return None
    present = heads_present(groups_of(tree)["/heads"].isel({STEP: 0}))
    planned = int(tree.attrs["planned_looks"]) or None
    return Spending.of(int(present.sum()), alarm_floor(tree), planned, float(tree.attrs["alarm_level"]))


def alarm_sentence(tree: xr.DataTree) -> str:
    """For how many heads the alarm was raised, and the smallest effect that it can see; "" where there is no alarm."""
    spending = spending_of(tree)
    if spending is None:
        return ""
    named = int(np.isfinite(groups_of(tree)["/departures"]["alarm_step"].values).sum())
    least = spending.largest_p_value_named()
    seen = (
        "cannot name a head that leaves the null alone"
        if least is None
        else f"names a head alone that stays at p ≤ {least:.2g} from the first look on"
    )
    said = f"raised for {named}" if named else "not raised for any"
    return (
        f"The alarm, false in at most {spending.level:.0%} of runs over all looks, was {said} of {spending.n_heads} "
        f"heads. It {seen}; smaller departures it cannot tell from none."
    )


def without_alarm(tree: xr.DataTree) -> xr.DataTree:
    """A trajectory as it is without one: to be joined to another."""
    groups = groups_of(tree)
    groups["/departures"] = groups["/departures"].drop_vars(ALARM_VARIABLES, errors="ignore")
    return tree_of(groups, {name: value for name, value in tree.attrs.items() if name not in _OF_ALARM})


def alarm_floor(tree: xr.DataTree) -> float:
    """f of the first null of a trajectory: of the omnibus test, of several shapes of heads the largest."""
    if str(tree.attrs["null_method"]) == "analytic":
        return ANALYTIC_FLOOR
    null = groups_of(tree)["/null"]
    draws = null["null_draws"].values if "null_draws" in null else np.array([tree.attrs["null_draws"]])
    return float(1.0 / (draws.min() + 1))


def _telescoping(place: Int[np.ndarray, " look"]) -> Float[np.ndarray, " look"]:
    return 1.0 / np.log2(place + 1.0) - 1.0 / np.log2(place + 2.0)


def _first(
    named: Bool[np.ndarray, "look layer head"], step: Int[np.ndarray, " look"]
) -> Float[np.ndarray, "layer head"]:
    return np.where(named.any(axis=0), step[np.argmax(named, axis=0)].astype(float), np.nan)
