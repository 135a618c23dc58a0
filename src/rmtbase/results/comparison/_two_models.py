"""Permutation tests for a difference between the heads of two models, for each statistic and for all together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import comb

import numpy as np
import xarray as xr
from jaxtyping import Float

from rmtbase.parameters import require_positive_integer
from rmtbase.reasons import Reason
from rmtbase.results.scores._distance import signed_distance
from rmtbase.results.scores._heads import require_scores
from rmtbase.shown import in_one_line, shown
from rmtbase.statistics import SPECTRAL_STATISTICS
from rmtbase.tables import heads_present, shapes_of

LEVEL = 0.05
"""Significance level, and false discovery rate, of all tests of a comparison."""

PERMUTATIONS = 9_999
_AT_ONCE = 4_000_000  # signs held in memory at a time
_TIES = 1e-9  # test statistics closer than this are ties


@in_one_line
@dataclass(frozen=True)
class TwoModels:
    """Result of tests whether the heads of two models differ in their distances from the null."""

    statistics: tuple[str, ...]  # names of the spectral statistics, in the order of the arrays below
    paired: bool  # whether heads at equal positions were paired
    n: int  # number of units compared: pairs of key heads if paired, otherwise the key heads of both models
    # second minus first, in standard deviations of the heads' own nulls: the median over units of the differences if
    # paired, otherwise the difference of the medians. NaN for a statistic without a null.
    difference: Float[np.ndarray, " statistic"]
    p_value: Float[np.ndarray, " statistic"]  # two-sided permutation p-value of each statistic
    # the same, adjusted for all statistics by the largest, with their correlations: the probability that any of them is
    # so extreme
    adjusted_p_value: Float[np.ndarray, " statistic"]
    omnibus_p_value: float  # p-value of all statistics together, the smallest of the adjusted ones
    reason: Reason = field(default_factory=Reason)  # why the heads cannot be compared


def compare_two(first: xr.DataTree, second: xr.DataTree, permutations: int = PERMUTATIONS, seed: int = 0) -> TwoModels:
    """Compare the heads of two models by their signed distances from their own nulls, a scale free of σ and shape.

    The unit is a key head. Heads that share a key head share a matrix, and their distances are averaged. If the models
    have different numbers of heads per key head, so that averages would differ in spread, only the first head of each
    key head is used. If both models have the same layers, heads and key heads of the same sizes, heads at equal
    positions are paired; the statistic is Wilcoxon's signed-rank statistic of the differences, with random signs that
    are the same for all statistics of a unit. Otherwise all units are pooled, and the statistic is the rank sum, with
    units assigned to the models at random. P-values are adjusted for all statistics together by the largest of them
    (Westfall and Young). p = (b + 1)/(B + 1) for B permutations.

    Null: if paired, the two heads at a position are exchangeable, independently of other positions; if pooled, all
    units of both models are exchangeable. Both hold for untrained models. Heads of trained models depend on each other
    within a layer, so the test asks whether these two sets of heads differ, not whether two ways of training do. To
    test the latter, compare several seeds of each by groups of models.

    Source: F. Wilcoxon, Biometrics Bull. 1, 80 (1945); P. H. Westfall and S. S. Young, Resampling-Based Multiple
        Testing (Wiley, 1993); B. Phipson and G. K. Smyth, Stat. Appl. Genet. Mol. Biol. 9, 39 (2010).
    """
    permutations, rng = require_positive_integer("permutations", permutations), np.random.default_rng(seed)
    models, paired = (first, second), same_places(first, second)
    names = [name for name in SPECTRAL_STATISTICS if all(name in _statistics(scores) for scores in models)]
    first_only = _sharing(first) != _sharing(second)
    units = [_units(scores, first_only)[..., [_statistics(scores).index(name) for name in names]] for scores in models]
    tested = [np.isfinite(values).any(axis=-1) for values in units]
    units = [values[tested[0] & tested[1] if paired else mask] for values, mask in zip(units, tested, strict=True)]
    p_value, adjusted = np.full((2, len(names)), np.nan)
    for values, scores in zip(units, models, strict=True):
        if len(values) < 2:
            model = "both models" if paired else shown(scores.attrs["model"])
            reason = Reason("few_key_heads", {"count": len(values), "model": model})
            return TwoModels(tuple(names), False, 0, p_value, p_value, adjusted, float("nan"), reason)
    medians = [np.median(values, axis=0) for values in units]
    difference = np.median(units[1] - units[0], axis=0) if paired else medians[1] - medians[0]
    complete = np.flatnonzero(np.isfinite(np.concatenate(units)).all(axis=0))
    # Sorted by content, so that the p-values do not depend on which model is given first.
    x, y = (values[:, complete] for values in (units if paired else sorted(units, key=np.ndarray.tobytes)))
    observed, null = (_signed_rank if paired else _rank_sum)(x, y, permutations, rng)
    p_value[complete], adjusted[complete] = permutation_p_values(observed, null)
    sizes = len(x), len(y)
    # The test is two-sided: every permutation is as extreme as its reverse.
    ways = (2 ** sizes[0] if paired else comb(sum(sizes), sizes[0])) // 2
    return TwoModels(
        statistics=tuple(names),
        paired=paired,
        n=sizes[0] if paired else sum(sizes),
        difference=difference,
        p_value=p_value,
        adjusted_p_value=adjusted,
        omnibus_p_value=float(adjusted[complete].min()) if complete.size else float("nan"),
        reason=too_few_ways(ways, permutations) or (Reason() if complete.size else Reason("no_common_statistic")),
    )


def too_few_ways(ways: int, permutations: int) -> Reason:
    """Return why a permutation test cannot give p < 0.05: too few permutations exist or were drawn."""
    if ways * LEVEL <= 1:
        return Reason("few_ways", {"ways": ways, "p_value": 1 / ways})
    if (permutations + 1) * LEVEL <= 1:
        return Reason("few_permutations", {"permutations": permutations, "p_value": 1 / (permutations + 1)})
    return Reason()


def permutation_p_values(
    observed: Float[np.ndarray, " test"], null: Iterable[Float[np.ndarray, "permutation test"]], every: bool = False
) -> tuple[Float[np.ndarray, " test"], Float[np.ndarray, " test"]]:
    """Two-sided p-value of each test, and the same adjusted for all tests by the largest.

    They are (b + 1)/(B + 1) for B random permutations, or b/B if ``null`` holds ``every`` permutation, including the
    observed one. ``null`` is an iterable of portions.
    """
    far = np.abs(observed) - _TIES
    n = observed_too = 0 if every else 1
    single, joint = np.full((2, far.size), observed_too)
    for portion in null:
        distance = np.abs(portion)
        single = single + (distance >= far).sum(axis=0)
        joint = joint + (distance.max(axis=1, initial=0.0)[:, None] >= far).sum(axis=0)
        n += len(portion)
    return single / n, joint / n


def head_units(scores: xr.DataTree) -> Float[np.ndarray, "unit statistic"]:
    """Average the signed distances of each key head's heads, for key heads that were scored."""
    units = _units(scores)
    return units[np.isfinite(units).any(axis=-1)]


def same_places(first: xr.DataTree, second: xr.DataTree) -> bool:
    """Test whether two models have the same layout: positions and sizes of heads, and how they share key heads."""
    heads = [scores["heads"].to_dataset().transpose("layer", "head", ...) for scores in (first, second)]
    return (
        shapes_of(first) == shapes_of(second)
        and np.array_equal(*map(heads_present, heads))
        and np.array_equal(*(group["key_head"].values for group in heads))
    )


def _statistics(scores: xr.DataTree) -> list[str]:
    require_scores(scores)
    return scores["heads"].to_dataset()["statistic"].values.tolist()


def _sharing(scores: xr.DataTree) -> set[int]:
    """Return the set of numbers of heads per key head in a model."""
    heads = scores["heads"].to_dataset().transpose("layer", "head", ...)
    layers = zip(heads["key_head"].values, heads_present(heads), strict=True)
    return {int(n) for key_heads, mask in layers for n in np.bincount(key_heads[mask]) if n}


def _units(scores: xr.DataTree, first_only: bool = False) -> Float[np.ndarray, "layer_key_head statistic"]:
    """Average the distances of each key head's heads, or take only the first head, by layer; NaN if not scored."""
    heads = scores["heads"].to_dataset().transpose("layer", "head", "statistic", ...)
    distance, key_head = signed_distance(heads), heads["key_head"].values
    distance = np.where(heads_present(heads)[..., None], distance, np.nan)
    members = key_head[..., None] == np.arange(int(key_head.max()) + 1)  # (layer, head, key head)
    if first_only:
        members &= members.cumsum(axis=1) == 1
    scored = np.isfinite(distance)
    total = np.einsum("lhk,lhs->lks", members, np.where(scored, distance, 0.0))
    count = np.einsum("lhk,lhs->lks", members, scored.astype(float))
    with np.errstate(invalid="ignore"):
        return (total / count).reshape(-1, distance.shape[-1])


def _signed_rank(
    first: np.ndarray, second: np.ndarray, permutations: int, rng: np.random.Generator
) -> tuple[Float[np.ndarray, " statistic"], Iterator[Float[np.ndarray, "permutation statistic"]]]:
    """Signed-rank statistic Σ ± rank |d| / √Σ rank², observed and with random signs."""
    from scipy.stats import rankdata

    d = second - first
    ranks = np.sign(d) * rankdata(np.abs(d), axis=0)
    scale = np.sqrt((ranks**2).sum(axis=0))
    ranks = ranks / np.where(scale > 0, scale, 1.0)
    return ranks.sum(axis=0), (
        rng.choice((-1.0, 1.0), (count, len(d))) @ ranks for count in _portions(permutations, len(d))
    )


def _rank_sum(
    first: np.ndarray, second: np.ndarray, permutations: int, rng: np.random.Generator
) -> tuple[Float[np.ndarray, " statistic"], Iterator[Float[np.ndarray, "permutation statistic"]]]:
    """Rank sum of the second model over its standard deviation, observed and with random assignments to models."""
    from scipy.stats import rankdata

    ranks = rankdata(np.concatenate([first, second]), axis=0)
    ranks -= ranks.mean(axis=0)
    n, in_second = len(ranks), np.arange(len(ranks)) >= len(first)
    scale = np.sqrt((ranks**2).sum(axis=0) * len(first) * len(second) / (n * (n - 1)))
    ranks /= np.where(scale > 0, scale, 1.0)
    return in_second @ ranks, (
        rng.permuted(np.tile(in_second, (count, 1)), axis=1).astype(float) @ ranks
        for count in _portions(permutations, n)
    )


def _portions(permutations: int, n: int) -> list[int]:
    """Split the permutations into portions that fit in memory."""
    most = max(1, _AT_ONCE // n)
    return [min(most, permutations - begun) for begun in range(0, permutations, most)]
