"""Trajectories in sentences, on the terminal and as JSON: a line for each checkpoint, and the departures of heads."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from rmtbase.errors import ParameterError
from rmtbase.reasons import NotTestable, Reason, not_testable_json
from rmtbase.report import DETAILS, UNTESTED, Column, Heading, Item, Rows
from rmtbase.results.scores._how_much import farthest_distance
from rmtbase.results.scores.schema import RESAMPLINGS
from rmtbase.results.scores.summary import head_records, summarize_scores
from rmtbase.results.scores.words import null_noun
from rmtbase.results.trajectory._alarm import alarm_sentence
from rmtbase.results.trajectory._along_steps import failures
from rmtbase.results.trajectory.schema import FOR_GOOD, STEP, scores_at, steps_before
from rmtbase.shown import in_one_line, percent
from rmtbase.statistics import SPECTRAL_STATISTICS
from rmtbase.tables import groups_of, heads_present, layer_names
from rmtbase.words import counted, plural, untested_words

DIFFERS = (
    f"A head differs if its q-value, of all statistics together and over the heads of a step, is at most {FOR_GOOD:g}; "
    "it differs for good if this holds at every later step scored, too. Between two checkpoints: it differs at the "
    "second and not at the first, where a small difference may go unseen."
)


@in_one_line
class StepSummary(NamedTuple):
    """Summary of one checkpoint."""

    # step, revision: step and revision of the checkpoint
    step: int
    revision: str
    n_heads: int  # number of heads that could be tested against the first null
    # number of heads that differ from each null at this step; None if no head could be tested against it
    left: dict[str, int | None]
    tested: dict[str, int]  # number of heads that could be tested against each null
    median_participation_ratio: float  # median over the heads of the normalized participation ratio
    farthest: str  # the head farthest from the first null, in words; "" if none was scored
    statistic: str  # statistic by which it is farthest
    distance: float  # signed z-score of that statistic, or of its logarithm if the statistic is positive and unbounded
    duplicate_of: str  # an earlier revision with the same weights, or ""


@in_one_line
class Departure(NamedTuple):
    """Checkpoints between which the heads of a model departed from a null.

    Attributes:
        first, half, last: steps of the checkpoints by which the first head, half of the heads and all heads had
            departed for good; None if that did not happen.
        first_after, half_after, last_after: steps of the last checkpoints at which that had not yet happened; None if
            there is no such checkpoint. ``half`` allows for a share of 5 % of the heads that differ by chance: for
            simulated heads that depart at random times, 8 to 144 of them, each of the three intervals misses its time
            in at most 6 % of runs, and that of a head in 3 %.
    """

    null: str  # name of the null
    n_heads: int  # number of heads that could be tested against it at the last step; others cannot depart for good
    left: int  # number of heads that departed for good
    first: int | None
    first_after: int | None
    half: int | None
    half_after: int | None
    last: int | None
    last_after: int | None
    came_back: int  # number of heads that departed at some step, but not for good
    checkpoints: tuple[int, int]  # steps of the first and the last checkpoint
    not_testable: tuple[NotTestable, ...] = ()  # heads that could not be tested at the last step, each with its reason

    def sentence(self) -> str:
        """Describe the departures in one sentence or two."""
        noun, (begin, end) = against(self.null), self.checkpoints
        untested = untested_words(self.not_testable, self.n_heads + len(self.not_testable), "head")
        if not self.n_heads:
            return f"Whether heads differ from {noun} at the last step cannot be told: {untested}."
        heads = f"{self.n_heads} {'testable ' if untested else ''}{plural(self.n_heads, 'head')}"
        untested = f"; {untested}" if untested else ""
        if begin == end:
            differ = "differs" if self.left == 1 else "differ"
            return f"{self.left or 'None'} of {heads} {differ} from {noun} at step {end}, the only one{untested}."
        came_back = f" {self.came_back} differed from it at some step, but not at the last." if self.came_back else ""
        intervals = ((self.first_after, self.first), (self.half_after, self.half), (self.last_after, self.last))
        first, half, last = ("" if by is None else between_checkpoints(after, by, begin) for after, by in intervals)
        parts = [first]
        if first == last:
            parts = [f"{'all ' * (self.n_heads > 1)}{first}"]
        elif self.left > 1:
            parts = [f"the first half {half}" if first == half else f"the first {first}"]
            parts += [f"half of all reached {half}"] if half and first != half else []
            parts += [f"the last {last}"] if last else []
        when = f": {', '.join(parts)}" if self.left else ""
        return f"{self.left or 'None'} of {heads} came to differ from {noun} for good{when}{untested}.{came_back}"


@in_one_line
@dataclass(frozen=True)
class TrajectorySummary:
    """Summary of a trajectory."""

    model: str  # name of the model
    steps: tuple[StepSummary, ...]  # summary of each checkpoint, in the order of training
    departures: tuple[Departure, ...]  # departures from each null
    failed: dict[str, str]  # revisions that could not be scored, with the reasons
    # sentence about the alarm of a watched run and the smallest effect that it detects; "" for other runs
    alarm: str = ""
    most: tuple[str, ...] = ()  # sentences about the heads that differ most at the last step; empty if none differs
    growth: str = ""  # sentence about the moved share along the steps; "" if it is not known

    def sentences(self) -> list[str]:
        """Give the answer, and say when a head counts as differing."""
        return [*self.answer(), DIFFERS]

    def answer(self) -> list[str]:
        """Say when heads came to differ, which differ most and by how much, and what could not be scored."""
        departures = [departure.sentence() for departure in self.departures]
        most = [f"At the last step: {self.most[0]}", *self.most[1:]] if self.most else []
        failed = [f"{name} could not be scored: {reason}" for name, reason in self.failed.items()]
        return [*departures, *most, *filter(None, (self.growth, self.alarm)), *failed]


def between_checkpoints(after: int | None, by: int | None, begin: int) -> str:
    """Name the checkpoint at which something is so, and the last one before, at which it is not."""
    if after is not None:
        return f"between step {after} and {by}"
    return f"already at the first checkpoint, step {by}" if by == begin else f"by step {by}"


def against(null: str) -> str:
    """Say what heads are compared with under a null of that name; unusual random heads are named."""
    words = null_noun(null)
    return words if null in ("gaussian", *RESAMPLINGS) else f"{words} ({null})"


def summarize_trajectory(tree: xr.DataTree) -> TrajectorySummary:
    """Summarize each checkpoint of a trajectory, and the departures from each null."""
    if not isinstance(tree, xr.DataTree) or "departures" not in tree.children:
        raise ParameterError("tree", type(tree).__name__, "a trajectory, as rmtbase.trajectory makes it")
    groups = groups_of(tree)
    departures, heads = groups["/departures"], groups["/heads"]
    of_last, growth = summarize_scores(scores_at(tree, int(departures[STEP][-1]))), ""
    moved = heads["moved_share"].transpose(STEP, ...).values.reshape(heads.sizes[STEP], -1)
    measured = np.flatnonzero(np.isfinite(moved).any(axis=1))
    if of_last.findings and measured.size > 1:
        median, steps = np.nanmedian(moved[measured], axis=1), heads[STEP].values[measured].tolist()
        places = dict.fromkeys((0, int(median.argmax()), measured.size - 1))  # the first, the largest and the last
        growth = f"Median moved share: {', '.join(f'{percent(median[k])} at step {steps[k]}' for k in places)}."
    nulls, last = json.loads(tree.attrs["nulls"]), heads.isel({STEP: -1})
    return TrajectorySummary(
        model=str(tree.attrs["model"]),
        steps=tuple(_step(heads.isel({STEP: k}), departures.isel({STEP: k})) for k in range(departures.sizes[STEP])),
        departures=tuple(_departure(departures.sel(null=null), last, null == nulls[0]) for null in nulls),
        failed=failures(tree),
        alarm=alarm_sentence(tree),
        most=tuple(of_last.moved.sentences()),
        growth=growth,
    )


def _step(heads: xr.Dataset, departures: xr.Dataset) -> StepSummary:
    q_value = departures["omnibus_q_value"]
    by_null = {str(null): q_value.sel(null=null).values for null in q_value["null"].values}
    tested = {null: int(np.isfinite(q).sum()) for null, q in by_null.items()}
    distance = farthest_distance(heads)
    name, statistic, size = "", "", np.nan
    if np.isfinite(distance).any():
        layer, head = np.unravel_index(np.nanargmax(np.abs(distance)), distance.shape)
        name = f"{layer_names(heads)[layer]} head {heads['head'].values[head]}"
        statistic, size = str(heads["farthest_statistic"].values[layer, head]), float(distance[layer, head])
    ratio = heads["observed"].sel(statistic="normalized_participation_ratio")
    return StepSummary(
        step=int(heads[STEP]),
        revision=str(heads["revision"].item()),
        n_heads=int(np.isfinite(heads["omnibus_p_value"].values).sum()),
        left={null: int((q <= FOR_GOOD).sum()) if tested[null] else None for null, q in by_null.items()},
        tested=tested,
        median_participation_ratio=float(ratio.median(skipna=True)),
        farthest=name,
        statistic=statistic,
        distance=size,
        duplicate_of=str(heads["duplicate_of"].item()),
    )


def _departure(of_null: xr.Dataset, heads: xr.Dataset, is_first: bool) -> Departure:
    steps, null = of_null[STEP].values, str(of_null["null"].item())
    tested = np.isfinite(of_null["omnibus_p_value"].isel({STEP: -1}).values)
    departed, lasting = of_null["first_step"].values[tested], of_null["lasting_step"].values[tested]
    q_value = of_null["omnibus_q_value"].transpose(STEP, "layer", "head").values[:, tested]
    left, n_heads = int(np.isfinite(lasting).sum()), int(tested.sum())
    # Of heads that depart, times and the checkpoints before them are sorted apart: a bound of each order statistic.
    before = np.sort(np.nan_to_num(steps_before(q_value, steps), nan=-np.inf)[np.isfinite(lasting)])
    lasting = np.sort(lasting)

    def interval(fewer: int, count: int) -> tuple[int | None, int | None]:
        if not 0 < count <= left:
            return None, None
        return int(before[fewer - 1]) if np.isfinite(before[fewer - 1]) else None, int(lasting[count - 1])

    half_of_all = (n_heads + 1) // 2
    sure = math.ceil(half_of_all / (1.0 - FOR_GOOD))  # of the heads that differ a share of 5 % may differ by chance
    (first_after, first), (half_after, half), (last_after, last) = (
        interval(1, 1), interval(half_of_all, min(sure, n_heads)), interval(n_heads, n_heads)
    )  # fmt: skip
    names, missing = layer_names(heads), Reason("no_p_value", {"null": null, "step": int(steps[-1])})
    untested = []
    for layer, head in np.argwhere(heads_present(heads) & ~tested).tolist():
        reason = Reason.read(heads["reason"].values[layer, head]) if "reason" in heads and is_first else Reason()
        untested.append(NotTestable(f"{names[layer]} head {heads['head'].values[head]}", reason or missing))
    came_back = int(np.isfinite(departed).sum()) - left
    return Departure(
        null, n_heads, left, first, first_after, half, half_after, last, last_after, came_back,
        checkpoints=(int(steps[0]), int(steps[-1])), not_testable=tuple(untested),
    )  # fmt: skip


def as_json(tree: xr.DataTree, path: Path | None = None) -> dict[str, Any]:
    """Return every head at every step against the first null, and the summary of the run, as plain data."""
    summary = summarize_trajectory(tree)
    return {
        "file": None if path is None else str(path),
        "model": summary.model,
        "heads": [
            {"step": at.step} | record for at in summary.steps for record in head_records(scores_at(tree, at.step))
        ],
        "steps": [step._asdict() for step in summary.steps],
        "departures": [
            departure._asdict() | {"not_testable": not_testable_json(departure.not_testable)}
            for departure in summary.departures
        ],
        "failed": summary.failed,
        "sentences": summary.sentences(),
    }


def report(tree: xr.DataTree) -> Iterator[Item]:
    """Say when heads began to differ, which differ most, and what failed; as details each checkpoint."""

    def number(step: StepSummary, null: str) -> str:
        differing, tested = step.left[null], step.tested[null]
        if differing is None:
            return UNTESTED
        return str(differing) if tested == step.n_heads else f"{differing} of {tested}"

    def by(step: StepSummary) -> str:
        on_log_scale = bool(step.statistic) and SPECTRAL_STATISTICS[step.statistic].on_log_scale
        return f"ln {step.statistic}" if on_log_scale else step.statistic

    summary = summarize_trajectory(tree)
    steps = summary.steps
    columns = (
        Column("step", cell=lambda step: str(step.step)),
        Column("revision", "left", cell=lambda step: step.revision),
        *(
            Column(f"differ from {against(departure.null)}", cell=partial(number, null=departure.null))
            for departure in summary.departures
        ),
        Column("of testable heads", cell=lambda step: str(step.n_heads)),
        Column(
            "median NPR", form=".4f", cell=lambda step: step.median_participation_ratio if step.farthest else UNTESTED
        ),
        Column("farthest head", "left", cell=lambda step: step.farthest or UNTESTED),
        Column("by", "left", cell=by),
        Column("z", form="+.1f", cell=lambda step: step.distance),
        Column("", "left", cell=lambda step: f"as {step.duplicate_of}" if step.duplicate_of else ""),
    )
    yield Heading(f"{summary.model}: {counted(len(steps), 'checkpoint')}, steps {steps[0].step} to {steps[-1].step}")
    yield from summary.answer()
    yield DETAILS
    yield DIFFERS
    yield Rows.of(steps, *columns, named=2)
