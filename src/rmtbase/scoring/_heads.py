"""Scoring heads that are at hand as plain arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from rmtbase.errors import ParameterError
from rmtbase.linalg import product_singular_values, single_threaded_blas
from rmtbase.montecarlo import PROBABILITIES
from rmtbase.parameters import require_real_array
from rmtbase.scoring._null import HeadNull, HeadScores, check_null_name
from rmtbase.scoring._resampled_null import Resampler
from rmtbase.scoring._source import find_null
from rmtbase.statistics import SPECTRAL_STATISTICS, benjamini_hochberg, spectral_statistics
from rmtbase.tables import SCORES_SCHEMA, describe

Array = NDArray[np.float64]

_LEAST = 1e-60  # beyond it, or its inverse, squares of eigenvalues leave float64, whatever the shape


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

    The p-values are calibrated for normal initialisation. Independent entries of another law with excess kurtosis κ₄
    move sums over the spectrum by an amount of the order of their spread at any size, the log-determinant by -κ₄/√2
    standard deviations: of untrained heads of uniform entries (κ₄ = -1.2, as by ``torch.nn.Linear``) at (768, 64) 13 %
    have p < 0.05 by the log-determinant and 8 % by the omnibus test, measured in studies/calibration. Nor is it the
    null of heads whose factors are products with a shared matrix, as in multi-head latent attention: all are flagged.

    p-values of heads of one shape are read off one sample; from the shipped atlas they take some 270 values, valid and
    right in size but not uniform (:class:`rmtbase.scoring.AtlasNull`).

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
        ParameterError: wrong shapes, a value that is not finite, a factor that is zero, factors so small or so large
            that the squares of their eigenvalues leave float64, an unknown null, d_head = 1 (whose only statistic is
            its scale), d_head < 8 with the analytic null, or a baseline for a null made of a head's own matrices.
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
    beyond = first_out_of_range(sigma_q, sigma_k, d_head * d_model)
    if beyond is not None:
        raise ParameterError("w_q, w_k", f"{beyond.found} in head {beyond.place[0]}", beyond.expected)
    found: HeadNull | Resampler
    if null == "gaussian":
        found = find_null(d_model, d_head, n_heads, baseline, draws, seed, progress, note)
    else:
        found = Resampler(null, d_head, n_heads, baseline, draws, seed, progress, note)
    with single_threaded_blas():  # with more the last bits would be those of the machine's cores
        values = product_singular_values(q, k[key_head])
        if isinstance(found, Resampler):
            scores, _ = found.score(q, k, values, sigma_q, sigma_k)
        else:
            scores = scores_against(found, values, sigma_q, sigma_k)
    return heads_dataset(scores, values, sigma_q, sigma_k, key_head, ("head",))


def sigma_estimate(factors: ArrayLike) -> Array:
    """σ̂ = √(‖W‖_F² / (d h)) of factors (..., d_head, d_model), accumulated in float64."""
    w = np.asarray(factors)
    return np.sqrt(np.einsum("...ij,...ij->...", w, w, dtype=np.float64) / (w.shape[-1] * w.shape[-2]))


class OutOfRange(NamedTuple):
    """A head whose weights are too small or too large for double precision.

    Attributes:
        place: its index.
        found: what it has, in words.
        expected: what it should have.
    """

    place: tuple[int, ...]
    found: str
    expected: str


def first_out_of_range(
    sigma_q: Array, sigma_k: Array, size: int, present: NDArray[np.bool_] | bool = True
) -> OutOfRange | None:
    """The first of the heads (...) that are ``present`` whose spectrum's statistics cannot be held in float64.

    No eigenvalue is over ‖W_Q‖_F² ‖W_K‖_F², with ‖W‖_F = σ̂ √size; of W_Q and W_K at right angles, what is left is under
    1e-16 of that. So both norms together decide, and every shape has the same limits.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        norms = sigma_q * sigma_k * size
    beyond = np.argwhere(~((norms > _LEAST) & (norms < 1.0 / _LEAST)) & present)
    if not beyond.size:
        return None
    place = tuple(int(index) for index in beyond[0])
    expected = f"a product of norms between {_LEAST:g} and {1.0 / _LEAST:g}: rescale the weights"
    return OutOfRange(place, f"‖W_Q‖ ‖W_K‖ = {norms[place]:.2g}", expected)


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
