"""Scoring heads that are at hand as plain arrays."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike

from rmtbase.errors import ParameterError
from rmtbase.linalg import product_singular_values, single_threaded_blas
from rmtbase.nulls import PROBABILITIES, Heads, HeadScores
from rmtbase.parameters import require_real_array
from rmtbase.progress import SILENT, Progress
from rmtbase.scoring._find_null import Wanted, find_null, require_null_name
from rmtbase.statistics import SPECTRAL_STATISTICS, benjamini_hochberg
from rmtbase.tables import SCORES_SCHEMA, describe

_LEAST = 1e-60  # beyond it, or its inverse, squares of eigenvalues leave float64, whatever the shape
IN_RANGE = f"a product of norms between {_LEAST:g} and {1.0 / _LEAST:g}: rescale the weights"
"""What :func:`first_out_of_range` expects, in words."""


def score_heads(
    w_q: ArrayLike,
    w_k: ArrayLike,
    baseline: xr.Dataset | Path | str | None = None,
    null: str = "gaussian",
    draws: int | None = None,
    seed: int = 0,
    progress: Progress = SILENT,
) -> xr.Dataset:
    """Score heads given as arrays against the null of their shape.

    The p-values are calibrated for normal initialisation. Independent entries of another law with excess kurtosis κ₄
    move sums over the spectrum by an amount of the order of their spread at any size, the log-determinant by -κ₄/√2
    standard deviations: of untrained heads of uniform entries (κ₄ = -1.2, as by ``torch.nn.Linear``) at (768, 64) 13 %
    have p < 0.05 by the log-determinant and 8 % by the omnibus test, measured in studies/calibration. Nor is it the
    null of heads whose factors are products with a shared matrix, as in multi-head latent attention: all are flagged.

    p-values of heads of one shape are read off one sample; from the shipped atlas they take some 270 values, valid and
    right in size but not uniform (:class:`rmtbase.nulls.AtlasNull`).

    Args:
        w_q: query factors (head, d_head, d_model), so that q = W_Q x.
        w_k: key factors (key_head, d_head, d_model). Fewer key heads than heads means grouped queries: query head i
            reads key head i // (heads / key heads).
        baseline: a baseline table or an atlas (a dataset or file) to take the null from. Where it lacks the shape, and
            where there is none, the null is that of the shipped atlas, or of the cache, or simulated. ``"analytic"``:
            from the laws, without draws, for d_head ≥ 8 (:class:`rmtbase.nulls.AnalyticNull`).
        null: ``"gaussian"``: i.i.d. Gaussian factors, every draw at its own estimate of σ, as the head is. Or each head
            against its own: ``"permutation"``, the elements of W_Q and of W_K in random order (keeps their
            distribution, heavy tails too); ``"haar"``, W_Qᵀ O W_K with O a random rotation of the head's space (keeps
            the singular values of W_Q and W_K, and asks whether they are aligned). These take no ``baseline``.
        draws: null draws, at least: those of the shipped atlas if it holds so many of the shape with this seed, or else
            simulated. If None all of the atlas; for a shape that it lacks ``max(10 000, 50 · heads)``, so that one head
            alone can reach q < 0.05; 1000 of each head where each has a null of its own.
        seed: of the null draws.
        progress: shows the draws of a null that is simulated, and is told where the null came from.

    Returns:
        The ``/heads`` dataset of a scores file without its layer: dims head, statistic, probability, index.
        ``observed`` is of the raw product; the null is brought to each head's own σ.

    Raises:
        ParameterError: wrong shapes, a value that is not finite, a factor that is zero, factors so small or so large
            that the squares of their eigenvalues leave float64, an unknown null, d_head = 1 (whose only statistic is
            its scale), d_head < 8 with the analytic null, or a baseline for a null made of a head's own matrices.
        TableError, MissingFileError: ``baseline`` is no baseline table.
    """
    require_null_name(null)
    q, k = _require_factors("w_q", w_q), _require_factors("w_k", w_k)
    n_heads, d_head, d_model = q.shape
    if k.shape[1:] != q.shape[1:] or n_heads % k.shape[0]:
        raise ParameterError(
            "w_k", k.shape, f"shape (key heads, {d_head}, {d_model}), key heads a divisor of {n_heads}"
        )
    key_head = np.arange(n_heads) // (n_heads // k.shape[0])
    for name, factors in (("w_q", q), ("w_k", k)):
        empty = ~factors.any(axis=(1, 2))
        if empty.any():
            raise ParameterError(name, f"head {int(np.argmax(empty))} is all zeros", "heads with weights in them")
    sigma_q, sigma_k = sigma_estimate(q), sigma_estimate(k)[key_head]
    beyond = first_out_of_range(sigma_q, sigma_k, d_head * d_model)
    if beyond is not None:
        (head,), norms = beyond
        raise ParameterError("w_q, w_k", f"{norms} in head {head}", IN_RANGE)
    found = find_null(null, baseline, Wanted(d_model, d_head, n_heads, draws, seed, progress))
    with single_threaded_blas():  # with more the last bits would be those of the machine's cores
        values = product_singular_values(q, k[key_head])
        # The heads of a single layer.
        heads = Heads(values[None], sigma_q[None], sigma_k[None], lambda layer: (q, k))
        scores = found.score_heads(heads, progress).scores
    return heads_dataset(scores, heads, key_head).isel(layer=0, drop=True)


def sigma_estimate(factors: Float[np.ndarray, "... d_head d_model"]) -> Float[np.ndarray, "..."]:
    """σ̂ = √(‖W‖_F² / (d h)) of factors, accumulated in float64."""
    d_head, d_model = factors.shape[-2:]
    return np.sqrt(np.einsum("...ij,...ij->...", factors, factors, dtype=np.float64) / (d_model * d_head))


def first_out_of_range(
    sigma_q: Float[np.ndarray, "..."],
    sigma_k: Float[np.ndarray, "..."],
    size: int,
    present: Bool[np.ndarray, "..."] | bool = True,
) -> tuple[tuple[int, ...], str] | None:
    """Index and norms of the first of the heads ``present`` whose spectrum's statistics cannot be held in float64.

    No eigenvalue is over ‖W_Q‖_F² ‖W_K‖_F², with ‖W‖_F = σ̂ √size; of W_Q and W_K at right angles, what is left is under
    1e-16 of that. So both norms together decide, and every shape has the same limits.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        norms = sigma_q * sigma_k * size
    beyond = np.argwhere(~((norms > _LEAST) & (norms < 1.0 / _LEAST)) & present)
    if not beyond.size:
        return None
    place = tuple(int(index) for index in beyond[0])
    return place, f"‖W_Q‖ ‖W_K‖ = {norms[place]:.2g}"


def heads_dataset(scores: HeadScores, heads: Heads, key_head: Int[np.ndarray, " head"]) -> xr.Dataset:
    """Scores of heads as the ``/heads`` group of a scores file."""
    schema, names = SCORES_SCHEMA["heads"], list(SPECTRAL_STATISTICS)
    p_value, omnibus = scores.p_value, scores.omnibus_p_value
    values = {field.name: getattr(scores, field.name) for field in fields(scores) if field.name != "farthest"}
    values |= {
        "q_value": np.stack([benjamini_hochberg(p_value[..., k]) for k in range(len(names))], axis=-1),
        "omnibus_q_value": benjamini_hochberg(omnibus),
        "farthest_statistic": np.where(np.isnan(omnibus), "", np.array(names)[scores.farthest]),
        "sigma_q": heads.sigma_q,
        "sigma_k": heads.sigma_k,
        "key_head": np.broadcast_to(key_head, heads.sigma_q.shape).copy(),
        "eigenvalue": heads.singular_values**2,
    }
    dataset = xr.Dataset(
        {name: (schema[name].dims, value) for name, value in values.items()},
        coords={
            "head": np.arange(heads.sigma_q.shape[-1]),
            "statistic": names,
            "probability": np.array(PROBABILITIES),
            "index": np.arange(heads.singular_values.shape[-1]),
        },
    )
    return describe(dataset, schema)


def _require_factors(name: str, factors: ArrayLike) -> Float[np.ndarray, "head d_head d_model"]:
    array = require_real_array(name, factors)
    if array.ndim != 3 or 0 in array.shape:
        raise ParameterError(name, array.shape, "an array of shape (head, d_head, d_model)")
    if array.shape[1] > array.shape[2]:
        raise ParameterError(
            name, array.shape, "shape (head, d_head, d_model) with d_head ≤ d_model; transpose each head"
        )
    array = array.astype(np.float64)
    finite = np.isfinite(array)
    if not finite.all():
        head = int(np.flatnonzero(~finite.all(axis=(1, 2)))[0])
        raise ParameterError(name, f"NaN or infinity in head {head}", "finite weights")
    return array
