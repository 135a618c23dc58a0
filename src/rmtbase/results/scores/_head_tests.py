"""Tests of heads by their spectra, elements and resampled heads, and decisions over all heads and tests."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.linalg import solve_triangular
from scipy.optimize import brentq

from rmtbase.errors import ParameterError
from rmtbase.heads.factors import null_shape
from rmtbase.heads.read_sites import read_factors, sites_of
from rmtbase.laws import RankOneSpike
from rmtbase.linalg import available_cores, core_of_triangles, core_singular_values, single_threaded_blas, triangles
from rmtbase.models import Site, WeightMatrices
from rmtbase.nulls import ANGLE_STATISTICS, HeadParts, JointNull, Null, angle_statistics
from rmtbase.progress import Progress
from rmtbase.statistics import SPECTRAL_STATISTICS, benjamini_hochberg, holm, spectral_statistics
from rmtbase.tables import QK

LEVEL = 0.05
NAMING = ("query_signs", "key_signs", "axes", "subspaces", "query_entries", "key_entries")
"""Tests that can name a cause. A direction of W_QK may be one of W_Q, of W_K or of their relation, so it names none."""
ENTRY_TESTS: Mapping[str, str] = {"query_entries": "query_signs", "key_entries": "key_signs"}
"""Tests of elements, and the test of directions in the same factor."""


class PValues(NamedTuple):
    p_value: Float[np.ndarray, "layer head"]  # NaN if a head is not testable
    floor: Float[np.ndarray, "layer head"]  # smallest possible p-value
    # smallest effect that a single test at level 0.05 finds with probability 0.95; NaN if unknown
    detectable: Float[np.ndarray, "..."] = np.array(math.nan)


class Decisions(NamedTuple):
    """Decisions of every test of every head, with the dimensions (layer, head, test)."""

    q_value: Float[np.ndarray, "layer head test"]  # smallest level at which the test rejects in its family
    yekutieli_q_value: Float[np.ndarray, "layer head test"]  # for heads of any dependence: q (1 + 1/2 + … + 1/m), ≤ 1
    holm_p_value: Float[np.ndarray, "layer head test"]  # Holm's p-value over all claims of the family
    rejected: Float[np.ndarray, "layer head test"]  # 1 or 0; NaN if the head is not testable or its draws are too few
    named: Bool[np.ndarray, "layer head test"]  # True if the test names a cause of the head


def decide(results: Mapping[str, PValues], gate: Mapping[str, float]) -> Decisions:
    """Decide on named causes, one family of all heads and tests, and on differences of the heads without one.

    Elements are named only where the directions of their factor have a p-value over ``gate``, and of the other over α.

    Source: Y. Benjamini and M. Bogomolov, J. R. Stat. Soc. B 76, 297 (2014).
    """
    tests, shape = list(results), next(iter(results.values())).p_value.shape
    p = np.stack([result.p_value for result in results.values()], axis=-1).reshape(-1, len(tests))
    smallest = np.stack([result.floor for result in results.values()], axis=-1).reshape(p.shape)
    naming = np.tile([name in NAMING for name in tests], (len(p), 1))
    for name in ENTRY_TESTS.keys() & set(tests):
        may_name = np.full(shape, True)
        for directions in ENTRY_TESTS.values():  # NaN: signs change nothing, so there is no direction
            least = gate[name] if directions == ENTRY_TESTS[name] else LEVEL
            may_name &= ~(results[directions].p_value <= least) if directions in results else False
        naming[:, tests.index(name)] = may_name.ravel()
    causes = _adjusted(p, naming)
    with_cause = np.any(causes[0] < LEVEL, axis=1, keepdims=True)
    unnamed, every = _adjusted(np.where(with_cause, np.nan, p), ~naming), _adjusted(p, ~naming)

    q_value, yekutieli, of_all = (
        np.where(naming, of_causes, np.where(with_cause, of_every, of_unnamed)).reshape(*shape, -1)
        for of_causes, of_unnamed, of_every in zip(causes, unnamed, every, strict=True)
    )
    at_floor = np.less_equal(p, smallest * (1.0 + 1e-9)).reshape(q_value.shape)
    rejected = np.where(q_value < LEVEL, 1.0, np.where(at_floor, math.nan, 0.0))
    rejected = np.where(np.isnan(q_value), math.nan, rejected)
    named = np.equal(rejected, 1.0) & naming.reshape(q_value.shape)
    return Decisions(q_value, yekutieli, of_all, rejected, named)


def draws_to_decide(
    results: Mapping[str, PValues], gate: Mapping[str, float]
) -> tuple[Bool[np.ndarray, "layer head test"], int]:
    """Find the naming tests that a smaller possible p-value could decide, and the number of draws that it takes."""
    decisions, naming = decide(results, gate), np.array([name in NAMING for name in results])
    undecided = np.isnan(decisions.rejected) & np.isfinite(decisions.q_value) & naming
    testable = np.isfinite(decisions.q_value).any(axis=-1)
    heads = undecided.any(axis=-1) | decisions.named.any(axis=-1)
    return undecided, math.ceil(int(naming.sum()) * int(testable.sum()) / (LEVEL * max(1, int(heads.sum()))))


def _adjusted(p: Float[np.ndarray, "head test"], belongs: Bool[np.ndarray, "head test"]) -> tuple[np.ndarray, ...]:
    """Return q-values of the tests in a family, those for heads of any dependence, and Holm's p-values.

    A claim with Holm p-value x is made at the level min over k of max(Q_k, x m/k): from Q_k on, k of m heads are in.
    """
    # A test that may or may not belong, by the p-value of another, counts among the head's tests in either case.
    columns = belongs.any(axis=0)
    claims = np.where(belongs, p, np.where(np.isnan(p), math.nan, 1.0))
    claims[:, ~columns] = math.nan
    within = holm(claims, axis=1)
    least = np.array([row.min(initial=math.inf, where=~np.isnan(row)) for row in within])
    testable = np.isfinite(least)
    m = int(testable.sum())
    if m == 0:
        return (np.full(p.shape, math.nan),) * 3
    selected_from = np.sort(benjamini_hochberg(least[testable]))
    levels = np.minimum(within, 1.0) * m
    for size, level in enumerate(selected_from, 1):
        np.minimum(levels, np.maximum(level, within * (m / size)), out=levels)
    q_value = np.where(belongs, np.minimum(levels, 1.0), math.nan)
    of_all = np.where(belongs, holm(claims), math.nan)
    return q_value, np.minimum(1.0, (1.0 / np.arange(1, m + 1)).sum() * q_value), of_all


DRAWS_OF_A_HEAD = 999  # default number of resampled heads for each head, and of simulated matrices of its shape
MOST_DRAWS_OF_A_HEAD = 100_000  # most resampled heads of a head whose cause fewer draws cannot name
_DRAWS = 10_000
_FIXED = 1e-9  # relative; the null fixes a statistic that varies by less
_POWER = 0.95  # power that defines ``detectable``, of a single test at :data:`LEVEL`
_ONE_SIDED = 1.645  # normal quantile of that power
_GATE_MISSES = 0.005


def of_spectra(model: WeightMatrices, tests: Sequence[str], null: Null, progress: Progress) -> dict[str, PValues]:
    """Test the spectra of W_Q and W_K, and all statistics together, against joint draws of normal heads."""
    sites = _sites(model)
    shapes = {(site.d_query, site.d_key, site.d_head) for site in sites.values()}
    if null.initialization != "normal":
        expected = "normal, for which heads and their factors can be drawn jointly"
        raise ParameterError("initialization", null.initialization, expected)
    if len(shapes) > 1:
        raise ParameterError("sites", sorted(shapes), "heads of one shape")
    ((d_query, d_key, d_head),) = shapes
    if d_query != d_key or d_head > d_query:
        raise ParameterError("d_query, d_key, d_head", (d_query, d_key, d_head), "queries and keys of one stream")
    advance = progress.bar("reading factors", len(sites))
    parts, n_heads = [], max(site.n_heads for site in sites.values())
    for index in sites:
        w_q, w_k = _factors(model, index)
        parts.append(_parts(w_q, w_k, d_query, n_heads))
        advance(1)
    heads, draws = HeadParts._make(map(np.stack, zip(*parts, strict=True))), null.draws or _DRAWS
    p_values = _joint_null(_JointDraws(d_query, d_head, draws, null.seed, progress)).p_values(heads)
    return {name: PValues(p_values[name], np.full(p_values[name].shape, 1.0 / (draws + 1))) for name in tests}


def of_resampled_heads(
    model: WeightMatrices, tests: Sequence[str], null: Null, progress: Progress
) -> dict[str, PValues]:
    """Test the elements, directions and relation of every head.

    Without a number of draws, 999 are made, and more where p is the smallest possible and a smaller one could name a
    cause. A test goes on only while no draw is as extreme as the head, so that p = (b + 1)/(n + 1) keeps its level.
    """
    sites, draws = _sites(model), _Draws(null.initialization, null.draws or DRAWS_OF_A_HEAD, null.seed)
    for index in sites:
        shape = null_shape(model, index, QK)
        if not isinstance(shape, tuple) or len(shape) != len(QK.factors) + 1:
            raise ParameterError("heads", "W_Q and W_K that are products", "matrices that are stored as they are")
    size = len(sites), max(site.n_heads for site in sites.values())
    least, d_head = dict.fromkeys(tests, 0.0), max(site.d_head for site in sites.values())
    if "axes" in tests and d_head < 12:  # 1 over the signed permutations of few axes; the common sign changes nothing
        least["axes"] = 1.0 / (math.factorial(d_head) * 2.0 ** (d_head - 1))
    unknown = np.full(size, np.nan)
    floors = {name: np.full(size, max(1.0 / (draws.number + 1), least[name])) for name in tests}
    results = {name: PValues(unknown.copy(), floors[name], unknown.copy()) for name in tests}
    heads = ((layer, head) for layer, site in enumerate(sites.values()) for head in range(site.n_heads))
    tests_of = dict.fromkeys(heads, tuple(tests))
    label = "resampling heads"
    while tests_of:
        advance = progress.bar(label, len(tests_of))
        for place, of_head in _resampled(model, tests_of, draws):
            for name, (p_value, effect) in of_head.items():
                results[name].p_value[place] = p_value
                results[name].floor[place] = max(1.0 / (draws.number + 1), least[name])
                if label == "resampling heads":
                    results[name].detectable[place] = effect
            advance(1)
        if null.draws is not None or draws.number >= MOST_DRAWS_OF_A_HEAD:
            break
        undecided, enough = draws_to_decide(results, direction_gates(model))
        tests_of = {}
        for layer, head in np.argwhere(undecided.any(axis=-1)).tolist():
            unsure = zip(tests, undecided[layer, head], strict=True)
            if names := tuple(name for name, is_unsure in unsure if is_unsure and not least[name]):
                tests_of[layer, head] = names
        draws = replace(draws, number=min(MOST_DRAWS_OF_A_HEAD, max(2 * draws.number, enough)))
        label = "resampling further"
    return results


@dataclass(frozen=True)
class _Draws:
    entries: str
    number: int
    seed: int


def _resampled(
    model: WeightMatrices, tests_of: Mapping[tuple[int, int], tuple[str, ...]], draws: _Draws
) -> Iterator[tuple[tuple[int, int], dict[str, tuple[float, float]]]]:
    from rmtbase.montecarlo import in_order

    with single_threaded_blas():
        for layer, index in enumerate(_sites(model)):
            of_heads = {head: tests for (place, head), tests in tests_of.items() if place == layer}
            if not of_heads:
                continue
            w_q, w_k = factors = _factors(model, index)
            for name, w in (("query_entries", w_q), ("key_entries", w_k)):
                if any(name in tests for tests in of_heads.values()):
                    _entry_null(*w.shape[1:], draws)  # cached before several threads need it
            cores, work = available_cores(), partial(_of_head, factors, of_heads, draws)
            with closing(in_order(work, of_heads, cores, 2 * cores, "rmtbase-why")) as futures:
                for head, future in zip(of_heads, futures, strict=True):
                    yield (layer, head), future.result()


def direction_gates(model: WeightMatrices) -> dict[str, float]:
    """Give, for each test of elements, the p-value of the factor's directions that it must exceed to name a cause."""
    sites = _sites(model).values()
    return {
        "query_entries": max(_direction_gate(site.d_head, site.d_query) for site in sites),
        "key_entries": max(_direction_gate(site.d_head, site.d_key) for site in sites),
    }


def _of_head(
    factors: tuple[np.ndarray, ...], tests_of: Mapping[int, tuple[str, ...]], draws: _Draws, head: int
) -> dict[str, tuple[float, float]]:
    from rmtbase.montecarlo import entry_statistics, flip_statistics, permutation_statistics

    tests, group = tests_of[head], len(factors[0]) // len(factors[1])
    w_q, w_k = factors[0][head], factors[1][head // group]
    results: dict[str, tuple[float, float]] = {}
    for name, w in (("query_entries", w_q), ("key_entries", w_k)):
        if name in tests and w.any():
            drawn, effect = _entry_null(*w.shape, draws)
            results[name] = _rank(np.concatenate([entry_statistics(w[None]), drawn]), _SIDES)[0], effect
    if not (w_q.any() and w_k.any()):
        return results
    (h, d), e = w_q.shape, w_k.shape[1]
    columns = {
        "query_signs": ([0, 1, 2], (h, d)),
        "key_signs": ([3, 4, 5], (h, e)),
        "signs": ([6], (d, h, e)),
        "subspaces": ([7, 8] if 2 * h <= d else [7], None),
    }
    if columns.keys() & set(tests):
        flips = flip_statistics(w_q, w_k, draws.number, draws.seed)
        for name in columns.keys() & set(tests):
            places, dims = columns[name]
            p, critical = _rank(flips[:, places], np.ones(len(places)))
            spread = flips[1:, 7].std()
            results[name] = p, (critical + _ONE_SIDED) * spread if dims is None else _share(dims)
    if "axes" in tests:
        values = permutation_statistics(w_q, w_k, draws.number, draws.seed)
        p, critical = _rank(values, np.zeros(values.shape[1]))
        results["axes"] = p, math.expm1((critical + _ONE_SIDED) * values[1:, 0].std())
    return results


def _rank(values: Float[np.ndarray, "n k"], side: Float[np.ndarray, " k"]) -> tuple[float, float]:
    """Rank the first of n rows by its largest distance, p = (b + 1)/n, and return the distance that 5 % exceed.

    ``side`` is 1 for statistics that reject if they are large, -1 if small, and 0 if either.
    """
    known = np.isfinite(values).all(axis=0)
    center, spread = values.mean(axis=0), values.std(axis=0)  # over all rows, so that they stay exchangeable
    varies = known & (spread > _FIXED * np.maximum(1.0, np.abs(center)))
    if not varies.any():
        return math.nan, math.nan
    z = (values[:, varies] - center[varies]) / spread[varies]
    distance = np.where(side[varies] == 0.0, np.abs(z), side[varies] * z).max(axis=1)
    b = np.count_nonzero(distance[1:] >= distance[0] - _FIXED)
    return (b + 1) / len(values), float(np.quantile(distance[1:], 1.0 - LEVEL))


_SIDES = np.array([0.0, 0.0, 0.0, 0.0, -1.0])  # for montecarlo.ENTRIES: a larger participation indicates a direction


@lru_cache(maxsize=16)
def _entry_null(rows: int, columns: int, draws: _Draws) -> tuple[Float[np.ndarray, "draw statistic"], float]:
    """Draw statistics of the elements of random matrices of one shape, and find the smallest detectable kurtosis."""
    from rmtbase.ensembles import independent_chain
    from rmtbase.montecarlo import simulated_entry_statistics

    drawn = simulated_entry_statistics(independent_chain((rows, columns), draws.entries), draws.number, draws.seed)
    critical, log = _rank(drawn, _SIDES)[1], drawn[:, 0]
    return drawn, float(math.exp(log.mean()) * math.expm1((critical + _ONE_SIDED) * log.std()))


@lru_cache(maxsize=64)
def _share(dims: tuple[int, ...]) -> float:
    """Return the share θ²/(E‖N‖² + θ²) of a direction that random signs find with probability 0.95; NaN over 0.9.

    Random signs turn the direction's weights into noise: at this θ, the 5 % quantile of λ_max with the direction is
    1 + θ²/E‖N‖² times the 95 % quantile without it. Measured at (64, 12): found in 94 ± 2 %.
    """
    total, spike = math.prod(map(float, dims)), RankOneSpike(dims=dims, normalization="none")
    critical = float(spike.eigenvalue_quantile(_POWER, 0.0))

    def beyond(theta: float) -> float:
        return float(spike.eigenvalue_quantile(LEVEL, theta)) - critical * (1.0 + theta**2 / total)

    low, high = 0.5 * spike.threshold, 3.0 * math.sqrt(total)
    if min(dims) < 2 or beyond(high) < 0.0:
        return math.nan
    strength = float(brentq(beyond, low, high, xtol=1e-6 * high))  # type: ignore[arg-type]
    return strength**2 / (total + strength**2)


@lru_cache(maxsize=64)
def _direction_gate(d_head: int, d_model: int) -> float:
    """Return the p-value, in steps of 0.05, that a direction at twice the threshold exceeds with probability 0.005."""
    if min(d_head, d_model) < 2:
        return 1.0
    spike = RankOneSpike(dims=(d_head, d_model), normalization="none")
    theta = 2.0 * (d_head * d_model) ** 0.25
    largest = float(spike.eigenvalue_quantile(_GATE_MISSES, theta)) / (1.0 + theta**2 / (d_head * d_model))
    levels = np.arange(0.05, 1.0, 0.05).tolist()
    return next((level for level in levels if spike.eigenvalue_quantile(1.0 - level, 0.0) <= largest), 1.0)


def _sites(model: WeightMatrices) -> dict[int, Site]:
    return {index: model.sites[index] for index in sites_of(model, QK)}


def _factors(model: WeightMatrices, site: int) -> tuple[np.ndarray, ...]:
    return tuple(np.asarray(w, dtype=np.float64) for w in read_factors(model, site, QK))


def _parts(
    w_q: Float[np.ndarray, "head rank width"], w_k: Float[np.ndarray, "key_head rank width"], d_model: int, n_heads: int
) -> HeadParts:
    """Return statistics of a layer's heads and of their factors; NaN for a rank-deficient or absent head."""
    rank, group = w_q.shape[1], len(w_q) // len(w_k)
    triangles_q, triangles_k = triangles(w_q).r, triangles(w_k).r
    sizes = [len(SPECTRAL_STATISTICS)] * 3 + [len(ANGLE_STATISTICS)]
    parts = HeadParts(*(np.full((n_heads, size), np.nan) for size in sizes))
    for head in range(len(w_q)):
        r_q, r_k = triangles_q[head], triangles_k[head // group]
        sigma_q, sigma_k = (np.linalg.norm(r) / np.sqrt(rank * d_model) for r in (r_q, r_k))
        spectra = [core_singular_values(core) for core in (core_of_triangles(r_q, r_k), r_q, r_k)]
        if min(spectrum[-1] for spectrum in spectra) <= 0.0:
            continue
        crossed = solve_triangular(r_q, w_q[head] @ w_k[head // group].T, trans=1)
        cosines = core_singular_values(solve_triangular(r_k, crossed.T, trans=1))
        for part, spectrum, scale in zip(parts[:3], spectra, (sigma_q * sigma_k, sigma_q, sigma_k), strict=True):
            part[head] = spectral_statistics(spectrum / scale)
        parts.angles[head] = angle_statistics(cosines, d_model)
    return parts


@dataclass(frozen=True)
class _JointDraws:
    d_model: int
    d_head: int
    number: int
    seed: int
    progress: Progress = field(compare=False)


@lru_cache(maxsize=8)
def _joint_null(draws: _JointDraws) -> JointNull:
    from rmtbase.ensembles import random_subspaces
    from rmtbase.montecarlo import draw_spectra, simulate_heads_with_factors

    d_model, d_head = draws.d_model, draws.d_head
    sample = simulate_heads_with_factors(d_model, d_head, 1, draws.number, draws.seed, draws.progress)
    spectra = draw_spectra(random_subspaces(d_model, d_head), draws.number, draws.seed, solver="svd")
    cosines = np.concatenate([chunk.singular_values for chunk in spectra])
    angles = angle_statistics(cosines, d_model)
    return JointNull(HeadParts(sample.product[:, 0], sample.query[:, 0], sample.key, angles))
