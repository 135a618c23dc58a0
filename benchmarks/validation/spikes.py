"""A planted rank-one spike: where its eigenvalue lies, where its vectors point, and how often it is found."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from effort import Effort, generator

from comparison import ASYMPTOTIC, FloatArray, Limits, Row, Subject
from rmtbase.laws import RankOneSpike, largest_eigenvalue

SECTION = "spikes"
LEVEL = 0.05
STRENGTHS = (0.5, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0)
"""In units of the threshold."""
_OUTLIER = Limits(0.1, 0.05, value=0.03)
_OUT = 1.5  # thresholds, from which the outlier is compared with its limit
_CHUNK = 200


@dataclass(frozen=True)
class Case:
    """A head with a spike on W_QK (factor None) or on W_Q (factor 0)."""

    d_model: int
    d_head: int
    factor: int | None
    draws: int


CASES = (Case(256, 32, None, 4000), Case(256, 32, 0, 4000), Case(256, 64, None, 2000))


class Top(NamedTuple):
    """The largest eigenvalue, and the squared cosines of its left and right vectors with the spike's directions."""

    eigenvalue: FloatArray
    left: FloatArray
    right: FloatArray


def run(effort: Effort) -> tuple[list[Row], dict[str, Any]]:
    """Compare every case at every strength."""
    rows: list[Row] = []
    curves = []
    for case in CASES[: 1 if effort.quick else None]:
        found = list(_case(case, effort.draws(case.draws)))
        rows += found
        spike = _spike(case)
        at = np.linspace(0.0, 3.0, 121)
        curves.append(
            {
                "d_model": case.d_model,
                "d_head": case.d_head,
                "factor": case.factor,
                "strength": at.tolist(),
                "power": spike.power(at * spike.threshold, LEVEL).tolist(),
                "eigenvalue": (spike.eigenvalue(at * spike.threshold) / spike.edge).tolist(),
                "edge": spike.edge,
            }
        )
        print(f"  {case}", flush=True)
    return rows, {"spikes": curves}


def _dims(case: Case) -> tuple[int, int, int]:
    return case.d_model, case.d_head, case.d_model


def _spike(case: Case) -> RankOneSpike:
    return RankOneSpike(dims=_dims(case), factor=case.factor, normalization="none")


def _case(case: Case, count: int) -> Iterator[Row]:
    spike = _spike(case)
    critical = float(largest_eigenvalue(dims=_dims(case), normalization="none").isf(LEVEL))
    for times in STRENGTHS:
        theta = times * spike.threshold
        top = _draw(case, theta, count, generator(f"spike {case} {times}"))
        parameters = {
            "d_model": case.d_model, "d_head": case.d_head,
            "on": "W_QK" if case.factor is None else "W_Q", "strength/threshold": times,
        }  # fmt: skip
        found = int((top.eigenvalue > critical).sum())
        share = found / count
        error = math.sqrt(max(share * (1.0 - share), 1.0 / count) / count)
        power = Subject(SECTION, "power at level 0.05", parameters, ASYMPTOTIC, Limits(mean=0.05))
        yield power.number("probability", float(spike.power(theta, LEVEL)), share, error, count, spread=1.0)
        limits = _OUTLIER if times >= _OUT else Limits()
        outlier = Subject(SECTION, "largest eigenvalue", parameters, ASYMPTOTIC, limits)
        yield outlier.mean(top.eigenvalue, float(spike.eigenvalue(theta)))
        if times > 1.0:
            yield outlier.std(top.eigenvalue, float(spike.eigenvalue_std(theta)))
            for side, expected in zip(("left", "right"), spike.overlaps(theta), strict=True):
                overlap = getattr(top, side)
                yield Subject(SECTION, f"squared {side} overlap", parameters, ASYMPTOTIC, limits).number(
                    "mean", float(expected), float(overlap.mean()), float(overlap.std() / math.sqrt(count)), count
                )


def _draw(case: Case, theta: float, count: int, rng: np.random.Generator) -> Top:
    """Draw dense heads with a spike of two coordinate vectors, which are as good as any two."""
    parts = [_chunk(case, theta, min(_CHUNK, count - start), rng) for start in range(0, count, _CHUNK)]
    return Top(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def _chunk(case: Case, theta: float, count: int, rng: np.random.Generator) -> Top:
    left = rng.standard_normal((count, case.d_model, case.d_head))
    right = rng.standard_normal((count, case.d_model, case.d_head))
    u, v = np.zeros((count, case.d_model)), np.zeros((count, case.d_model))
    u[:, 0] = 1.0
    if case.factor is None:  # W = left right^T + theta u v^T, of rank d_head + 1
        v[:, 0] = 1.0
        left = np.concatenate([left, theta * u[:, :, None]], axis=2)
        right = np.concatenate([right, v[:, :, None]], axis=2)
    else:  # theta u e^T on the left factor, which the chain carries to u (right e)^T
        left[:, 0, 0] += theta
        v = right[:, :, 0] / np.linalg.norm(right[:, :, 0], axis=1)[:, None]
    q_left, r_left = np.linalg.qr(left)
    q_right, r_right = np.linalg.qr(right)
    x, s, yt = np.linalg.svd(r_left @ r_right.mT)
    first = np.einsum("ni,nij,nj->n", u, q_left, x[:, :, 0])
    second = np.einsum("ni,nij,nj->n", v, q_right, yt[:, 0, :])
    return Top(s[:, 0] ** 2, first**2, second**2)
