"""What a trajectory says, in words: a line for each checkpoint, and when heads left each null."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import xarray as xr

from rmtbase.errors import ParameterError
from rmtbase.scoring import farthest_distance
from rmtbase.shown import in_one_line
from rmtbase.tables import FOR_GOOD, STEP, groups_of, layer_names
from rmtbase.trajectories._attributes import failures


@in_one_line
class StepSummary(NamedTuple):
    """One checkpoint.

    Attributes:
        step, revision: which.
        n_heads: heads scored.
        left: by null, how many of them have left it at this step.
        median_participation_ratio: median over the heads of the normalised participation ratio.
        farthest: the head farthest from the first null, in words; "" where none was scored.
        statistic: by which it is.
        distance: its |z|, of the logarithm where the statistic is positive and unbounded; signed.
        duplicate_of: an earlier revision with the same weights, or "".
    """

    step: int
    revision: str
    n_heads: int
    left: dict[str, int]
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
        n_heads: heads scored.
        left: heads that have left it for good.
        first, half, last: steps by which the first of these had, half of all heads, and all of them; None where that
            has not come about.
        came_back: heads that had left it at some step, and are not beyond it at the last.
    """

    null: str
    n_heads: int
    left: int
    first: int | None
    half: int | None
    last: int | None
    came_back: int

    def sentence(self) -> str:
        """In words."""
        heads = f"{self.n_heads} head{'s' * (self.n_heads != 1)}"
        back = ""
        if self.came_back:
            back = f" {self.came_back} had left it at some step, and had not at the last."
        if not self.left:
            return f"None of {heads} left the {self.null} null for good.{back}"
        when = f"the first from step {self.first} on"
        if self.half is not None:
            when += f", half of all by step {self.half}"
        if self.last is not None:
            when += f", all by step {self.last}"
        return f"{self.left} of {heads} left the {self.null} null for good: {when}.{back}"


@in_one_line
@dataclass(frozen=True)
class TrajectorySummary:
    """What a trajectory says.

    Attributes:
        model: what it is called.
        steps: each checkpoint, in the order of training.
        departures: of each null.
        failed: revisions that could not be scored, and why not.
    """

    model: str
    steps: tuple[StepSummary, ...]
    departures: tuple[Departure, ...]
    failed: dict[str, str]

    def sentences(self) -> list[str]:
        """When heads left each null, and what could not be scored."""
        level = (
            f"A head has left a null where its q-value, of all statistics together and over the heads of a step, is at "
            f"most {FOR_GOOD:g}; for good, where it is from then on at every step scored."
        )
        failed = [f"{name} could not be scored: {reason}" for name, reason in self.failed.items()]
        return [*(departure.sentence() for departure in self.departures), level, *failed]


def summarize_trajectory(tree: xr.DataTree) -> TrajectorySummary:
    """What a trajectory says of each checkpoint, and of each null.

    Raises:
        ParameterError: it is no trajectory.
    """
    if not isinstance(tree, xr.DataTree) or "departures" not in tree.children:
        raise ParameterError("tree", type(tree).__name__, "a trajectory, as rmtbase.trajectory makes it")
    groups = groups_of(tree)
    departures = groups["/departures"]
    return TrajectorySummary(
        model=str(tree.attrs["model"]),
        steps=tuple(_step(groups["/heads"], departures, k) for k in range(departures.sizes[STEP])),
        departures=tuple(_departure(departures.sel(null=null)) for null in json.loads(tree.attrs["nulls"])),
        failed=failures(tree),
    )


def _step(of_heads: xr.Dataset, departures: xr.Dataset, k: int) -> StepSummary:
    heads = of_heads.isel({STEP: k})
    q_value = departures["omnibus_q_value"].isel({STEP: k})
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
        left={str(null): int((q_value.sel(null=null).values <= FOR_GOOD).sum()) for null in q_value["null"].values},
        median_participation_ratio=float(
            heads["observed"].sel(statistic="normalized_participation_ratio").median(skipna=True)
        ),
        farthest=far,
        statistic=statistic,
        distance=how_far,
        duplicate_of=str(heads["duplicate_of"].item()),
    )


def _departure(of_null: xr.Dataset) -> Departure:
    scored = np.isfinite(of_null["omnibus_p_value"].values).any(axis=0)
    first, lasting = of_null["first_step"].values[scored], np.sort(of_null["lasting_step"].values[scored])
    left, n_heads = int(np.isfinite(lasting).sum()), int(scored.sum())  # NaN are sorted to the end

    def by(count: int) -> int | None:
        return int(lasting[count - 1]) if 0 < count <= left else None

    return Departure(
        null=str(of_null["null"].item()),
        n_heads=n_heads,
        left=left,
        first=by(1),
        half=by((n_heads + 1) // 2),
        last=by(n_heads),
        came_back=int(np.isfinite(first).sum()) - left,
    )
