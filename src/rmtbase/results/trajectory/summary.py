"""Summary of a trajectory: a line for each checkpoint, and the departures of heads from each null."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import xarray as xr

from rmtbase.errors import ParameterError
from rmtbase.results.scores._distance import farthest_distance
from rmtbase.results.scores._null_words import RESAMPLINGS, null_noun
from rmtbase.results.scores.summary import summarize_scores
from rmtbase.results.trajectory._alarm import alarm_sentence
from rmtbase.results.trajectory._attributes import failures
from rmtbase.results.trajectory.schema import FOR_GOOD, STEP, scores_at
from rmtbase.shown import in_one_line, percent
from rmtbase.tables import NotTestable, groups_of, heads_present, layer_names, not_testable_words, plural


@in_one_line
class StepSummary(NamedTuple):
    """Summary of one checkpoint.

    Attributes:
        step, revision: step and revision of the checkpoint.
        n_heads: number of heads that could be tested against the first null.
        left: number of heads that differ from each null at this step; None if no head could be tested against it.
        tested: number of heads that could be tested against each null.
        median_participation_ratio: median over the heads of the normalized participation ratio.
        farthest: the head farthest from the first null, in words; "" if none was scored.
        statistic: statistic by which it is farthest.
        distance: signed z-score of that statistic, or of its logarithm if the statistic is positive and unbounded.
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
    """Steps at which the heads of a model departed from a null.

    Attributes:
        null: name of the null.
        n_heads: number of heads that could be tested against it at the last step; others cannot depart for good.
        left: number of heads that departed for good.
        first, half, last: steps by which the first head, half of the heads and all heads departed for good; None if
            that did not happen.
        came_back: number of heads that departed at some step, but not for good.
        not_testable: heads that could not be tested at the last step, each with its reason.
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
        """Describe the departures in one sentence or two."""
        found = f"came to differ from {against(self.null)} for good"
        words = not_testable_words(self.not_testable, self.n_heads + len(self.not_testable), "head")
        if not self.n_heads:
            return f"Against {against(self.null)}: 0 of 0 testable; {words}."
        heads = f"{self.n_heads} {'testable ' if words else ''}{plural(self.n_heads, 'head')}"
        back, also = "", f"; {words}" if words else ""
        if self.came_back:
            back = f" {self.came_back} differed from it at some step, but not at the last."
        if not self.left:
            return f"None of {heads} {found}{also}.{back}"
        when = f"the first from step {self.first} on"
        if self.half is not None:
            when += f", half of all by step {self.half}"
        if self.last is not None:
            when = f"all from step {self.last} on" if self.last == self.first else f"{when}, all by step {self.last}"
        return f"{self.left} of {heads} {found}: {when}{also}.{back}"


@in_one_line
@dataclass(frozen=True)
class TrajectorySummary:
    """Summary of a trajectory.

    Attributes:
        model: name of the model.
        steps: summary of each checkpoint, in the order of training.
        departures: departures from each null.
        failed: revisions that could not be scored, with the reasons.
        alarm: sentence about the alarm of a watched run and the smallest effect that it detects; "" for other runs.
        most: sentence about the heads that differ most at the last step; empty if none differs.
        growth: sentence about the moved share along the steps; "" if it is not known.
    """

    model: str
    steps: tuple[StepSummary, ...]
    departures: tuple[Departure, ...]
    failed: dict[str, str]
    alarm: str = ""
    most: tuple[str, ...] = ()
    growth: str = ""

    def sentences(self) -> list[str]:
        """Give the answer, and say when a head counts as differing."""
        return [*self.answer(), self.level()]

    def answer(self) -> list[str]:
        """Say when heads came to differ, which differ most and by how much, and what could not be scored."""
        failed = [f"{name} could not be scored: {reason}" for name, reason in self.failed.items()]
        departures = [departure.sentence() for departure in self.departures]
        return [*departures, *filter(None, (*self.most, self.growth, self.alarm)), *failed]

    def level(self) -> str:
        """Say when a head counts as differing from a null."""
        return (
            f"A head differs if its q-value, of all statistics together and over the heads of a step, is "
            f"at most {FOR_GOOD:g}; it differs for good if this holds at every later step scored, too."
        )


def against(null: str) -> str:
    """Say what heads are compared with under a null of that name; unusual random heads are named."""
    words = null_noun({"null": null, "null_method": "resampled"}, "head")
    return words if null in ("gaussian", *RESAMPLINGS) else f"{words} ({null})"


def summarize_trajectory(tree: xr.DataTree) -> TrajectorySummary:
    """Summarize each checkpoint of a trajectory, and the departures from each null.

    Raises:
        ParameterError: it is not a trajectory.
    """
    if not isinstance(tree, xr.DataTree) or "departures" not in tree.children:
        raise ParameterError("tree", type(tree).__name__, "a trajectory, as rmtbase.trajectory makes it")
    groups = groups_of(tree)
    departures = groups["/departures"]
    of_last = summarize_scores(scores_at(tree, int(departures[STEP][-1])))
    nulls, last = json.loads(tree.attrs["nulls"]), groups["/heads"].isel({STEP: -1})
    return TrajectorySummary(
        model=str(tree.attrs["model"]),
        steps=tuple(_step(groups["/heads"], departures, k) for k in range(departures.sizes[STEP])),
        departures=tuple(_departure(departures.sel(null=null), last, nulls[0]) for null in nulls),
        failed=failures(tree),
        alarm=alarm_sentence(tree),
        most=_at_last_step(tuple(of_last.moved.sentences())),
        growth=_growth(groups["/heads"]) if of_last.findings else "",
    )


def _at_last_step(sentences: tuple[str, ...]) -> tuple[str, ...]:
    if not sentences:
        return ()
    first, *others = sentences
    return f"At the last step: {first[0].lower()}{first[1:]}", *others


def _growth(heads: xr.Dataset) -> str:
    """Write the median moved share at the first step, where it is largest, and at the last step."""
    moved = heads["moved_share"].transpose(STEP, ...).values.reshape(heads.sizes[STEP], -1)
    known = np.flatnonzero(np.isfinite(moved).any(axis=1))
    if known.size < 2:
        return ""
    median, steps = np.nanmedian(moved[known], axis=1), heads[STEP].values[known].tolist()
    named = dict.fromkeys((0, int(median.argmax()), known.size - 1))
    return f"Median moved share: {', '.join(f'{percent(median[k])} at step {steps[k]}' for k in named)}."


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
    lacking = f"no p-value against {against(null)} at step {int(last[STEP])}"
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
