"""Do two models' heads differ? Statistic by statistic, and all together, by permutation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import comb

import numpy as np
import xarray as xr
from jaxtyping import Float

from rmtbase.errors import ParameterError
from rmtbase.parameters import require_positive_integer
from rmtbase.results.scores import require_scores, signed_distance
from rmtbase.shown import in_one_line, shown
from rmtbase.statistics import SPECTRAL_STATISTICS
from rmtbase.tables import heads_present, shapes_of

PERMUTATIONS = 9_999
_AT_ONCE = 4_000_000  # signs held at a time
_TIES = 1e-9  # of a test statistic: by so much may permutations that are as far be apart


@in_one_line
@dataclass(frozen=True)
class TwoModels:
    """Whether the heads of two models differ in how far they are from random.

    Attributes:
        statistics: of a head's spectrum, in the order of what follows.
        paired: whether heads were compared place by place.
        n: units that were compared: key heads, of both models where they are not paired.
        difference: second less first, in standard deviations of the heads' own nulls: the median over units of the
            difference where they are paired, or the difference of the medians. NaN of a statistic without a null.
        p_value: of each statistic, two-sided, by permutation.
        adjusted_p_value: the same, adjusted for the number of statistics (the largest of all, as correlated as they
            are): the probability that any of them is so far.
        omnibus_p_value: of all together: the smallest of these.
        ways: in how many ways their heads can be permuted, of two that are as far on either side one: no p-value is
            below 1 / ``ways``.
    """

    statistics: tuple[str, ...]
    paired: bool
    n: int
    difference: Float[np.ndarray, " statistic"]
    p_value: Float[np.ndarray, " statistic"]
    adjusted_p_value: Float[np.ndarray, " statistic"]
    omnibus_p_value: float
    ways: int = 0


def compare_two(first: xr.DataTree, second: xr.DataTree, permutations: int = PERMUTATIONS, seed: int = 0) -> TwoModels:
    """Compare the heads of two models, by their signed distances from their own nulls (on a scale without σ or shape).

    The unit is a key head: heads that share one share a matrix, and their distances are averaged; or, where the models
    have other numbers of heads for each, and so averages another spread, the first one stands for all. Where both
    have the same layers, heads and key heads, of the same sizes, heads of one place are paired: Wilcoxon's signed-rank
    statistic of the differences, whose signs are flipped at random, the same for all statistics of a unit. Else all
    units are pooled: the rank-sum statistic, the models' names exchanged at random. Statistics are adjusted for
    together, by the largest of them (Westfall and Young). p = (b + 1)/(B + 1) of B permutations.

    Null: paired, the two heads of a place are exchangeable, independently of those of other places; pooled, all units
    of both models are exchangeable. Untrained models are so. Heads of trained models depend on each other within a
    layer, and so the test asks whether these two sets of heads differ, not whether two ways of training do: for that,
    compare several seeds of each, by :func:`compare_groups`.

    Args:
        first: scores of a model.
        second: those of another.
        permutations: B.
        seed: of these.

    Raises:
        ParameterError: they are no scores trees, or fewer than 2 units of a model were scored.

    Source: F. Wilcoxon, Biometrics Bull. 1, 80 (1945); P. H. Westfall and S. S. Young, Resampling-Based Multiple
        Testing (Wiley, 1993); B. Phipson and G. K. Smyth, Stat. Appl. Genet. Mol. Biol. 9, 39 (2010).
    """
    permutations, rng = require_positive_integer("permutations", permutations), np.random.default_rng(seed)
    paired = same_places(first, second)
    names = [name for name in SPECTRAL_STATISTICS if all(name in _statistics(one) for one in (first, second))]
    first_alone = _sharing(first) != _sharing(second)
    units = [_units(one, first_alone)[..., [_statistics(one).index(name) for name in names]] for one in (first, second)]
    if paired:
        there = np.isfinite(units[0]).any(axis=-1) & np.isfinite(units[1]).any(axis=-1)
        held = [one[there] for one in units]
    else:
        held = [one[np.isfinite(one).any(axis=-1)] for one in units]
    for one, scores in zip(held, (first, second), strict=True):
        if len(one) < 2:
            of = "both models" if paired else shown(scores.attrs["model"])
            raise ParameterError("scores", f"{len(one)} key heads of {of} that were tested", "2 or more")
    difference = np.median(held[1] - held[0], axis=0) if paired else _difference_of_medians(*held)
    known = np.flatnonzero(np.isfinite(np.concatenate(held)).all(axis=0))
    # In an order that is theirs, so that which is called the first does not choose the permutations.
    values = [one[:, known] for one in (held if paired else sorted(held, key=np.ndarray.tobytes))]
    observed, null = (_signed_rank if paired else _rank_sum)(values[0], values[1], permutations, rng)
    p_value, adjusted = np.full((2, len(names)), np.nan)
    p_value[known], adjusted[known] = permutation_p_values(observed, null)
    return TwoModels(
        statistics=tuple(names),
        paired=paired,
        n=len(held[0]) if paired else len(held[0]) + len(held[1]),
        difference=difference,
        p_value=p_value,
        adjusted_p_value=adjusted,
        omnibus_p_value=float(adjusted[known].min()) if known.size else float("nan"),
        # A test is two-sided: of every permutation its reverse is as far.
        ways=(2 ** len(held[0]) if paired else comb(len(held[0]) + len(held[1]), len(held[0]))) // 2,
    )


def permutation_p_values(
    observed: Float[np.ndarray, " test"], null: Iterable[Float[np.ndarray, "permutation test"]], every: bool = False
) -> tuple[Float[np.ndarray, " test"], Float[np.ndarray, " test"]]:
    """Two-sided p of each test, and adjusted for all of them by the largest.

    (b + 1)/(B + 1) of B random permutations, or b/B of ``every`` one there is, the observed among them. ``null`` comes
    in portions.
    """
    far = np.abs(observed) - _TIES
    n = itself = 0 if every else 1
    single, joint = np.full((2, far.size), itself)
    for portion in null:
        distance = np.abs(portion)
        single = single + (distance >= far).sum(axis=0)
        joint = joint + (distance.max(axis=1, initial=0.0)[:, None] >= far).sum(axis=0)
        n += len(portion)
    return single / n, joint / n


def head_units(scores: xr.DataTree) -> Float[np.ndarray, "unit statistic"]:
    """The signed distances of each key head's heads, averaged, of those that were scored."""
    units = _units(scores)
    return units[np.isfinite(units).any(axis=-1)]


def same_places(first: xr.DataTree, second: xr.DataTree) -> bool:
    """Whether two models have heads in the same places, of the same sizes, that share their key heads alike."""
    heads, others = (one["heads"].to_dataset().transpose("layer", "head", ...) for one in (first, second))
    return (
        shapes_of(first) == shapes_of(second)
        and np.array_equal(heads_present(heads), heads_present(others))
        and np.array_equal(heads["key_head"].values, others["key_head"].values)
    )


def _statistics(scores: xr.DataTree) -> list[str]:
    require_scores(scores)
    return scores["heads"].to_dataset()["statistic"].values.tolist()


def _sharing(scores: xr.DataTree) -> set[int]:
    """How many heads a key head has, of all there are."""
    heads = scores["heads"].to_dataset().transpose("layer", "head", ...)
    layers = zip(heads["key_head"].values, heads_present(heads), strict=True)
    return {int(n) for key_heads, there in layers for n in np.bincount(key_heads[there]) if n}


def _units(scores: xr.DataTree, first_alone: bool = False) -> Float[np.ndarray, "layer_key_head statistic"]:
    """The mean distance of each key head's heads, or that of their first one, layer by layer; NaN if not scored."""
    heads = scores["heads"].to_dataset().transpose("layer", "head", "statistic", ...)
    distance, key_head = signed_distance(heads), heads["key_head"].values
    distance = np.where(heads_present(heads)[..., None], distance, np.nan)
    members = key_head[..., None] == np.arange(int(key_head.max()) + 1)  # (layer, head, key head)
    if first_alone:
        members &= members.cumsum(axis=1) == 1
    scored = np.isfinite(distance)
    total = np.einsum("lhk,lhs->lks", members, np.where(scored, distance, 0.0))
    count = np.einsum("lhk,lhs->lks", members, scored.astype(float))
    with np.errstate(invalid="ignore"):
        return (total / count).reshape(-1, distance.shape[-1])


def _difference_of_medians(
    first: Float[np.ndarray, "unit statistic"], second: Float[np.ndarray, "other_unit statistic"]
) -> Float[np.ndarray, " statistic"]:
    return np.median(second, axis=0) - np.median(first, axis=0)


def _signed_rank(
    first: np.ndarray, second: np.ndarray, permutations: int, rng: np.random.Generator
) -> tuple[Float[np.ndarray, " statistic"], Iterator[Float[np.ndarray, "permutation statistic"]]]:
    """Σ ± rank |d| over √Σ rank², observed and with random signs."""
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
    """The second model's sum of ranks among all, over its standard deviation, observed and with random names."""
    from scipy.stats import rankdata

    ranks = rankdata(np.concatenate([first, second]), axis=0)
    ranks -= ranks.mean(axis=0)
    n, of_second = len(ranks), np.arange(len(ranks)) >= len(first)
    scale = np.sqrt((ranks**2).sum(axis=0) * len(first) * len(second) / (n * (n - 1)))
    ranks /= np.where(scale > 0, scale, 1.0)
    return of_second @ ranks, (
        rng.permuted(np.tile(of_second, (count, 1)), axis=1).astype(float) @ ranks
        for count in _portions(permutations, n)
    )


def _portions(permutations: int, n: int) -> list[int]:
    """The permutations in portions that are held at once."""
    most = max(1, _AT_ONCE // n)
    return [min(most, permutations - begun) for begun in range(0, permutations, most)]
