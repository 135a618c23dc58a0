"""Turning points of the pooled Weibull fit along training: figure 14 of the Weibull paper as rows, with errors."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri

from rmtbase.laws import weibull_null
from studies.sources.course import POOLED, TRIMS, Member
from studies.sources.published import printed_interval, published_table
from studies.sources.recipe import Null, Row
from studies.sources.verdicts import Claim, Kind, decided, needs
from studies.sources.weibull_shapes import PAPER

_LEVEL = 0.05
_NEEDS = f"EleutherAI/{POOLED}"


class Pooled(NamedTuple):
    """Pooled fit at each checkpoint of a model, with what weights that learned nothing would give.

    Attributes:
        steps: of the checkpoints.
        value: the fitted k̂ or λ̂.
        error: standard error of independent normal weights with the σ of each matrix; of λ̂ an upper bound, since how
            many weights have each σ is taken as drawn.
        null: mean of the same.
    """

    steps: Float[np.ndarray, " step"]
    value: Float[np.ndarray, " step"]
    error: Float[np.ndarray, " step"]
    null: Float[np.ndarray, " step"]


class TurningPoint(NamedTuple):
    """Largest value along training.

    Attributes:
        step: checkpoint with the largest value.
        value: that value.
        error: its standard error.
        low, high: checkpoints between which the maximum lies, with 95 % confidence.
        is_turn: True if the first and the last value are smaller, at the 5 % level for all checkpoints together.
    """

    step: float
    value: float
    error: float
    low: float
    high: float
    is_turn: bool


def pooled_fits(one: Member) -> tuple[Pooled, Pooled]:
    """Return the pooled k̂ and λ̂ of a model at its pooled checkpoints, with their errors."""
    states = [state for _, state in one.pooled]
    steps = np.array([float(at.step or 0) for at, _ in one.pooled])
    nulls = [weibull_null(TRIMS[0], state.mixture()) for state in states]
    number = [int(state.number.sum()) for state in states]
    each = []
    for place, statistic in enumerate(("shape", "scale")):
        laws = [getattr(null, statistic) for null in nulls]
        value = np.array([state.whole[place] for state in states])
        error, mean = (
            np.array([getattr(law, moment)(n) for law, n in zip(laws, number, strict=True)])
            for moment in ("std", "mean")
        )
        each.append(Pooled(steps, value, error, mean))
    return each[0], each[1]


def turning_point(
    steps: Float[np.ndarray, " step"], value: Float[np.ndarray, " step"], error: Float[np.ndarray, " step"]
) -> TurningPoint:
    """Find the largest value along the steps, and between which checkpoints the maximum can lie.

    A checkpoint is left out if its value is below the largest one by more than the errors of both allow, at the 5 %
    level divided by the number of comparisons: with independent normal errors, the checkpoint with the largest true
    value is kept in at least 95 % of courses. The maximum lies between the neighbours of what is kept.
    """
    at = int(np.argmax(value))
    if value.size < 2:
        return TurningPoint(
            float(steps[at]), float(value[at]), float(error[at]), float(steps[0]), float(steps[0]), False
        )
    reach = -ndtri(_LEVEL / (value.size - 1)) * np.hypot(error, error[at])
    kept = np.flatnonzero(value >= value[at] - reach)
    low, high = max(int(kept[0]) - 1, 0), min(int(kept[-1]) + 1, value.size - 1)
    is_turn = bool(kept[0] > 0 and kept[-1] < value.size - 1)
    return TurningPoint(
        float(steps[at]), float(value[at]), float(error[at]), float(steps[low]), float(steps[high]), is_turn
    )


def turning_rows(one: Member) -> Iterator[Row]:
    """Figure 14 of a model with several checkpoints: the largest pooled k̂ and λ̂, and their steps."""
    if len(one.pooled) < 3:
        return
    place, text = f"{PAPER}, figure 14", published_table("weibull-text")
    is_own = one.run.is_of(POOLED)
    number = len(one.pooled)
    for fits, symbol, named in zip(
        pooled_fits(one),
        ("k̂", "λ̂"),
        (
            ("k of Pythia-70m, pooled, near step 4000", "step of the largest k of Pythia-70m, pooled"),
            ("λ of Pythia-70m, pooled, near step 32000", "step of the largest λ of Pythia-70m, pooled"),
        ),
        strict=True,
    ):
        turn = turning_point(fits.steps, fits.value, fits.error)
        printed, step = (text.number(name, "value") for name in named)
        rounding = printed_interval(f"{printed:g}")
        assert rounding is not None  # a number
        claim = Claim(Kind.PRINTED, turn.value, low=rounding.low, high=rounding.high, error=turn.error)
        null = Null(
            float(fits.null[fits.steps == turn.step][0]), turn.error, of="normal weights, each matrix's σ, pooled"
        )
        said = decided(claim) if is_own else needs(_NEEDS, claim)
        note = f"of {number} checkpoints; standard error {turn.error:.1g}"
        yield Row(place, f"largest pooled {symbol} along training", printed, turn.value, null, said, note=note)
        between = f"between steps {turn.low:g} and {turn.high:g} (95 %)"
        turns = "it turns" if turn.is_turn else "no turn beyond the errors"
        claim = Claim(Kind.PRINTED, step if turn.is_turn else None, low=turn.low, high=turn.high)
        said = decided(claim) if is_own else needs(_NEEDS, claim)
        yield Row(place, f"step of the largest pooled {symbol}", f"near {step:g}", turn.step, None, said,
                  note=f"{between}; {turns}")  # fmt: skip
