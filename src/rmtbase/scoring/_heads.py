"""Scoring heads that are at hand as plain arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from rmtbase.errors import ParameterError
from rmtbase.linalg import product_singular_values
from rmtbase.montecarlo import PROBABILITIES
from rmtbase.scoring._null import HeadNull, HeadScores, check_null_name
from rmtbase.scoring._resampled_null import Resampler
from rmtbase.scoring._source import find_null
from rmtbase.statistics import SPECTRAL_STATISTICS, benjamini_hochberg, spectral_statistics
from rmtbase.tables import SCORES_SCHEMA, describe

Array = NDArray[np.float64]

_LEAST = 1e-70  # beyond it eigenvalues squared leave float64


def score_heads(
    w_q: ArrayLike,
    w_k: ArrayLike,
    baseline: xr.Dataset | Path | str | None = None,
    null: str = "gaussian",
    draws: int | None = None,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
    note: Callable[[str], None] | None = None,
) -> xr.Dataset:
    """Score heads given as arrays against the null of their shape.

    Args:
        w_q: query factors (head, d_head, d_model), so that q = W_Q x.
        w_k: key factors (key_head, d_head, d_model). Fewer key heads than heads means grouped queries: query head i
            reads key head i // (heads / key heads).
        baseline: a baseline table or an atlas (a dataset or file) to take the null from. Where it lacks the shape, and
            where there is none, the null is that of the shipped atlas, or of the cache, or simulated. ``"analytic"``:
            from the laws, without draws, for d_head ≥ 8 (:class:`rmtbase.scoring.AnalyticNull`).
        null: ``"gaussian"``: i.i.d. Gaussian factors, every draw at its own estimate of σ, as the head is. Or each head
            against its own: ``"permutation"``, the elements of W_Q and of W_K in random order (keeps their
            distribution, heavy tails too); ``"haar"``, W_Qᵀ O W_K with O a random rotation of the head's space (keeps
            the singular values of W_Q and W_K, and asks whether they are aligned). These take no ``baseline``.
        draws: null draws, at least: those of the shipped atlas if it holds so many of the shape with this seed, or else
            simulated. If None all of the atlas; for a shape that it lacks ``max(10 000, 50 · heads)``, so that one head
            alone can reach q < 0.05; 1000 of each head where each has a null of its own.
        seed: of the null draws.
        progress: called with the number of null draws finished since the last call.
        note: called with one line that says where the null came from.

    Returns:
        The ``/heads`` dataset of a scores file without its layer: dims head, statistic, probability, index.
        ``observed`` is of the raw product; the null is brought to each head's own σ.

    Raises:
        ParameterError: wrong shapes, a value that is not finite, a factor that is zero, an unknown null, d_head = 1
            (whose only statistic is its scale), d_head < 8 with the analytic null, or a baseline for a null made of a
            head's own matrices.
        TableError, MissingFileError: ``baseline`` is no baseline table.
    """
    check_null_name(null)
    q, k = _checked("w_q", w_q), _checked("w_k", w_k)
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
    if not ((sigma_q * sigma_k > _LEAST) & (sigma_q * sigma_k < 1 / _LEAST)).all():
        raise ParameterError("w_q, w_k", "weights", f"sigma_q sigma_k between {_LEAST:g} and {1 / _LEAST:g}; rescale")
    if null == "gaussian":
        gaussian = find_null(d_model, d_head, n_heads, baseline, draws, seed, progress, note)
        values = product_singular_values(q, k[key_head])
        scores = scores_against(gaussian, values, sigma_q, sigma_k)
    else:
        resampler = Resampler(null, d_head, n_heads, baseline, draws, seed, progress, note)
        values = product_singular_values(q, k[key_head])
        scores, _ = resampler.score(q, k, values, sigma_q, sigma_k)
    return heads_dataset(scores, values, sigma_q, sigma_k, key_head, ("head",))


def sigma_estimate(factors: ArrayLike) -> Array:
    """σ̂ = √(‖W‖_F² / (d h)) of factors (..., d_head, d_model), accumulated in float64."""
    w = np.asarray(factors)
    return np.sqrt(np.einsum("...ij,...ij->...", w, w, dtype=np.float64) / (w.shape[-1] * w.shape[-2]))


def scores_against(null: HeadNull, singular_values: Array, sigma_q: Array, sigma_k: Array) -> HeadScores:
    """Scores of heads against one null of their shape; singular values (..., d_head), σ's (...)."""
    scale = np.where(sigma_q * sigma_k > 0, (sigma_q * sigma_k) ** 2, np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):  # an all-zero head has no shape: NaN, and a warning elsewhere
        statistics = spectral_statistics(singular_values)
        return null.score(singular_values, np.where(np.isnan(scale)[..., None], np.nan, statistics), scale)


def heads_dataset(
    scores: HeadScores,
    singular_values: Array,
    sigma_q: Array,
    sigma_k: Array,
    key_head: NDArray[np.int64],
    dims: tuple[str, ...],
) -> xr.Dataset:
    """Scores of heads as a dataset; ``dims`` names the leading axes, (layer, head) or (head,)."""
    q_value = np.stack([benjamini_hochberg(scores.p_value[..., k]) for k in range(len(SPECTRAL_STATISTICS))], axis=-1)
    n_heads = sigma_q.shape[-1]
    dataset = xr.Dataset(
        {
            **_score_variables(scores, dims),
            "q_value": ((*dims, "statistic"), q_value),
            "omnibus_q_value": (dims, benjamini_hochberg(scores.omnibus_p_value)),
            "farthest_statistic": (
                dims,
                np.where(np.isnan(scores.omnibus_p_value), "", np.array(list(SPECTRAL_STATISTICS))[scores.farthest]),
            ),
            "sigma_q": (dims, sigma_q),
            "sigma_k": (dims, sigma_k),
            "key_head": (dims, np.broadcast_to(key_head, sigma_q.shape).copy()),
            "eigenvalue": ((*dims, "index"), singular_values**2),
        },
        coords={
            "head": np.arange(n_heads),
            "statistic": list(SPECTRAL_STATISTICS),
            "probability": np.array(PROBABILITIES),
            "index": np.arange(singular_values.shape[-1]),
        },
    )
    # The schema's leading dims are (layer, head); heads given as arrays have no layer.
    schema = {
        name: replace(variable, dims=(*dims, *variable.dims[2:])) for name, variable in SCORES_SCHEMA["heads"].items()
    }
    return describe(dataset, schema)


def _score_variables(scores: HeadScores, dims: tuple[str, ...]) -> dict[str, tuple]:
    by_statistic = (*dims, "statistic")
    return {
        "observed": (by_statistic, scores.observed),
        "null_mean": (by_statistic, scores.null_mean),
        "null_std": (by_statistic, scores.null_std),
        "null_quantile": ((*by_statistic, "probability"), scores.null_quantile),
        "z_score": (by_statistic, scores.z_score),
        "p_value": (by_statistic, scores.p_value),
        "omnibus_p_value": (dims, scores.omnibus_p_value),
        "outliers_above": (dims, scores.outliers_above),
        "outliers_below": (dims, scores.outliers_below),
    }


def _checked(name: str, factors: ArrayLike) -> Array:
    try:
        array = np.asarray(factors)
    except (ValueError, TypeError, RuntimeError) as error:  # a ragged list, a tensor that is no NumPy array
        raise ParameterError(name, type(factors).__name__, f"a NumPy array of real numbers ({error})") from error
    if array.ndim != 3 or 0 in array.shape:
        raise ParameterError(name, array.shape, "an array of shape (head, d_head, d_model)")
    if array.shape[1] > array.shape[2]:
        raise ParameterError(
            name, array.shape, "shape (head, d_head, d_model) with d_head ≤ d_model; transpose each head"
        )
    if array.dtype.kind in "bcOSUmM":
        raise ParameterError(name, array.dtype, "an array of real floating-point numbers")
    array = array.astype(np.float64)
    finite = np.isfinite(array)
    if not finite.all():
        head = int(np.flatnonzero(~finite.all(axis=(1, 2)))[0])
        raise ParameterError(name, f"NaN or infinity in head {head}", "finite weights")
    return array
