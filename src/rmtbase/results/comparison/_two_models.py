"""Permutation tests of two models: do their heads differ, and are they of common origin?"""

import json
from collections.abc import Iterable, Iterator
from math import comb, factorial, prod
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float

from rmtbase.parameters import require_positive_integer
from rmtbase.reasons import Reason
from rmtbase.results.scores._heads import require_scores
from rmtbase.results.scores._how_much import signed_distance
from rmtbase.shown import shown
from rmtbase.statistics import SPECTRAL_STATISTICS
from rmtbase.tables import heads_present, shapes_of

LEVEL = 0.05  # significance level, and false discovery rate, of all tests of a comparison
PERMUTATIONS = 9_999
_AT_ONCE = 4_000_000  # signs held in memory at a time
_TIES = 1e-9  # test statistics closer than this are ties
_ALIKE = 1e-3  # relative to the largest eigenvalue of a head; rounding to float16 moves no eigenvalue by as much


def compare_two(
    first: xr.DataTree, second: xr.DataTree, permutations: int = PERMUTATIONS, seed: int = 0
) -> dict[str, Any]:
    """Compare the key heads of two models by the mean signed distance of their heads from their own nulls.

    Heads at equal positions of equal layouts are paired: Wilcoxon's signed-rank statistic, one random sign for each.
    Otherwise all are pooled: the rank sum, with heads assigned to the models at random. P-values are (b + 1)/(B + 1),
    adjusted for all statistics by the largest (P. H. Westfall and S. S. Young, 1993; B. Phipson and G. K. Smyth, 2010).
    Heads of a trained model depend on each other: that two sets of heads differ does not show that two recipes do.
    """
    permutations, rng = require_positive_integer("permutations", permutations), np.random.default_rng(seed)
    models, paired = (first, second), same_places(first, second)
    statistics = [_heads(scores)["statistic"].values.tolist() for scores in models]
    common = [name for name in SPECTRAL_STATISTICS if all(name in columns for columns in statistics)]
    places = [list(SPECTRAL_STATISTICS).index(name) for name in common]
    layers = [zip(_heads(scores)["key_head"].values, heads_present(_heads(scores)), strict=True) for scores in models]
    per_key_head = [{int(n) for keys, mask in pairs for n in np.bincount(keys[mask]) if n} for pairs in layers]
    first_only = per_key_head[0] != per_key_head[1]
    units = [
        _units(scores, first_only)[..., [columns.index(name) for name in common]]
        for scores, columns in zip(models, statistics, strict=True)
    ]
    tested = [np.isfinite(values).any(axis=-1) for values in units]
    units = [values[tested[0] & tested[1] if paired else mask] for values, mask in zip(units, tested, strict=True)]
    difference, p_value, adjusted = np.full((3, len(SPECTRAL_STATISTICS)), np.nan)
    row = {"paired": False, "n_units": 0, "omnibus_p_value": np.nan}
    row |= {"difference": difference, "p_value": p_value, "adjusted_p_value": adjusted}
    for values, scores in zip(units, models, strict=True):
        if len(values) < 2:
            model = "both models" if paired else shown(scores.attrs["model"])
            return row | {"reason": Reason("few_key_heads", {"count": len(values), "model": model})}
    medians = [np.median(values, axis=0) for values in units]
    difference[places] = np.median(units[1] - units[0], axis=0) if paired else medians[1] - medians[0]
    complete = np.flatnonzero(np.isfinite(np.concatenate(units)).all(axis=0))
    # Sorted by content, so that the p-values do not depend on which model is given first.
    x, y = (values[:, complete] for values in (units if paired else sorted(units, key=np.ndarray.tobytes)))
    observed, null = _permuted(x, y, paired, permutations, rng)
    tests = np.array(places, dtype=int)[complete]
    p_value[tests], adjusted[tests] = permutation_p_values(observed, null)
    sizes = len(x), len(y)
    # The test is two-sided: every permutation is as extreme as its reverse.
    ways = (2 ** sizes[0] if paired else comb(sum(sizes), sizes[0])) // 2
    missing = Reason() if tests.size else Reason("no_common_statistic")
    row |= {"paired": paired, "n_units": sizes[0] if paired else sum(sizes)}
    row |= {"omnibus_p_value": float(adjusted[tests].min()) if tests.size else np.nan}
    return row | {"reason": too_few_ways(ways, permutations) or missing}


def too_few_ways(ways: int, permutations: int) -> Reason:
    if ways * LEVEL <= 1:
        return Reason("few_ways", {"ways": ways, "p_value": 1 / ways})
    if (permutations + 1) * LEVEL <= 1:
        return Reason("few_permutations", {"permutations": permutations, "p_value": 1 / (permutations + 1)})
    return Reason()


def permutation_p_values(
    observed: Float[np.ndarray, " test"], null: Iterable[Float[np.ndarray, "permutation test"]], every: bool = False
) -> tuple[Float[np.ndarray, " test"], Float[np.ndarray, " test"]]:
    """P-values, also adjusted for all tests by the largest; (b + 1)/(B + 1), or b/B if ``null`` has ``every`` one."""
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
    units = _units(scores)
    return units[np.isfinite(units).any(axis=-1)]


def same_places(first: xr.DataTree, second: xr.DataTree) -> bool:
    heads = [_heads(scores) for scores in (first, second)]
    return (
        shapes_of(first) == shapes_of(second)
        and np.array_equal(heads_present(heads[0]), heads_present(heads[1]))
        and np.array_equal(heads[0]["key_head"].values, heads[1]["key_head"].values)
    )


def _heads(scores: xr.DataTree) -> xr.Dataset:
    require_scores(scores)
    return scores["heads"].to_dataset().transpose("layer", "head", ...)


def _units(scores: xr.DataTree, first_only: bool = False) -> Float[np.ndarray, "layer_key_head statistic"]:
    """Mean distance of the heads of each key head, or that of the first, by layer; NaN if not scored."""
    heads = _heads(scores).transpose("layer", "head", "statistic", ...)
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


def _permuted(
    x: np.ndarray, y: np.ndarray, paired: bool, permutations: int, rng: np.random.Generator
) -> tuple[Float[np.ndarray, " statistic"], Iterator[Float[np.ndarray, "permutation statistic"]]]:
    """Signed-rank statistic Σ ± rank |d| / √Σ rank², or rank sum of y over its deviation: observed, and permuted."""
    from scipy.stats import rankdata

    d = y - x if paired else np.concatenate([x, y])
    n, in_second = len(d), np.arange(len(d)) >= len(x)
    if paired:
        ranks = np.sign(d) * rankdata(np.abs(d), axis=0)
        scale = np.sqrt((ranks**2).sum(axis=0))
    else:
        ranks = rankdata(d, axis=0)
        ranks -= ranks.mean(axis=0)
        scale = np.sqrt((ranks**2).sum(axis=0) * len(x) * len(y) / (n * (n - 1)))
    ranks = ranks / np.where(scale > 0, scale, 1.0)
    most = max(1, _AT_ONCE // n)  # permutations that fit in memory
    counts = [min(most, permutations - begun) for begun in range(0, permutations, most)]
    if paired:
        return ranks.sum(axis=0), (rng.choice((-1.0, 1.0), (count, n)) @ ranks for count in counts)
    shuffled = (rng.permuted(np.tile(in_second, (count, 1)), axis=1) for count in counts)
    return in_second @ ranks, (members.astype(float) @ ranks for members in shuffled)


def common_origin(
    first: xr.DataTree, second: xr.DataTree, permutations: int = PERMUTATIONS, seed: int = 0
) -> dict[str, Any]:
    """Tell copies (fine-tuned, rounded, merged, of the same seed) from independent models.

    The alignment r is the correlation over heads of ln σ_Q, ln σ_K and the ln of the eigenvalues, each minus its mean
    over the layer. Of an independent initialization key heads are exchangeable together with all heads that read them,
    and so are heads that share one: p = (b + 1)/(B + 1) under these permutations is exact, whatever the training.
    """
    permutations, rng = require_positive_integer("permutations", permutations), np.random.default_rng(seed)
    models = first, second
    duplicate = bool(fingerprint(first)) and fingerprint(first) == fingerprint(second)
    # Sorted by content, so that the result does not depend on which model is given first.
    profiles = sorted(map(_profiles, models), key=np.ndarray.tobytes)
    heads = [_heads(scores).transpose("layer", "head", "index", ...) for scores in models]
    present = heads_present(heads[0])
    row: dict[str, Any] = {"duplicate": duplicate, "alignment": np.nan, "alignment_p_value": np.nan, "reordered": False}
    if not same_places(*models):
        return row | {"alignment_reason": Reason("other_layout")}
    if present.sum(axis=1).max() < 2:
        return row | {"alignment_reason": Reason("single_heads")}
    scales = [np.sqrt((profile**2).sum(axis=(0, 1))) for profile in profiles]
    x, y = (profile / np.where(scale > 0, scale, 1.0) for profile, scale in zip(profiles, scales, strict=True))
    features = np.count_nonzero((scales[0] > 0) & (scales[1] > 0))
    if not features:
        return row | {"alignment_reason": Reason("equal_heads")}
    similarity = np.einsum("lhf,lgf->lhg", x, y) / features  # of head h of one model with head g of the other
    observed, null, ways = 0.0, np.zeros(permutations), 1
    for layer, key_heads, mask in zip(similarity, heads[0]["key_head"].values, present, strict=True):
        matches, keys = layer[np.ix_(mask, mask)], key_heads[mask]
        observed += float(np.trace(matches))
        sizes = np.unique(keys, return_counts=True)[1].tolist()
        ways *= factorial(len(sizes)) * prod(map(factorial, sizes))  # those that keep heads of one key head together
        by_key_head = rng.random((permutations, int(keys.max()) + 1))[:, keys]
        order = np.lexsort((rng.random((permutations, keys.size)), by_key_head), axis=-1)
        # The shuffled heads fill the positions in their old order, key head by key head.
        places, positions = np.empty_like(order), np.argsort(keys, kind="stable")
        np.put_along_axis(places, np.broadcast_to(positions, order.shape), order, axis=-1)
        null += matches[np.arange(len(matches)), places].sum(axis=1)
    p_value = float((null >= observed - 1e-9).sum() + 1) / (permutations + 1)
    reordered = not duplicate and _reordered(heads[0]["eigenvalue"].values, heads[1]["eigenvalue"].values, present)
    row |= {"alignment": observed, "alignment_p_value": p_value, "reordered": reordered}
    return row | {"alignment_reason": too_few_ways(ways, permutations)}


def fingerprint(scores: xr.DataTree) -> str:
    require_scores(scores)
    return str(json.loads(scores.attrs["provenance"]).get("weights", {}).get("query_key_sha256", ""))


def _profiles(scores: xr.DataTree) -> Float[np.ndarray, "layer head feature"]:
    """ln σ_Q, ln σ_K and ln of the eigenvalues, minus their means over the layer; 0 for heads that were not scored."""
    heads = _heads(scores).transpose("layer", "head", "index", ...)
    parts = [heads["sigma_q"].values[..., None], heads["sigma_k"].values[..., None], heads["eigenvalue"].values]
    values = np.concatenate(parts, axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(values)
    scored = np.isfinite(logs) & np.isfinite(logs[..., :2]).all(axis=-1, keepdims=True)
    count = np.maximum(scored.sum(axis=1, keepdims=True), 1)
    mean = np.where(scored, logs, 0.0).sum(axis=1, keepdims=True) / count
    return np.where(scored, logs - mean, 0.0)


def _reordered(first: np.ndarray, second: np.ndarray, present: Bool[np.ndarray, "layer head"]) -> bool:
    from scipy.optimize import linear_sum_assignment

    in_place = True
    for x, y, mask in zip(first, second, present, strict=True):
        x, y = x[mask], y[mask]
        scale = np.nanmax(np.abs(x), axis=-1, initial=0.0)[:, None]
        distance = np.nanmax(np.abs(x[:, None] - y) / np.where(scale > 0, scale, 1.0)[..., None], axis=-1, initial=0.0)
        rows, columns = linear_sum_assignment(distance)
        if distance[rows, columns].max(initial=0.0) > _ALIKE:
            return False
        in_place &= bool((columns == rows).all())
    return not in_place
