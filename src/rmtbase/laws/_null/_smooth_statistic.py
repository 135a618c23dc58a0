"""Law of a smooth statistic of n independent weights, from its expansion about the law of the parent."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from rmtbase.laws._element._expansion import Expansion, quadratic_noise
from rmtbase.laws._null._pearson import Pearson3


@dataclass(frozen=True)
class Cumulants:
    """Mean ``limit`` + ``drift``/n, variance ``second``/n + ``second_next``/n², third cumulant likewise from n⁻²."""

    limit: float
    drift: float
    second: float
    third: float
    second_next: float = 0.0
    third_next: float = 0.0

    @classmethod
    def of(cls, statistic: Expansion, corrections: tuple[float, float] = (0.0, 0.0)) -> Cumulants:
        """Return the cumulants for independent weights; ``corrections`` are n × the relative ones of κ₂ and κ₃."""
        second, third = statistic.variance, statistic.third
        return cls(
            statistic.value,
            0.0 if math.isnan(statistic.drift) else statistic.drift,
            second,
            third,
            second * corrections[0],
            third * corrections[1],
        )

    @classmethod
    def with_noise(cls, statistic: Expansion) -> Cumulants:
        """Return the cumulants with the noise of the curvature, for a statistic whose influence is small."""
        second_next, third_next = quadratic_noise(statistic)
        return replace(cls.of(statistic), second_next=second_next, third_next=third_next)

    def at(self, n: float) -> Pearson3:
        """Return the law with these three cumulants at n."""
        second, third = self.second + self.second_next / n, self.third + self.third_next / n
        return Pearson3.of(self.limit + self.drift / n, second / n, third / n**2)
