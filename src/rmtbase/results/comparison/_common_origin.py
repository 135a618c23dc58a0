"""Test of a common initialization of two models: duplicates, reordered heads, and heads alike at equal positions."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import partial
from math import factorial, prod

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float, Int

from rmtbase.parameters import require_positive_integer
from rmtbase.reasons import Reason
from rmtbase.results.comparison._two_models import PERMUTATIONS, same_places, too_few_ways
from rmtbase.results.scores._heads import require_scores
from rmtbase.shown import in_one_line
from rmtbase.tables import heads_present

_ALIKE = 1e-3  # relative to the largest eigenvalue of a head; rounding to float16 moves no eigenvalue by as much


@in_one_line
@dataclass(frozen=True)
class CommonOrigin:
    """Evidence that two models share an origin: copies, or heads at equal positions more alike than between seeds."""

    duplicate: bool  # whether queries and keys are bit-identical
    # r, the correlation over heads of ln σ_Q, ln σ_K and the ln of the eigenvalues, each minus its mean over the layer:
    # 1 for a copy, 0 on average for two seeds. NaN if heads do not match in number and size, or layers have a single
    # head.
    alignment: float
    # one-sided permutation p-value of r, with the heads of one model moved to other positions; NaN where r is NaN
    p_value: float
    # whether each layer's heads have the same eigenvalues to a part in a thousand, in another order
    reordered: bool = False
    reason: Reason = field(default_factory=Reason)  # why a common origin cannot be tested by r


def common_origin(
    first: xr.DataTree, second: xr.DataTree, permutations: int = PERMUTATIONS, seed: int = 0
) -> CommonOrigin:
    """Tell duplicates and near-duplicates (fine-tuned, rounded, merged, of the same seed) from independent models.

    In a model that is trained from an independent initialization, the order of the heads within a layer carries no
    information. Heads with their own key heads are exchangeable; so are key heads together with all heads that read
    them, and heads that share a key head. Permuting the heads of one model in these ways therefore leaves the law of r
    unchanged. The test is exact for trained and untrained models, whatever the layers have in common.
    p = (b + 1)/(B + 1).
    """
    permutations, rng = require_positive_integer("permutations", permutations), np.random.default_rng(seed)
    models = first, second
    prints = [fingerprint(scores) for scores in models]
    duplicate = bool(prints[0]) and prints[0] == prints[1]
    # Sorted by content, so that the result does not depend on which model is given first.
    profiles = sorted(map(_profiles, models), key=np.ndarray.tobytes)
    heads = [scores["heads"].to_dataset().transpose("layer", "head", "index", ...) for scores in models]
    present = heads_present(heads[0])
    unknown = partial(CommonOrigin, duplicate, np.nan, np.nan, False)
    if not same_places(*models):
        return unknown(Reason("other_layout"))
    if present.sum(axis=1).max() < 2:
        return unknown(Reason("single_heads"))
    scales = [np.sqrt((profile**2).sum(axis=(0, 1))) for profile in profiles]
    x, y = (profile / np.where(scale > 0, scale, 1.0) for profile, scale in zip(profiles, scales, strict=True))
    features = np.count_nonzero((scales[0] > 0) & (scales[1] > 0))
    if not features:
        return unknown(Reason("equal_heads"))
    similarity = np.einsum("lhf,lgf->lhg", x, y) / features  # of head h of one model with head g of the other
    observed, null, ways = 0.0, np.zeros(permutations), 1
    for layer, key_heads, mask in zip(similarity, heads[0]["key_head"].values, present, strict=True):
        matches = layer[np.ix_(mask, mask)]
        observed += float(np.trace(matches))
        sizes = np.unique(key_heads[mask], return_counts=True)[1].tolist()
        ways *= factorial(len(sizes)) * prod(map(factorial, sizes))  # those that keep heads of one key head together
        null += matches[np.arange(len(matches)), _places(key_heads[mask], permutations, rng)].sum(axis=1)
    p_value = float((null >= observed - 1e-9).sum() + 1) / (permutations + 1)
    reordered = not duplicate and _reordered(*(group["eigenvalue"].values for group in heads), present)
    return CommonOrigin(duplicate, observed, p_value, reordered, too_few_ways(ways, permutations))


def fingerprint(scores: xr.DataTree) -> str:
    """SHA-256 of the queries and keys that were scored; "" if the file does not record it."""
    require_scores(scores)
    return str(json.loads(scores.attrs["provenance"]).get("weights", {}).get("query_key_sha256", ""))


def _profiles(scores: xr.DataTree) -> Float[np.ndarray, "layer head feature"]:
    """ln σ_Q, ln σ_K and ln of the eigenvalues, minus their means over the layer; 0 for heads that were not scored."""
    heads = scores["heads"].to_dataset().transpose("layer", "head", "index", ...)
    parts = [heads["sigma_q"].values[..., None], heads["sigma_k"].values[..., None], heads["eigenvalue"].values]
    values = np.concatenate(parts, axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(values)
    scored = np.isfinite(logs) & np.isfinite(logs[..., :2]).all(axis=-1, keepdims=True)
    count = np.maximum(scored.sum(axis=1, keepdims=True), 1)
    mean = np.where(scored, logs, 0.0).sum(axis=1, keepdims=True) / count
    return np.where(scored, logs - mean, 0.0)


def _reordered(
    first: Float[np.ndarray, "layer head index"],
    second: Float[np.ndarray, "layer head index"],
    present: Bool[np.ndarray, "layer head"],
) -> bool:
    """Test whether the heads of each layer have the same eigenvalues, but not all in the same order.

    All eigenvalues of independent heads in every layer do not agree to a part in a thousand by chance.
    """
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


def _places(
    key_heads: Int[np.ndarray, " head"], permutations: int, rng: np.random.Generator
) -> Int[np.ndarray, "permutation head"]:
    """Random permutations of the heads of a layer: key heads in random order, and their heads in random order.

    Heads are sorted by a random number of their key head, then by a random number of their own.
    """
    by_key_head = rng.random((permutations, int(key_heads.max()) + 1))[:, key_heads]
    order = np.lexsort((rng.random((permutations, key_heads.size)), by_key_head), axis=-1)
    places = np.empty_like(order)
    # The shuffled heads fill the positions in their old order, key head by key head.
    np.put_along_axis(places, np.broadcast_to(np.argsort(key_heads, kind="stable"), order.shape), order, axis=-1)
    return places
