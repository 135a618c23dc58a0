"""Test of a common initialization of two models: duplicates, reordered heads, and heads alike at equal positions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from math import factorial, prod

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float, Int

from rmtbase.parameters import require_positive_integer
from rmtbase.results.comparison._two_models import PERMUTATIONS, same_places
from rmtbase.results.scores._heads import require_scores
from rmtbase.shown import in_one_line
from rmtbase.tables import heads_present

LEVEL = 0.05
"""Significance level of the tests of two models."""

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
    reason: str = ""  # why a common origin cannot be tested by r; "" if it can

    @property
    def words(self) -> str:
        """The finding as a phrase, at the 5 % level."""
        if self.duplicate:
            return "duplicates: the same queries and keys, to the bit"
        if self.reordered:
            return "the same heads, in another order: their eigenvalues agree to a part in a thousand"
        if self.reason:
            return f"a common origin cannot be tested: {self.reason}"
        if self.p_value < 0.05:
            return (
                f"of common origin: heads of equal place are alike, r = {self.alignment:.3f} (p = {self.p_value:.2g})"
            )
        return f"a common origin is not shown: r = {self.alignment:.3f} (p = {self.p_value:.2g})"


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
    prints = [fingerprint(one) for one in (first, second)]
    duplicate = bool(prints[0]) and prints[0] == prints[1]
    # Sorted by content, so that the result does not depend on which model is given first.
    profiles = sorted((_profiles(one) for one in (first, second)), key=np.ndarray.tobytes)
    heads = [one["heads"].to_dataset().transpose("layer", "head", ...) for one in (first, second)]
    present = [heads_present(one) for one in heads]
    unknown = partial(CommonOrigin, duplicate, np.nan, np.nan, False)
    if not same_places(first, second):
        return unknown("the models differ in layers, heads or their sizes")
    if present[0].sum(axis=1).max() < 2:
        return unknown("each layer has only one head, so none can be permuted")
    scales = [np.sqrt((one**2).sum(axis=(0, 1))) for one in profiles]
    x, y = (one / np.where(scale > 0, scale, 1.0) for one, scale in zip(profiles, scales, strict=True))
    features = np.count_nonzero((scales[0] > 0) & (scales[1] > 0))
    if not features:
        return unknown("the heads of a layer differ by no statistic in both models")
    similarity = np.einsum("lhf,lgf->lhg", x, y) / features  # of head h of one model with head g of the other
    observed, null, places = 0.0, np.zeros(permutations), 1
    for layer, keys, there in zip(similarity, heads[0]["key_head"].values, present[0], strict=True):
        alike = layer[np.ix_(there, there)]
        observed += float(np.trace(alike))
        sizes = np.unique(keys[there], return_counts=True)[1].tolist()
        places *= factorial(len(sizes)) * prod(map(factorial, sizes))  # those that keep heads of one key head together
        null += alike[np.arange(len(alike)), _places(keys[there], permutations, rng)].sum(axis=1)
    p_value = float((null >= observed - 1e-9).sum() + 1) / (permutations + 1)
    reordered = not duplicate and _reordered(heads[0], heads[1], present[0])
    return CommonOrigin(duplicate, observed, p_value, reordered, too_few_ways(places, permutations))


def too_few_ways(ways: int, permutations: int) -> str:
    """Explain why a permutation test cannot give p < 0.05 (too few permutations exist or were drawn); "" if it can."""
    if ways * LEVEL <= 1:
        return f"{ways} ways to permute the heads give no p-value below {1 / ways:.2g}"
    if (permutations + 1) * LEVEL <= 1:
        return f"{permutations} permutations give no p-value below {1 / (permutations + 1):.2g}"
    return ""


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


def _reordered(first: xr.Dataset, second: xr.Dataset, present: Bool[np.ndarray, "layer head"]) -> bool:
    """Test whether the heads of each layer have the same eigenvalues, but not all in the same order.

    All eigenvalues of independent heads in every layer do not agree to a part in a thousand by chance.
    """
    from scipy.optimize import linear_sum_assignment

    spectra = [one.transpose("layer", "head", "index", ...)["eigenvalue"].values for one in (first, second)]
    in_place = True
    for there, *both in zip(present, *spectra, strict=True):
        x, y = (one[there] for one in both)
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
    of_groups = rng.random((permutations, int(key_heads.max()) + 1))[:, key_heads]
    own = rng.random((permutations, key_heads.size))
    order = np.lexsort((own, of_groups), axis=-1)
    places = np.empty_like(order)
    # The shuffled heads fill the positions in their old order, key head by key head.
    np.put_along_axis(places, np.broadcast_to(np.argsort(key_heads, kind="stable"), order.shape), order, axis=-1)
    return places
