"""Parent law in units of its standard deviation, with the normal laws that are fitted to it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from rmtbase.laws._distribution import FloatArray
from rmtbase.laws._element._arithmetic import FLOAT
from rmtbase.laws._element._expansion import Expansion, mean_square, variance
from rmtbase.laws._element._panels import Panels, panels
from rmtbase.laws._element.parents import Parent
from rmtbase.laws._null import _sample_statistics as smooth

LOG_TWO_PI = math.log(2.0 * math.pi)
_NORMAL_IQR = 1.3489795003921634


@dataclass(frozen=True)
class ReferenceLaw:
    """Law of w/σ, symmetric about zero."""

    parent: Parent  # the law of w

    @cached_property
    def _core_end(self) -> float:
        return float(self.parent.ppf(0.8))

    @cached_property
    def _median(self) -> float:
        return float(self.parent.ppf(0.5))

    @cached_property
    def grid(self) -> Panels:
        """Quadrature over the law of |w|."""
        return panels(self.parent, [self._median, self._core_end])

    @cached_property
    def sigma(self) -> float:
        return math.sqrt(mean_square(self.grid).value)

    @cached_property
    def x(self) -> FloatArray:
        """|w|/σ at the nodes."""
        return np.exp(self.grid.log_x) / self.sigma

    @property
    def upper(self) -> float:
        """Largest |w|/σ."""
        return float(self.parent.upper(FLOAT)) / self.sigma

    @cached_property
    def log_s(self) -> Expansion:
        """ln s."""
        return 0.5 * variance(self.grid).log()

    @cached_property
    def core(self) -> Expansion:
        """ln(σ_fit/s), where the normal law of the core is fitted to the middle 80 %."""
        return smooth.core_sigma(self.grid, 0.1, self._core_end).log()

    @cached_property
    def core_centre(self) -> FloatArray:
        """Influence at w > 0 of the centre of the core (the mean of the middle 80 %), in units of σ; odd in w."""
        return np.minimum(self.x, self._core_end / self.sigma) / 0.8

    @cached_property
    def spread(self) -> tuple[Expansion, float]:
        """ln of min(s, interquartile range/1.349)/σ; and √n times the std of the log-ratio if both agree, else 0."""
        log_s = self.log_s - math.log(self.sigma)
        log_iqr = smooth.log_quantile(self.grid, 0.5, self._median, 0.0) - math.log(0.5 * _NORMAL_IQR * self.sigma)
        distance = log_iqr - log_s
        if abs(distance.value) < 1e-9:
            return log_s, math.sqrt(distance.variance)
        return (log_s if distance.value > 0.0 else log_iqr), 0.0

    @cached_property
    def is_normal(self) -> bool:
        """True if the normal fits are exact, so that estimates of the divergence from them have no influence."""
        return abs(self.core.value) < 1e-9 and abs(float(self.grid.probability @ self.x**4) - 3.0) < 1e-9

    @cached_property
    def divergence(self) -> float:
        """D_KL(w ‖ N(0, σ²)) in nats."""
        log_density = np.log(0.5 * np.maximum(self.grid.density, 1e-300)) - np.log(self.x)
        return float(self.grid.probability @ log_density) + 0.5 * (LOG_TWO_PI + 1.0)

    @cached_property
    def core_divergence(self) -> float:
        """D_KL(w ‖ N(0, σ_fit²)) in nats."""
        return self.divergence + self.core.value + 0.5 * math.expm1(-2.0 * self.core.value)

    def masses(self, edges: FloatArray) -> FloatArray:
        """P(w/σ in cell) for cells between ascending edges along the last axis, from the smaller tail."""
        at = np.clip(np.abs(edges), 1e-300, np.nextafter(self.upper, 0.0)) * self.sigma
        tail = 0.5 * np.where(np.abs(edges) >= self.upper, 0.0, self.parent.law(at, FLOAT)[2])
        low, high = tail[..., :-1], tail[..., 1:]
        left, right = edges[..., 1:] <= 0.0, edges[..., :-1] >= 0.0
        return np.where(right, low - high, np.where(left, high - low, 1.0 - low - high))

    def centred(self, even: FloatArray) -> FloatArray:
        """Return values at the nodes minus their mean."""
        return even - self.grid.probability @ even


@lru_cache(maxsize=64)
def reference_law(parent: Parent) -> ReferenceLaw:
    return ReferenceLaw(parent)
