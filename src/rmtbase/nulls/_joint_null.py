"""Joint null of a head and its factors: the product, W_Q, W_K, and the angles between the row spaces of W_Q and W_K."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from rmtbase.errors import ParameterError
from rmtbase.parameters import require_real_numbers
from rmtbase.shown import in_one_line
from rmtbase.statistics import on_distance_scale, upper_p_value_among_sorted

ANGLE_STATISTICS = ("mean_squared_cosine", "mean_fourth_power_of_cosine", "largest_squared_cosine")
"""Statistics of the principal angles between the row spaces of W_Q and W_K.

The last is used only where 2 d_head ≤ d_model: otherwise the row spaces always intersect."""


@in_one_line
class HeadParts(NamedTuple):
    product: Float[np.ndarray, "... statistic"]  # statistics of the raw W_QᵀW_K
    query: Float[np.ndarray, "... statistic"]  # of W_Q
    key: Float[np.ndarray, "... statistic"]  # of W_K
    angles: Float[np.ndarray, "... angle_statistic"]  # :data:`ANGLE_STATISTICS` of the cosines of the principal angles


@in_one_line
@dataclass(frozen=True)
class JointNull:
    """p-values (b + 1)/(n + 1) of the largest distances of W_Q, W_K and all parts: single-step max-T, exact levels."""

    drawn: HeadParts = field(repr=False)  # the draws

    def p_values(self, heads: HeadParts) -> dict[str, Float[np.ndarray, "layer head"]]:
        distances, largest = self._distances(heads), self._largest
        return {name: upper_p_value_among_sorted(distances[name], largest[name]) for name in ("query", "key", "joint")}

    @cached_property
    def _largest(self) -> dict[str, Float[np.ndarray, " draw"]]:
        return {name: np.sort(distances) for name, distances in self._distances(self.drawn).items()}

    @cached_property
    def _scales(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        scales = {}
        for name, sample in self.drawn._asdict().items():
            values = _on_scale(name, sample).reshape(-1, sample.shape[-1])
            spread = values.std(axis=0)
            fixed = ~(spread > 1e-9 * np.maximum(1.0, np.abs(values.mean(axis=0))))
            scales[name] = values.mean(axis=0), np.where(fixed, np.inf, spread)
        return scales

    def _distances(self, heads: HeadParts) -> dict[str, np.ndarray]:
        largest = {}
        for name, values in heads._asdict().items():
            center, spread = self._scales[name]
            distance = np.abs(_on_scale(name, values) - center) / spread
            unknown, farthest = np.isnan(values).any(axis=-1), np.nan_to_num(distance, posinf=1e300).max(-1)
            largest[name] = np.where(unknown, np.nan, farthest)
        return largest | {"joint": np.max(list(largest.values()), axis=0)}


def angle_statistics(cosines: Float[np.ndarray, "... d_head"], d_model: int) -> Float[np.ndarray, "... angle"]:
    """:data:`ANGLE_STATISTICS` of cosines, descending; the last is 0 at shapes where the largest cosine is always 1."""
    values = require_real_numbers("cosines", cosines)
    if values.ndim == 0 or values.shape[-1] == 0 or (values < 0.0).any() or np.isinf(values).any():
        raise ParameterError("cosines", f"shape {values.shape}", "cosines (..., d_head), NaN where not known")
    squares = np.minimum(values, 1.0) ** 2
    largest = squares[..., 0] if 2 * cosines.shape[-1] <= d_model else np.zeros(squares.shape[:-1])
    return np.stack([squares.mean(axis=-1), (squares**2).mean(axis=-1), largest], axis=-1)


def _on_scale(name: str, values: np.ndarray) -> np.ndarray:
    return values if name == "angles" else on_distance_scale(values)
