"""An alarm that may be asked after every look at a run: which heads have left the null, at a level over all looks.

Each p-value p of a head is calibrated to an e-value, a number ≥ 0 whose expectation is at most 1 while the head is at
the null, by the decreasing function

    e(p) = 1 / (max(p, f) (1 + ln(1/f))),    ∫₀¹ e(p) dp = 1,

with f the smallest p-value that the null can give. The evidence after k looks is S_k = Σ_{j ≤ k} w_j e(p_j), with
weights w_j ≥ 0 that are set before the first look and sum to 1. S_k rises to S_∞, whose expectation is at most 1
*however the looks depend on each other*: of weights that hardly move between looks, p-values are nearly the same. So
P(S_k ≥ 1/α for some k) ≤ α by Markov's inequality.

Over H heads, which may depend on each other too, the alarm is raised by the e-Benjamini–Hochberg procedure: for the j
heads of largest evidence, with the largest j for which the j-th of them is at least H / (j α). As evidence only rises,
who is named once stays so, and all ever named are those named by S_∞: their expected false share is at most α, and with
no head beyond the null so is the probability of any alarm at any look.

Sources: V. Vovk and R. Wang, Ann. Stat. 49, 1736 (2021), calibrators, and e-values merged by weighted averages; R. Wang
and A. Ramdas, J. R. Stat. Soc. B 84, 822 (2022), e-BH under any dependence.
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float, Int

from rmtbase.errors import ParameterError
from rmtbase.parameters import require_finite_number, require_positive_integer
from rmtbase.tables import (
    ALARM_VARIABLES,
    DEPARTURES_SCHEMA,
    STEP,
    describe,
    groups_of,
    heads_present,
    tree_of,
)

ALARM_LEVEL = 0.05
ANALYTIC_FLOOR = 1e-6
"""f where the null is analytic: of a smaller p-value the order of magnitude alone is known."""

_OF_ALARM = ("planned_looks", "alarm_level")
_FORESEEN = 10_000  # looks
_LATER = 0.1  # share of the weight that is left for looks beyond those planned


def calibrated(p_value: Float[np.ndarray, "..."], floor: float) -> Float[np.ndarray, "..."]:
    """The e-value of each p-value; 0 where there is none."""
    at_least = np.maximum(np.nan_to_num(p_value, nan=np.inf), floor)
    return 1.0 / (at_least * (1.0 + np.log(1.0 / floor)))


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


def evidence(
    p_value: Float[np.ndarray, "look ..."], floor: float, planned: int | None = None
) -> Float[np.ndarray, "look ..."]:
    """S_k of every head after each look."""
    weights = look_weights(len(p_value), planned)
    return np.cumsum(weights.reshape(-1, *[1] * (p_value.ndim - 1)) * calibrated(p_value, floor), axis=0)


def raised(e_value: Float[np.ndarray, " head"], level: float = ALARM_LEVEL) -> Bool[np.ndarray, " head"]:
    """For which heads the alarm is raised: e-Benjamini–Hochberg."""
    order = np.argsort(-e_value, kind="stable")
    rank = np.arange(1, e_value.size + 1)
    reached = np.flatnonzero(e_value[order] * rank * level >= e_value.size)
    found = np.zeros(e_value.size, dtype=bool)
    found[order[: reached[-1] + 1 if reached.size else 0]] = True
    return found


def looks_to_name(
    n_heads: int,
    floor: float,
    planned: int | None = None,
    level: float = ALARM_LEVEL,
    seen: int = 0,
    departed: int = 1,
) -> int | None:
    """How many looks at p-values that are the null's smallest it takes until the alarm is raised for heads together.

    That many of ``n_heads`` leave the null after ``seen`` looks, none of which has told anything. None: no 10 000 looks
    would, as the weights left, times the largest e-value, stay below n_heads / (departed α). More draws of the null,
    or an analytic one, have a larger e-value; a plan keeps weight for later looks.
    """
    needed = n_heads / (departed * level * float(calibrated(np.array(floor), floor)))
    reached = np.cumsum(look_weights(seen + _FORESEEN, planned)[seen:]) >= needed
    return int(np.argmax(reached)) + 1 if reached.any() else None


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
    e_value = evidence(departures["omnibus_p_value"].isel(null=0).values, alarm_floor(tree), planned_looks)
    present = heads_present(heads.isel({STEP: 0}))
    named = np.zeros(e_value.shape, dtype=bool)
    for k, one in enumerate(e_value):
        named[k, present] = raised(one[present], level)
    dims = (STEP, "layer", "head")
    values = dict(zip(ALARM_VARIABLES, ((dims, e_value), (dims[1:], _first(named, heads[STEP].values))), strict=True))
    groups["/departures"] = describe(departures.assign(values), DEPARTURES_SCHEMA)
    return tree_of(groups, {**tree.attrs, "planned_looks": planned_looks or 0, "alarm_level": level})


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
