"""What a trajectory says, in words: a line for each checkpoint, and when heads left each null."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import xarray as xr

from rmtbase.errors import ParameterError
from rmtbase.results.scores import farthest_distance
from rmtbase.results.trajectory._alarm import alarm_sentence
from rmtbase.results.trajectory._attributes import failures
from rmtbase.results.trajectory.schema import FOR_GOOD, STEP
from rmtbase.shown import in_one_line
from rmtbase.tables import NotTestable, groups_of, heads_present, layer_names, not_testable_words, plural


@in_one_line
class StepSummary(NamedTuple):
    """One checkpoint.

    Attributes:
        step, revision: which.
        n_heads: heads that could be tested against the first null.
        left: by null, how many heads have left it at this step; None where none could be tested against it.
        tested: by null, how many could be.
        median_participation_ratio: median over the heads of the normalised participation ratio.
        farthest: the head farthest from the first null, in words; "" where none was scored.
        statistic: by which it is.
        distance: its |z|, of the logarithm where the statistic is positive and unbounded; signed.
        duplicate_of: an earlier revision with the same weights, or "".
    """

    step: int
    revision: str
    n_heads: int
    left: dict[str, int | None]
    tested: dict[str, int]
    median_participation_ratio: float
    farthest: str
    statistic: str
    distance: float
    duplicate_of: str


@in_one_line
class Departure(NamedTuple):
    """When the heads of a model left a null.

    Attributes:
        null: which.
        n_heads: heads that could be tested against it at the last step: the others cannot have left it for good.
        left: heads that have left it for good.
        first, half, last: steps by which the first of these had, half of all heads, and all of them; None where that
            has not come about.
        came_back: heads that had left it at some step, and are not beyond it at the last.
        not_testable: the heads that could not be tested at the last step, each with its reason.
    """

    null: str
    n_heads: int
    left: int
    first: int | None
    half: int | None
    last: int | None
    came_back: int
    not_testable: tuple[NotTestable, ...] = ()

    def sentence(self) -> str:
        """In words."""
        found = f"left the {self.null} null for good"
        words = not_testable_words(self.not_testable, self.n_heads + len(self.not_testable), "head")
        if not self.n_heads:
            return f"Against the {self.null} null: 0 of 0 testable; {words}."
        heads = f"{self.n_heads} {'testable ' if words else ''}{plural(self.n_heads, 'head')}"
        back, also = "", f"; {words}" if words else ""
        if self.came_back:
            back = f" {self.came_back} had left it at some step, and had not at the last."
        if not self.left:
            return f"None of {heads} {found}{also}.{back}"
        when = f"the first from step {self.first} on"
        if self.half is not None:
            when += f", half of all by step {self.half}"
        if self.last is not None:
            when += f", all by step {self.last}"
        return f"{self.left} of {heads} {found}: {when}{also}.{back}"


@in_one_line
@dataclass(frozen=True)
class TrajectorySummary:
    """What a trajectory says.

    Attributes:
        model: what it is called.
        steps: each checkpoint, in the order of training.
        departures: of each null.
        failed: revisions that could not be scored, and why not.
        alarm: what the alarm of a watched run says, and what it can see; "" of a run that was not watched.
    """

    model: str
    steps: tuple[StepSummary, ...]
    departures: tuple[Departure, ...]
    failed: dict[str, str]
    alarm: str = ""

    def sentences(self) -> list[str]:
        """When heads left each null, and what could not be scored."""
        level = (
            f"A head has left a null where its q-value, of all statistics together and over the heads of a step, is at "
            f"most {FOR_GOOD:g}; for good, where it is from then on at every step scored."
        )
        failed = [f"{name} could not be scored: {reason}" for name, reason in self.failed.items()]
        alarm = [self.alarm] if self.alarm else []
        return [*(departure.sentence() for departure in self.departures), level, *alarm, *failed]


def summarize_trajectory(tree: xr.DataTree) -> TrajectorySummary:
    """What a trajectory says of each checkpoint, and of each null.

    Raises:
        ParameterError: it is no trajectory.
    """
    if not isinstance(tree, xr.DataTree) or "departures" not in tree.children:
        raise ParameterError("tree", type(tree).__name__, "a trajectory, as rmtbase.trajectory makes it")
    groups = groups_of(tree)
    departures = groups["/departures"]
    nulls, last = json.loads(tree.attrs["nulls"]), groups["/heads"].isel({STEP: -1})
    return TrajectorySummary(
        model=str(tree.attrs["model"]),
        steps=tuple(_step(groups["/heads"], departures, k) for k in range(departures.sizes[STEP])),
        departures=tuple(_departure(departures.sel(null=null), last, nulls[0]) for null in nulls),
        failed=failures(tree),
        alarm=alarm_sentence(tree),
    )


def _step(of_heads: xr.Dataset, departures: xr.Dataset, k: int) -> StepSummary:
    heads = of_heads.isel({STEP: k})
    q_value = departures["omnibus_q_value"].isel({STEP: k})
    by_null = {str(null): q_value.sel(null=null).values for null in q_value["null"].values}
    distance = farthest_distance(heads)
    far, statistic, how_far = "", "", np.nan
    if np.isfinite(distance).any():
        layer, head = np.unravel_index(np.nanargmax(np.abs(distance)), distance.shape)
        far = f"{layer_names(heads)[layer]} head {heads['head'].values[head]}"
        statistic, how_far = str(heads["farthest_statistic"].values[layer, head]), float(distance[layer, head])
    return StepSummary(
        step=int(heads[STEP]),
        revision=str(heads["revision"].item()),
        n_heads=int(np.isfinite(heads["omnibus_p_value"].values).sum()),
        left={null: int((q <= FOR_GOOD).sum()) if np.isfinite(q).any() else None for null, q in by_null.items()},
        tested={null: int(np.isfinite(q).sum()) for null, q in by_null.items()},
        median_participation_ratio=float(
            heads["observed"].sel(statistic="normalized_participation_ratio").median(skipna=True)
        ),
        farthest=far,
        statistic=statistic,
        distance=how_far,
        duplicate_of=str(heads["duplicate_of"].item()),
    )


def _departure(of_null: xr.Dataset, heads: xr.Dataset, first_null: str) -> Departure:
    last = of_null.isel({STEP: -1})
    scored = np.isfinite(last["omnibus_p_value"].values)
    first, lasting = of_null["first_step"].values[scored], np.sort(of_null["lasting_step"].values[scored])
    left, n_heads, null = int(np.isfinite(lasting).sum()), int(scored.sum()), str(of_null["null"].item())
    there = heads_present(heads)
    reasons = heads["reason"].values if "reason" in heads and null == first_null else np.full(there.shape, "")
    lacking = f"no p-value against the {null} null at step {int(last[STEP])}"
    names = layer_names(heads)

    def by(count: int) -> int | None:
        return int(lasting[count - 1]) if 0 < count <= left else None

    return Departure(
        null=null,
        n_heads=n_heads,
        left=left,
        first=by(1),
        half=by((n_heads + 1) // 2),
        last=by(n_heads),
        came_back=int(np.isfinite(first).sum()) - left,
        not_testable=tuple(
            NotTestable(f"{names[layer]} head {heads['head'].values[head]}", str(reasons[layer, head]) or lacking)
            for layer, head in np.argwhere(there & ~scored).tolist()
        ),
    )
