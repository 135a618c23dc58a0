"""Comparison of training recipes, several seeds of each, with error bars and exact permutation tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, product
from itertools import permutations as orders
from math import factorial, prod
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from rmtbase.errors import ParameterError
from rmtbase.parameters import require_positive_integer
from rmtbase.results.comparison._two_models import PERMUTATIONS, permutation_p_values

_ROUNDING = 1e-13  # relative; numbers closer than this differ only by rounding
_AT_ONCE = 1 << 21  # permuted statistics held in memory at a time

Columns = Float[np.ndarray, "model column"]
Column = Float[np.ndarray, " column"]
Labels = Int[np.ndarray, "permutation model"]
Permuted = Float[np.ndarray, "permutation column"]
Statistic = Callable[[Labels, Columns, Sequence[int]], Permuted]


class GroupTest(NamedTuple):
    """Design of a permutation test of groups."""

    paired: bool = False  # whether the k-th models of all groups share all that a seed decides
    permutations: int = PERMUTATIONS  # largest number of assignments of models to groups
    seed: int = 0  # of random assignments, if there are more


def require_members(groups: Mapping[str, Sequence[object]], paired: bool) -> None:
    """Raise an error unless there are 2 or more groups of 2 or more models, of equal sizes if paired."""
    if len(groups) < 2:
        raise ParameterError("groups", list(groups), "2 groups at least")
    for name, members in groups.items():
        if len(members) < 2:
            expected = "2 models at least, to know how far seeds are apart"
            raise ParameterError(f"groups[{name!r}]", len(members), expected)
    sizes = [len(members) for members in groups.values()]
    if paired and len(set(sizes)) > 1:
        raise ParameterError("paired", sizes, "the same number of models in each group, in the same order of seeds")


def contrast_of(values: Columns, sizes: tuple[int, int], test: GroupTest) -> dict[str, Any]:
    """Compare two groups in each column; the first ``sizes[0]`` rows are the models of the first group.

    If there are at most ``permutations`` assignments of the models to the groups, all are tried and p is the share that
    is as extreme; otherwise p = (b + 1)/(B + 1) for B random assignments. The test statistic is Welch's t, or t of the
    differences if paired, adjusted for all columns by the largest. Null: all models are exchangeable, as independent
    seeds of one recipe are; if paired, the two models of each pair are. The standard error is √(s₁²/n₁ + s₂²/n₂), s the
    standard deviation from seed to seed, or s/√n of the differences. The interval assumes normal numbers.

    Source: B. L. Welch, Biometrika 34, 28 (1947); P. H. Westfall and S. S. Young, Resampling-Based Multiple Testing
        (Wiley, 1993).
    """
    from scipy.special import stdtr, stdtrit

    first, second = values[: sizes[0]], values[sizes[0] :]
    difference = second.mean(axis=0) - first.mean(axis=0)
    parts = [group.var(axis=0, ddof=1) / len(group) for group in (first, second)]
    with np.errstate(invalid="ignore", divide="ignore"):
        if test.paired:
            error, degrees = (second - first).std(axis=0, ddof=1) / np.sqrt(sizes[0]), np.array(sizes[0] - 1.0)
        else:
            error = np.sqrt(parts[0] + parts[1])
            degrees = error**4 / (parts[0] ** 2 / (sizes[0] - 1) + parts[1] ** 2 / (sizes[1] - 1))
        squares = sum((n - 1) * n * part for n, part in zip(sizes, parts, strict=True))
        seed_std = np.sqrt(squares / (sum(sizes) - 2))
        spread = error > _ROUNDING * np.abs(values).max(axis=0)  # otherwise no two seeds differ, and t is undefined
        half = np.where(spread, stdtrit(degrees, 0.975) * error, np.nan)
        t_p_value = np.where(spread, 2.0 * stdtr(degrees, -np.abs(difference / error)), np.nan)
        effect = np.where(seed_std > 0, difference / seed_std, np.nan)
    p_value, adjusted, smallest = _tested(values, sizes, _pair_t if test.paired else _welch, test)
    return {
        "first_mean": first.mean(axis=0),
        "second_mean": second.mean(axis=0),
        "difference": difference,
        "standard_error": error,
        "seed_std": seed_std,
        "effect": effect,
        "interval_low": difference - half,
        "interval_high": difference + half,
        "t_p_value": np.where((difference == 0) & np.isfinite(p_value), 1.0, t_p_value),
        "p_value": p_value,
        "adjusted_p_value": adjusted,
        "smallest_p_value": smallest,
    }


def between_of(values: Columns, sizes: Sequence[int], test: GroupTest) -> dict[str, Any]:
    """Compare K groups in each column by one-way analysis of variance; the rows are sorted by group.

    If paired, it is the two-way analysis by group and seed without interaction. The seeds' standard deviation is
    √MS_w, that between groups √max(0, (MS_b − MS_w)/n₀), F = MS_b/MS_w. Under the null of F the labels are assigned to
    the models at random, within each seed if paired; see :func:`contrast_of`.

    Source: R. A. Fisher, Statistical Methods for Research Workers (1925); M. J. Anderson and C. J. F. ter Braak, J.
        Stat. Comput. Simul. 73, 85 (2003), for the permutations.
    """
    n, k = sum(sizes), len(sizes)
    freedom = (k - 1) * (sizes[0] - 1) if test.paired else n - k
    effective = (n - sum(size**2 for size in sizes) / n) / (k - 1)
    ends = np.cumsum(sizes)[:-1]
    residuals = np.split(_centred(values, sizes, test.paired), ends)
    between = sum(len(group) * group.mean(axis=0) ** 2 for group in residuals) / (k - 1)
    within = sum(((group - group.mean(axis=0)) ** 2).sum(axis=0) for group in residuals) / freedom
    rounding = _ROUNDING**2 * (values**2).max(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        f_ratio = np.where(between > rounding, between / np.where(within > rounding, within, 0.0), 0.0)
    p_value, adjusted, smallest = _tested(values, sizes, _explained, test)
    return {
        "mean": np.stack([group.mean(axis=0) for group in np.split(values, ends)]),
        "seed_std": np.sqrt(within),
        "group_std": np.sqrt(np.maximum(between - within, 0.0) / effective),
        "f_ratio": np.where(np.isnan(between), np.nan, f_ratio),
        "p_value": p_value,
        "adjusted_p_value": adjusted,
        "smallest_p_value": smallest,
    }


def _tested(
    values: Columns, sizes: Sequence[int], statistic: Statistic, test: GroupTest
) -> tuple[Column, Column, float]:
    """p and adjusted p of a statistic of labelled models, and the smallest possible p."""
    complete = np.flatnonzero(np.isfinite(values).all(axis=0))
    residuals = _centred(values[:, complete], sizes, test.paired)
    spread = np.abs(residuals).max(axis=0)
    residuals /= np.where(spread > _ROUNDING * np.abs(values[:, complete]).max(axis=0), spread, np.inf)
    labels, exhaustive = _labels(sizes, test)
    observed = statistic(np.repeat(np.arange(len(sizes)), sizes)[None], residuals, sizes)[0]
    portions = np.array_split(labels, -(-len(labels) * max(1, complete.size) // _AT_ONCE))
    p_value, adjusted = np.full((2, values.shape[1]), np.nan)
    if complete.size:
        null = (statistic(portion, residuals, sizes) for portion in portions)
        p_value[complete], adjusted[complete] = permutation_p_values(observed, null, exhaustive)
    swaps = prod(factorial([*sizes].count(size)) for size in set(sizes))  # labels of equal groups swapped
    return p_value, adjusted, swaps / len(labels) if exhaustive else 1.0 / (len(labels) + 1)


def _centred(values: Columns, sizes: Sequence[int], paired: bool) -> Columns:
    """Subtract the mean, or that of each seed if row j of every group belongs to seed j."""
    if not paired:
        return values - values.mean(axis=0)
    cube = values.reshape(len(sizes), sizes[0], -1)
    return (cube - cube.mean(axis=0)).reshape(values.shape)


def _labels(sizes: Sequence[int], test: GroupTest) -> tuple[Labels, bool]:
    """List all assignments of the models to groups, and True; or random ones, and False, if there are too many."""
    permutations = require_positive_integer("permutations", test.permutations)
    n, k, rng = sizes[0], len(sizes), np.random.default_rng(test.seed)
    if test.paired:
        if factorial(k) ** n <= permutations:
            return np.array([np.transpose(way).ravel() for way in product(orders(range(k)), repeat=n)]), True
        groups = np.tile(np.arange(k), (permutations, n, 1))
        return rng.permuted(groups, axis=2).transpose(0, 2, 1).reshape(permutations, -1), False
    if factorial(sum(sizes)) // prod(map(factorial, sizes)) <= permutations:
        return np.array(list(_divisions(sizes, tuple(range(sum(sizes)))))), True
    return rng.permuted(np.tile(np.repeat(np.arange(k), sizes), (permutations, 1)), axis=1), False


def _divisions(sizes: Sequence[int], free: tuple[int, ...], label: int = 0) -> Iterator[np.ndarray]:
    """Iterate over all divisions of the models into groups of these sizes, as a label for each model."""
    if label == len(sizes):
        yield np.empty(sum(sizes), dtype=int)
        return
    for members in combinations(free, sizes[label]):
        remaining = tuple(place for place in free if place not in members)
        for labels in _divisions(sizes, remaining, label + 1):
            labels[list(members)] = label
            yield labels


# The statistics are t² and F as shares of the total variation, t²/(t² + ν) and F/(F + ν₂/ν₁). They increase with t² and
# F in the same way in every column, lie between 0 and 1, and lose no digits where seeds hardly differ.


def _welch(labels: Labels, values: Columns, sizes: Sequence[int]) -> Permuted:
    """Share t²/(t² + ν) of Welch's t of two groups, with ν = n − 2."""
    moments = []
    for group, size in enumerate(sizes):
        members = (labels == group).astype(float)
        mean = members @ values / size
        moments.append((mean, np.maximum(members @ values**2 / size - mean**2, 0.0) / (size - 1)))
    (first, of_first), (second, of_second) = moments
    return _share((second - first) ** 2, (sum(sizes) - 2) * (of_first + of_second))


def _pair_t(labels: Labels, values: Columns, sizes: Sequence[int]) -> Permuted:
    """Share t²/(t² + ν) of the differences within pairs, with signs given by the labels and ν = n − 1."""
    d = values[sizes[0] :] - values[: sizes[0]]
    explained = (np.where(labels[:, : sizes[0]] == 0, 1.0, -1.0) @ d) ** 2 / sizes[0]
    return _share(explained, (d**2).sum(axis=0) - explained)


def _explained(labels: Labels, values: Columns, sizes: Sequence[int]) -> Permuted:
    """Share F/(F + ν₂/ν₁) of all groups."""
    sums = [((labels == group).astype(float) @ values) ** 2 / size for group, size in enumerate(sizes)]
    between = np.sum(sums, axis=0)
    return _share(between, (values**2).sum(axis=0) - between)


def _share(explained: np.ndarray, unexplained: np.ndarray) -> Permuted:
    total = explained + np.maximum(unexplained, 0.0)
    return explained / np.where(total > 0, total, 1.0)
