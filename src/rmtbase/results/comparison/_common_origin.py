"""Do two models come from one initialisation? Duplicates, and heads that are in the same places."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import factorial, prod

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float, Int

from rmtbase.parameters import require_positive_integer
from rmtbase.results.comparison._two_models import PERMUTATIONS, same_places
from rmtbase.results.scores import require_scores
from rmtbase.shown import in_one_line
from rmtbase.tables import heads_present

LEVEL = 0.05
"""Of the tests of two models."""

_ALIKE = 1e-3  # of the largest eigenvalue of a head: what rounding to float16 moves none by


@in_one_line
@dataclass(frozen=True)
class CommonOrigin:
    """Whether two models are copies, or their heads of one place more alike than those of two seeds.

    Attributes:
        duplicate: whether queries and keys are the same to the bit.
        alignment: r, the correlation over heads of ln σ_Q, ln σ_K and ln of the eigenvalues, each less its mean over
            the layer: 1 of a copy, 0 on average of two seeds. NaN where heads do not match in number and size, or a
            layer has a single head.
        p_value: one-sided, of r among those of heads put in other places; NaN where r is.
        reordered: whether each layer's heads have the same eigenvalues to a part in a thousand, in another order.
        reason: why a common origin cannot be tested by r; "" where it can.
    """

    duplicate: bool
    alignment: float
    p_value: float
    reordered: bool = False
    reason: str = ""

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
            return f"of common origin: heads of one place are alike, r = {self.alignment:.3f} (p = {self.p_value:.2g})"
        return f"a common origin is not shown: r = {self.alignment:.3f} (p = {self.p_value:.2g})"


def common_origin(
    first: xr.DataTree, second: xr.DataTree, permutations: int = PERMUTATIONS, seed: int = 0
) -> CommonOrigin:
    """Tell duplicates and near-duplicates (fine-tuned, rounded, merged, of the same seed) from independent models.

    Two models trained from independent initialisations do not know which of their heads is which: heads of a layer
    that read their own key heads are exchangeable, key heads with all that read them likewise, and heads of one key
    head among each other. So r with the heads of one model put in other such places at random has the law of r itself:
    the test is exact, trained or not, and whatever the layers have in common. p = (b + 1)/(B + 1).

    Args:
        first: scores of a model.
        second: those of another.
        permutations: B.
        seed: of these.

    Raises:
        ParameterError: they are no scores trees.
    """
    permutations, rng = require_positive_integer("permutations", permutations), np.random.default_rng(seed)
    prints = [fingerprint(one) for one in (first, second)]
    duplicate = bool(prints[0]) and prints[0] == prints[1]
    # In an order that is theirs, so that which is called the first does not choose the permutations.
    profiles = sorted((_profiles(one) for one in (first, second)), key=np.ndarray.tobytes)
    heads = [one["heads"].to_dataset().transpose("layer", "head", ...) for one in (first, second)]
    present = [heads_present(one) for one in heads]
    if not same_places(first, second):
        return CommonOrigin(duplicate, np.nan, np.nan, reason="the models differ in layers, heads or their sizes")
    if present[0].sum(axis=1).max() < 2:
        return CommonOrigin(duplicate, np.nan, np.nan, reason="layers of one head, which has no other place")
    scales = [np.sqrt((one**2).sum(axis=(0, 1))) for one in profiles]
    x, y = (one / np.where(scale > 0, scale, 1.0) for one, scale in zip(profiles, scales, strict=True))
    features = np.count_nonzero((scales[0] > 0) & (scales[1] > 0))
    if not features:
        return CommonOrigin(
            duplicate, np.nan, np.nan, reason="no head of both that differs from the others of its layer"
        )
    similarity = np.einsum("lhf,lgf->lhg", x, y) / features  # of head h of one model and head g of the other
    observed, null, places = 0.0, np.zeros(permutations), 1
    for layer, keys, there in zip(similarity, heads[0]["key_head"].values, present[0], strict=True):
        alike = layer[np.ix_(there, there)]
        observed += float(np.trace(alike))
        places *= _number_of_places(keys[there])
        null += alike[np.arange(len(alike)), _places(keys[there], permutations, rng)].sum(axis=1)
    p_value = float((null >= observed - 1e-9).sum() + 1) / (permutations + 1)
    reordered = not duplicate and _reordered(heads[0], heads[1], present[0])
    return CommonOrigin(duplicate, observed, p_value, reordered, too_few_ways(places, permutations))


def too_few_ways(ways: int, permutations: int) -> str:
    """Why a permutation test cannot give p < 0.05: there are too few ways to permute, or too few were drawn; or ""."""
    if ways * LEVEL <= 1:
        return f"{ways} ways to permute the heads give no p-value below {1 / ways:.2g}"
    if (permutations + 1) * LEVEL <= 1:
        return f"{permutations} permutations give no p-value below {1 / (permutations + 1):.2g}"
    return ""


def _number_of_places(key_heads: Int[np.ndarray, " head"]) -> int:
    """In how many ways the heads of a layer can be put in each other's places."""
    sizes = np.unique(key_heads, return_counts=True)[1].tolist()
    return factorial(len(sizes)) * prod(map(factorial, sizes))


def fingerprint(scores: xr.DataTree) -> str:
    """The SHA-256 of the queries and keys that were scored, "" where the file does not say."""
    require_scores(scores)
    return str(json.loads(scores.attrs["provenance"]).get("weights", {}).get("query_key_sha256", ""))


def _profiles(scores: xr.DataTree) -> Float[np.ndarray, "layer head feature"]:
    """ln σ_Q, ln σ_K and ln of the eigenvalues, less their means over the layer; 0 of what was not scored."""
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
    """Whether the heads of each layer have one another's eigenvalues, not all in their own places.

    Eigenvalues of independent heads, all of them and in every layer, do not agree to a part in a thousand by chance.
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
    """Random places for the heads of a layer: key heads in random order, and within each its heads.

    By sorting: heads by the rank of their key head's random number, and among each other by their own.
    """
    of_groups = rng.random((permutations, int(key_heads.max()) + 1))[:, key_heads]
    own = rng.random((permutations, key_heads.size))
    order = np.lexsort((own, of_groups), axis=-1)
    places = np.empty_like(order)
    # The heads in their new order stand where heads stood in the old one, which was key head by key head.
    np.put_along_axis(places, np.broadcast_to(np.argsort(key_heads, kind="stable"), order.shape), order, axis=-1)
    return places
