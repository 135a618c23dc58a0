"""Tests of heads by their spectra, by their elements, and against heads resampled from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.linalg import solve_triangular
from scipy.optimize import brentq

from rmtbase.errors import ParameterError
from rmtbase.heads.factors import null_shape
from rmtbase.heads.read_sites import read_factors, sites_of
from rmtbase.laws import RankOneSpike
from rmtbase.linalg import available_cores, core_of_triangles, core_singular_values, single_threaded_blas, triangles
from rmtbase.models import WeightMatrices
from rmtbase.nulls import ANGLE_STATISTICS, HeadParts, JointNull, angle_statistics
from rmtbase.progress import Progress
from rmtbase.results.scores._cause_families import draws_to_decide
from rmtbase.statistics import SPECTRAL_STATISTICS, spectral_statistics
from rmtbase.tables import CIRCUITS

DRAWS_OF_A_HEAD = 999
"""Default number of resampled heads for each head, and of simulated matrices of its shape."""

MOST_DRAWS_OF_A_HEAD = 100_000
"""Most resampled heads of a head whose cause fewer draws cannot name."""

_DRAWS = 10_000
_QK = CIRCUITS["qk"]
_FIXED = 1e-9  # relative; the null fixes a statistic that varies by less
_LEVEL, _POWER = 0.05, 0.95  # level of a single test, and the power that defines ``detectable``
_ONE_SIDED = 1.645  # normal quantile of that power
_GATE_MISSES = 0.005


class Found(NamedTuple):
    """Result of one test for every head."""

    p_value: Float[np.ndarray, "layer head"]  # p-values (layer, head); NaN if a head is not testable
    floor: Float[np.ndarray, "layer head"]  # smallest possible p-value (layer, head)
    # smallest effect that a single test at level 0.05 finds with probability 0.95; NaN if unknown
    detectable: Float[np.ndarray, "..."] = np.array(math.nan)


def of_spectra(
    model: WeightMatrices, tests: Sequence[str], entries: str, draws: int | None, seed: int, progress: Progress
) -> dict[str, Found]:
    """Test the spectra of W_Q and W_K, and all statistics together, against joint draws of normal heads."""
    sites = _sites(model)
    shapes = {(one.d_query, one.d_key, one.d_head) for one in sites}
    if entries != "normal":
        raise ParameterError(
            "initialization", entries, "normal, for which heads and their factors can be drawn jointly"
        )
    if len(shapes) > 1:
        raise ParameterError("sites", sorted(shapes), "heads of one shape")
    ((d_query, d_key, d_head),) = shapes
    if d_query != d_key or d_head > d_query:
        raise ParameterError("d_query, d_key, d_head", (d_query, d_key, d_head), "queries and keys of one stream")
    advance = progress.bar("reading factors", len(sites))
    parts, n_heads = [], max(site.n_heads for site in sites)
    for site in sites_of(model, _QK):
        parts.append(_parts(*_factors(model, site), d_query, n_heads))
        advance(1)
    heads = HeadParts(*map(np.stack, zip(*parts, strict=True)))
    draws = draws or _DRAWS
    p_values = _joint_null(_JointDraws(d_query, d_head, draws, seed, progress)).p_values(heads)
    return {name: Found(p_values[name], np.full(p_values[name].shape, 1.0 / (draws + 1))) for name in tests}


def of_resampled_heads(
    model: WeightMatrices, tests: Sequence[str], entries: str, draws: int | None, seed: int, progress: Progress
) -> dict[str, Found]:
    """Test the elements, directions and relation of every head.

    Without a number of draws, 999 are made of each head, and more of a head whose tests have their smallest possible
    p-value, as long as a smaller one could name a cause. A test goes on only while no draw is as extreme as the head,
    so that p = (b + 1)/(n + 1) keeps its level at the n at which it stops.
    """
    for site in sites_of(model, _QK):
        shape = null_shape(model, site, _QK)
        if not isinstance(shape, tuple) or len(shape) != len(_QK.factors) + 1:
            raise ParameterError("heads", "W_Q and W_K that are products", "matrices that are stored as they are")
    sites, number = _sites(model), draws or DRAWS_OF_A_HEAD
    size = len(sites), max(site.n_heads for site in sites)
    p_value = {name: np.full(size, np.nan) for name in tests}
    detectable = {name: np.full(size, np.nan) for name in tests}
    least = {name: _least_p_value(name, max(s.d_head for s in sites)) for name in tests}
    floor = {name: np.full(size, max(1.0 / (number + 1), least[name])) for name in tests}
    wanted = {(layer, head): tuple(tests) for layer, site in enumerate(sites) for head in range(site.n_heads)}
    label = "resampling heads"
    while wanted:
        for place, results in _resampled(model, wanted, entries, number, seed, progress.bar(label, len(wanted))):
            for name, (p, smallest) in results.items():
                p_value[name][place] = p
                floor[name][place] = max(1.0 / (number + 1), least[name])
                if label == "resampling heads":
                    detectable[name][place] = smallest
        if draws is not None or number >= MOST_DRAWS_OF_A_HEAD:
            break
        undecided, enough = draws_to_decide(p_value, floor, direction_gates(model))
        wanted = {}
        for layer, head in np.argwhere(undecided.any(axis=-1)):
            wanted[int(layer), int(head)] = tuple(
                name for name, unsure in zip(tests, undecided[layer, head], strict=True) if unsure and not least[name]
            )
        wanted = {place: names for place, names in wanted.items() if names}
        number, label = min(MOST_DRAWS_OF_A_HEAD, max(2 * number, enough)), "resampling further"
    return {name: Found(p_value[name], floor[name], detectable[name]) for name in tests}


def _resampled(
    model: WeightMatrices,
    wanted: Mapping[tuple[int, int], tuple[str, ...]],
    entries: str,
    draws: int,
    seed: int,
    advance: Callable[[int], None],
) -> Iterator[tuple[tuple[int, int], dict[str, tuple[float, float]]]]:
    """Yield the results of the wanted tests of each (layer, head)."""
    from rmtbase.montecarlo import in_order

    with single_threaded_blas():
        for layer, site in enumerate(sites_of(model, _QK)):
            places = [place for place in wanted if place[0] == layer]
            if not places:
                continue
            w_q, w_k = _factors(model, site)
            group = len(w_q) // len(w_k)

            def of_place(k: int, w_q=w_q, w_k=w_k, group=group, places=places) -> dict[str, tuple[float, float]]:  # type: ignore[no-untyped-def]
                head = places[k][1]
                return _of_head(w_q[head], w_k[head // group], wanted[places[k]], entries, draws, seed)

            for name, w in (("query_entries", w_q), ("key_entries", w_k)):
                if any(name in wanted[place] for place in places):
                    _entry_null(*w.shape[1:], entries, draws, seed)  # cached before several threads need it
            cores = available_cores()
            with closing(in_order(of_place, range(len(places)), cores, 2 * cores, "rmtbase-why")) as heads:
                for place, results in zip(places, heads, strict=True):
                    yield place, results.result()
                    advance(1)


def direction_gates(model: WeightMatrices) -> dict[str, float]:
    """Give, for each test of elements, the p-value of the factor's directions that it must exceed to name a cause."""
    sites = _sites(model)
    return {
        "query_entries": max(_direction_gate(site.d_head, site.d_query) for site in sites),
        "key_entries": max(_direction_gate(site.d_head, site.d_key) for site in sites),
    }


def _of_head(
    w_q: Float[np.ndarray, "h d"],
    w_k: Float[np.ndarray, "h e"],
    tests: Sequence[str],
    entries: str,
    draws: int,
    seed: int,
) -> dict[str, tuple[float, float]]:
    """Return the p-value of each test and its smallest detectable effect."""
    from rmtbase.montecarlo import entry_statistics, flip_statistics, permutation_statistics

    found: dict[str, tuple[float, float]] = {}
    zero = {"query": not w_q.any(), "key": not w_k.any()}
    for name, w in (("query", w_q), ("key", w_k)):
        if f"{name}_entries" in tests and not zero[name]:
            null = _entry_null(*w.shape, entries, draws, seed)
            found[f"{name}_entries"] = null.p_value(entry_statistics(w[None])[0]), null.detectable
    if any(zero.values()):
        return found
    (h, d), e = w_q.shape, w_k.shape[1]
    if {"query_signs", "key_signs", "signs", "subspaces"} & set(tests):
        flips = flip_statistics(w_q, w_k, draws, seed)
        columns = {
            "query_signs": ([0, 1, 2], _share((h, d))),
            "key_signs": ([3, 4, 5], _share((h, e))),
            "signs": ([6], _share((d, h, e))),
            "subspaces": ([7, 8] if 2 * h <= d else [7], None),
        }
        for name in columns.keys() & set(tests):
            places, share = columns[name]
            p, critical = _rank(flips[:, places], np.ones(len(places)))
            spread = flips[1:, 7].std()
            found[name] = p, share if share is not None else (critical + _ONE_SIDED) * spread
    if "axes" in tests:
        values = permutation_statistics(w_q, w_k, draws, seed)
        p, critical = _rank(values, np.zeros(values.shape[1]))
        found["axes"] = p, math.expm1((critical + _ONE_SIDED) * values[1:, 0].std())
    return found


def _rank(values: Float[np.ndarray, "n k"], side: Float[np.ndarray, " k"]) -> tuple[float, float]:
    """Rank the first of n rows by its largest distance, p = (b + 1)/n, and return the distance that 5 % exceed.

    Distances are in standard deviations over all rows, including the first, so that the rows stay exchangeable.
    ``side`` is 1 for statistics that reject if they are large, -1 if small, and 0 if either. The result is NaN if no
    statistic varies.
    """
    known = np.isfinite(values).all(axis=0)
    center, spread = values.mean(axis=0), values.std(axis=0)
    varies = known & (spread > _FIXED * np.maximum(1.0, np.abs(center)))
    if not varies.any():
        return math.nan, math.nan
    z = (values[:, varies] - center[varies]) / spread[varies]
    distance = np.where(side[varies] == 0.0, np.abs(z), side[varies] * z).max(axis=1)
    b = np.count_nonzero(distance[1:] >= distance[0] - _FIXED)
    return (b + 1) / len(values), float(np.quantile(distance[1:], 1.0 - _LEVEL))


_SIDES = np.array([0.0, 0.0, 0.0, 0.0, -1.0])  # for montecarlo.ENTRIES: a larger participation indicates a direction


@dataclass(frozen=True)
class _EntryNull:
    """Statistics of the elements of random matrices with one shape."""

    drawn: Float[np.ndarray, "draw statistic"]

    def p_value(self, observed: Float[np.ndarray, " statistic"]) -> float:
        return _rank(np.concatenate([observed[None], self.drawn]), _SIDES)[0]

    @cached_property
    def detectable(self) -> float:
        """Excess kurtosis that shifts ln ⟨w⁴⟩ by the critical distance plus 1.645 standard deviations."""
        critical = _rank(self.drawn, _SIDES)[1]
        log = self.drawn[:, 0]
        return float(math.exp(log.mean()) * math.expm1((critical + _ONE_SIDED) * log.std()))


@lru_cache(maxsize=16)
def _entry_null(rows: int, columns: int, entries: str, draws: int, seed: int) -> _EntryNull:
    from rmtbase.ensembles import independent_chain
    from rmtbase.montecarlo import simulated_entry_statistics

    return _EntryNull(simulated_entry_statistics(independent_chain((rows, columns), entries), draws, seed))


@lru_cache(maxsize=64)
def _share(dims: tuple[int, ...]) -> float:
    """Return the share θ²/(E‖N‖² + θ²) of a direction that random signs find with probability 0.95; NaN over 0.9.

    Random signs turn the direction's weights into noise, so that λ_max of the draws grows by the factor 1 + θ²/E‖N‖².
    At this θ, the 5 % quantile of λ_max with the direction is that factor times the 95 % quantile without it. The
    elements are normal. Measured at (64, 12): found in 94 ± 2 %.
    """
    total, spike = math.prod(map(float, dims)), RankOneSpike(dims=dims, normalization="none")
    critical = float(spike.eigenvalue_quantile(_POWER, 0.0))

    def beyond(theta: float) -> float:
        return float(spike.eigenvalue_quantile(_LEVEL, theta)) - critical * (1.0 + theta**2 / total)

    low, high = 0.5 * spike.threshold, 3.0 * math.sqrt(total)
    if min(dims) < 2 or beyond(high) < 0.0:
        return math.nan
    strength = float(brentq(beyond, low, high, xtol=1e-6 * high))  # type: ignore[arg-type]
    return strength**2 / (total + strength**2)


@lru_cache(maxsize=64)
def _direction_gate(d_head: int, d_model: int) -> float:
    """Return the smallest p-value, in steps of 0.05, above which a direction at twice the threshold seldom lies.

    Seldom means with probability 0.005 by the law of λ_max, for normal elements. Under row gains e^(z/2) such a
    direction has less power at small shapes: studies/causes has what is measured there.
    """
    if min(d_head, d_model) < 2:
        return 1.0
    spike = RankOneSpike(dims=(d_head, d_model), normalization="none")
    theta = 2.0 * (d_head * d_model) ** 0.25
    largest = float(spike.eigenvalue_quantile(_GATE_MISSES, theta)) / (1.0 + theta**2 / (d_head * d_model))
    levels = np.arange(0.05, 1.0, 0.05).tolist()
    return next((level for level in levels if spike.eigenvalue_quantile(1.0 - level, 0.0) <= largest), 1.0)


def _least_p_value(test: str, d_head: int) -> float:
    """Return 1 over the number of distinct signed permutations of a few axes; the common sign changes nothing."""
    return 1.0 / (math.factorial(d_head) * 2.0 ** (d_head - 1)) if test == "axes" and d_head < 12 else 0.0


def _sites(model: WeightMatrices) -> list:
    return [model.sites[site] for site in sites_of(model, _QK)]


def _factors(model: WeightMatrices, site: int) -> tuple[np.ndarray, np.ndarray]:
    w_q, w_k = (np.asarray(w, dtype=np.float64) for w in read_factors(model, site, _QK))
    return w_q, w_k


def _parts(
    w_q: Float[np.ndarray, "head rank width"], w_k: Float[np.ndarray, "key_head rank width"], d_model: int, n_heads: int
) -> HeadParts:
    """Return statistics of a layer's heads and of their factors; NaN for a rank-deficient or absent head."""
    rank, group = w_q.shape[1], len(w_q) // len(w_k)
    r_q, r_k = triangles(w_q).r, triangles(w_k).r
    sizes = [len(SPECTRAL_STATISTICS)] * 3 + [len(ANGLE_STATISTICS)]
    whole = HeadParts(*(np.full((n_heads, size), np.nan) for size in sizes))
    for head in range(len(w_q)):
        one_q, one_k = r_q[head], r_k[head // group]
        sigmas = [np.linalg.norm(one) / np.sqrt(rank * d_model) for one in (one_q, one_k)]
        values = [core_singular_values(one) for one in (core_of_triangles(one_q, one_k), one_q, one_k)]
        if min(each[-1] for each in values) <= 0.0:
            continue
        crossed = w_q[head] @ w_k[head // group].T
        crossed = solve_triangular(one_q, crossed, trans=1)
        cosines = core_singular_values(solve_triangular(one_k, crossed.T, trans=1))
        for at, each, scale in zip(whole[:3], values, (sigmas[0] * sigmas[1], *sigmas), strict=True):
            at[head] = spectral_statistics(each / scale)
        whole.angles[head] = angle_statistics(cosines, d_model)
    return whole


@dataclass(frozen=True)
class _JointDraws:
    """Parameters of a joint null; ``progress`` is ignored in comparisons."""

    d_model: int
    d_head: int
    draws: int
    seed: int
    progress: Progress = field(compare=False)


@lru_cache(maxsize=8)
def _joint_null(of: _JointDraws) -> JointNull:
    """Draw the joint null of normal heads with one shape."""
    from rmtbase.ensembles import random_subspaces
    from rmtbase.montecarlo import draw_spectra, simulate_heads_with_factors

    sample = simulate_heads_with_factors(of.d_model, of.d_head, 1, of.draws, of.seed, of.progress)
    of_angles = draw_spectra(random_subspaces(of.d_model, of.d_head), of.draws, of.seed, solver="svd")
    cosines = np.concatenate([chunk.singular_values for chunk in of_angles])
    angles = angle_statistics(cosines, of.d_model)
    return JointNull(HeadParts(sample.product[:, 0], sample.query[:, 0], sample.key, angles))
