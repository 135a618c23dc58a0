"""Every spectral statistic of W_QK: its null beside 100 000 simulated heads of each shape.

The draws of a shape, all statistics of each at sigma = 1 without normalization, lie in one file,
``{d_model}x{d_head}_s{seed}.npz``: ``stats`` (draw, statistic) in the order of ``SPECTRAL_STATISTICS``, and ``nq`` and
``nk``, the squared Frobenius norms of W_Q and W_K, from which self-normalised statistics follow. A draw depends only on
the seed, the shape and its index.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from effort import SEED, Effort

from comparison import ASYMPTOTIC, EXACT, FloatArray, Limits, Row, Subject, count_interval, count_score
from rmtbase.ensembles import low_rank_product
from rmtbase.errors import ParameterError
from rmtbase.laws import TracyWidom, largest_eigenvalue, null, smallest_eigenvalue
from rmtbase.montecarlo import draw_spectra
from rmtbase.statistics import SPECTRAL_STATISTICS, get_statistic, spectral_statistics

SECTION = "heads"
DRAWS = 100_000
GRID = tuple((h * widening, h) for h in (16, 32, 64, 128, 256) for widening in (2, 4, 8, 16, 32, 64))
"""(d_model, d_head): gamma = d_head/d_model from 1/2 to 1/64."""
OTHERS = ((768, 64), (1600, 80), (80, 64), (72, 64), (64, 64), (16, 16))
"""Two models' heads, and nearly or wholly square ones."""
OUTSIDE = ((17, 16), (20, 16), (8, 4), (64, 4), (16, 8))
"""Where ``null`` refuses, or nearly: lower edges that are hard in all but name, and few eigenvalues."""
QUICK = ((64, 16), (128, 32), (16, 16), (20, 16))

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999)
TAILS = (1e-2, 1e-3)
EDGE_TAILS = (1e-2, 1e-3, 1e-4)
EDGES = ("largest_eigenvalue", "smallest_eigenvalue")
FIRST_ORDER = {"first order": 0.0, "first order, half-shift": 0.5}
"""Tracy-Widom laws of edge and scale alone, at dimensions lowered by a shift."""


def _both(level: float, bound: float) -> dict[tuple[float, str], float]:
    return {(p, side): bound for p in EDGE_TAILS if p >= level for side in ("upper", "lower")}


_EDGE = Limits(0.05, 0.03, 0.1, tail={(p, "upper"): 0.2 for p in EDGE_TAILS})
_CONDITION = Limits(0.1, 0.03, tail=_both(1e-3, 0.2))
_OTHERS = Limits(0.1, 0.03, tail=_both(1e-3, 0.25))
_EXACT_MOMENTS = Limits(tail=_both(1e-3, 0.2))
LIMITS = {
    **dict.fromkeys(EDGES, _EDGE),
    **dict.fromkeys(("trace", "trace_of_square"), _EXACT_MOMENTS),
    **dict.fromkeys(("condition_number", "condition_number_singular"), _CONDITION),
}


class Draws(NamedTuple):
    """Simulated statistics (draw, statistic) of one shape, raw and self-normalised."""

    raw: FloatArray
    own: FloatArray

    def of(self, statistic: str, self_normalized: bool) -> FloatArray:
        """Select the draws of one statistic."""
        return (self.own if self_normalized else self.raw)[:, list(SPECTRAL_STATISTICS).index(statistic)]


def shapes(effort: Effort) -> Iterator[tuple[tuple[int, int], str]]:
    """Each shape with its group, those without draws left out if none are to be made."""
    for group, members in (("grid", GRID), ("others", OTHERS), ("outside", OUTSIDE)):
        for shape in members:
            if (not effort.quick or shape in QUICK) and (effort.simulate or _path(effort, shape).is_file()):
                yield shape, group


def draws_of(effort: Effort, shape: tuple[int, int]) -> Draws:
    """Read the draws of a shape from its file, or simulate them and keep them there."""
    path, count = _path(effort, shape), effort.draws(DRAWS)
    stored = dict(np.load(path)) if path.is_file() else {}
    if not stored or (effort.simulate and len(stored["stats"]) < count):
        stored = _simulate(shape, count)
        if not effort.quick:
            path.parent.mkdir(parents=True, exist_ok=True)
            unfinished = path.with_suffix(".part.npz")
            np.savez(unfinished, **stored)
            unfinished.replace(path)
    raw = stored["stats"][:count]
    own = raw.copy()
    # Estimates of sigma_Q^2 sigma_K^2, whose true value is 1.
    scale = stored["nq"][:count] * stored["nk"][:count] / float(shape[0] * shape[1]) ** 2
    for column, statistic in enumerate(SPECTRAL_STATISTICS.values()):
        own[:, column] = statistic.rescale(raw[:, column], 1.0 / scale, shape[1])
    return Draws(raw, own)


def run(effort: Effort) -> tuple[list[Row], dict[str, Any]]:
    """Compare all statistics of all shapes."""
    rows: list[Row] = []
    for shape, group in shapes(effort):
        draws = draws_of(effort, shape)
        rows += _outside(shape, draws) if group == "outside" else _inside(shape, group, draws)
        print(f"  {shape}", flush=True)
    rows += _pooled(rows)
    return rows, {"statistics": list(SPECTRAL_STATISTICS)}


def _path(effort: Effort, shape: tuple[int, int]):
    return effort.draws_folder / f"{shape[0]}x{shape[1]}_s{SEED}.npz"


def _simulate(shape: tuple[int, int], count: int) -> dict[str, FloatArray]:
    statistics, nq, nk = [], [], []
    for chunk in draw_spectra(low_rank_product(*shape), count, SEED, f"validation {shape[0]}x{shape[1]}"):
        statistics.append(spectral_statistics(chunk.singular_values))
        nq.append(chunk.norm_squared[:, 0])
        nk.append(chunk.norm_squared[:, 1])
    return {"stats": np.concatenate(statistics), "nq": np.concatenate(nq), "nk": np.concatenate(nk)}


def _subject(statistic: str, shape: tuple[int, int], own: bool, method: str, group: str) -> Subject:
    parameters = {"d_model": shape[0], "d_head": shape[1], "self_normalized": own}
    return Subject(SECTION, statistic, parameters, method, LIMITS.get(statistic, _OTHERS), group)


def _inside(shape: tuple[int, int], group: str, draws: Draws) -> Iterator[Row]:
    dims = (shape[0], shape[1], shape[0])
    for statistic in SPECTRAL_STATISTICS:
        for own in (False, True):
            if own and get_statistic(statistic).scaling == 0:
                continue  # the same draws and the same law
            try:
                law = null(statistic, dims=dims, self_normalized=own, normalization="none")
            except ParameterError:
                continue  # fewer eigenvalues than the law asks for
            sample = draws.of(statistic, own)
            edge = statistic in EDGES
            # Of exact moments mean and standard deviation are judged as exact, the tails as asymptotic.
            subject = _subject(statistic, shape, own, ASYMPTOTIC if law.method.startswith(ASYMPTOTIC) else EXACT, group)
            yield from subject.law(sample, law, QUANTILES if edge else (), () if subject.method == EXACT else
                                   EDGE_TAILS if edge else TAILS)  # fmt: skip
            if subject.method == EXACT:
                shaped = subject if law.method == EXACT else replace(subject, method=ASYMPTOTIC)
                for p in TAILS:
                    yield shaped.tail(sample, float(law.isf(p)), p, "upper")
                    yield shaped.tail(sample, float(law.ppf(p)), p, "lower")
            if edge and not own and shape[0] > shape[1]:  # at a hard edge there is no scale
                yield from _first_order(statistic, shape, sample)


def _outside(shape: tuple[int, int], draws: Draws) -> Iterator[Row]:
    dims = (shape[0], shape[1], shape[0])
    for statistic, law in (
        (EDGES[0], largest_eigenvalue(dims=dims, normalization="none")),
        (EDGES[1], smallest_eigenvalue(dims=dims, normalization="none")),
    ):
        subject = _subject(statistic, shape, False, ASYMPTOTIC, "outside")
        yield from subject.law(draws.of(statistic, False), law, QUANTILES, EDGE_TAILS)


def _first_order(statistic: str, shape: tuple[int, int], sample: FloatArray) -> Iterator[Row]:
    """Compare the first-order law (only edge and scale, Tracy-Widom), which the second-order law improves on."""
    outwards = 1.0 if statistic == EDGES[0] else -1.0
    for group, shift in FIRST_ORDER.items():
        edge, scale = edge_and_scale(shape[0] - shift, shape[1] - shift, outwards)
        subject = replace(_subject(statistic, shape, False, ASYMPTOTIC, group), limits=Limits())
        tw = TracyWidom(1)
        yield subject.mean(sample, edge + outwards * scale * tw.mean())
        yield subject.std(sample, scale * tw.std())
        for p in EDGE_TAILS:
            side = "upper" if outwards > 0.0 else "lower"
            yield subject.tail(sample, edge + outwards * scale * float(tw.isf(p)), p, side)


def edge_and_scale(d: float, h: float, outwards: float) -> tuple[float, float]:
    """Edge and Tracy-Widom scale of W_QK at sigma = 1, from F(psi) = d^2 (1 + psi) (1 + gamma psi)^2 / psi."""
    gamma = h / d
    psi = (-1.0 + outwards * np.sqrt(1.0 + 8.0 / gamma)) / 4.0
    edge = d**2 * (1.0 + psi) * (1.0 + gamma * psi) ** 2 / psi
    curvature = abs(edge * (1.0 / psi**2 - 1.0 / (1.0 + psi) ** 2 - 2.0 * (gamma / (1.0 + gamma * psi)) ** 2))
    return float(edge), float((edge * np.sqrt(0.5 * curvature) / h) ** (2.0 / 3.0))


def _pooled(rows: list[Row]) -> Iterator[Row]:
    """Pool counts beyond the extreme eigenvalues' quantiles by d_head: one shape has too few draws for the far tail."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if "tail" in row.of and row.quantity in EDGES and row.group in ("grid", *FIRST_ORDER):
            shape = (row.parameters["d_model"], row.parameters["d_head"])
            if shape in GRID:
                for head in (shape[1], "all"):
                    key = (row.quantity, row.of, row.analytic, row.group, head, row.parameters["self_normalized"])
                    groups.setdefault(key, []).append(row)
    for (quantity, of, probability, group, head, own), members in groups.items():
        hits = sum(round(row.simulated * row.draws) for row in members)
        draws = sum(row.draws for row in members)
        parameters = {"d_head": head, "shapes": len(members), "self_normalized": own}
        bound = 0.2 if group == "grid" and of.startswith("upper") else None
        low, high = count_interval(hits) / (probability * draws)
        judged = {} if bound is None else {
            "judged": "ratio", "low": 1.0 - bound, "high": 1.0 + bound,
            "passed": bool(low <= 1.0 + bound and high >= 1.0 - bound),
        }  # fmt: skip
        yield Row(
            SECTION, quantity, parameters, of, ASYMPTOTIC,
            probability, hits / draws, float(np.sqrt(probability / draws)), count_score(hits, draws, probability),
            draws,            ratio=hits / (probability * draws), group=f"pooled, {group}", **judged,
        )  # fmt: skip
