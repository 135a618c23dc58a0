"""The scale of heads, the range that their spectra must lie in, and their scores as a dataset."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float, Int

from rmtbase.errors import ParameterError
from rmtbase.nulls import PROBABILITIES, Heads, HeadScores
from rmtbase.statistics import SPECTRAL_STATISTICS, benjamini_hochberg
from rmtbase.tables import SCORES_SCHEMA, describe

_LEAST = 1e-60  # beyond it, or its inverse, squares of eigenvalues leave float64, whatever the shape
IN_RANGE = f"a product of norms between {_LEAST:g} and {1.0 / _LEAST:g}: rescale the weights"
"""What :func:`first_out_of_range` expects, in words."""


def require_scores(scores: xr.DataTree) -> None:
    """Raise :class:`~rmtbase.errors.ParameterError` unless it is a scores tree."""
    if not isinstance(scores, xr.DataTree) or not {"heads", "null"} <= set(scores.children):
        raise ParameterError(
            "scores",
            type(scores).__name__,
            "a scores tree with /heads and /null, as rmtbase.score makes and rmtbase.open_scores opens it",
        )


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
            "layer": np.arange(len(heads.sigma_q)),
            "head": np.arange(heads.sigma_q.shape[-1]),
            "statistic": names,
            "probability": np.array(PROBABILITIES),
            "index": np.arange(heads.singular_values.shape[-1]),
        },
    )
    return describe(dataset, schema)
