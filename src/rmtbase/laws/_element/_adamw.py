"""Scale of a weight under AdamW when its gradient is noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rmtbase.errors import ParameterError
from rmtbase.laws._distribution import FloatArray
from rmtbase.parameters import require_finite_number, require_positive_number


@dataclass(frozen=True)
class AdamWNoise:
    """Scale of a weight under AdamW with gradients that are independent noise of mean zero.

    One step (Loshchilov & Hutter 2019), with η the learning rate and λ the weight decay, is

        w <- (1 - η λ) w - η m,    m <- beta1 m + (1 - beta1) g,    g i.i.d., mean 0, variance 1,

    the gradient already divided by its root mean square. With a = 1 - η λ and c_j = (1 - beta1) (a^{j+1} - beta1^{j+1})
    / (a - beta1), the exact variance after t steps is a^{2t} Var w_0 + η² Σ_{j<t} c_j², and

        σ² = η² / (1 - a²) (1 - beta1)(1 + a beta1) / ((1 + beta1)(1 - a beta1)) → η / (2 λ),

    the last for η λ << 1 - beta1, with relaxation time 1/(η λ) (Wang & Aitchison 2024; Fan et al. 2025). Neglected are
    the fluctuations of Adam's denominator and its bias corrections (σ is right to 0.5 % at beta2 = 0.999 and to 1.5 %
    at 0.95), schedules, and any systematic part of the gradient.

    Attributes:
        learning_rate, weight_decay: η > 0, and λ > 0, decoupled, and multiplied by the learning rate as in AdamW.
        beta1: the momentum, 0 ≤ beta1 < 1. Other values, or η λ ≥ 1 - beta1, raise a ParameterError.
    """

    learning_rate: float
    weight_decay: float
    beta1: float = 0.9

    def __post_init__(self) -> None:
        for name in ("learning_rate", "weight_decay"):
            object.__setattr__(self, name, require_positive_number(name, getattr(self, name)))
        if not 0.0 <= require_finite_number("beta1", self.beta1) < 1.0:
            raise ParameterError("beta1", self.beta1, "a number of at least 0 and below 1")
        object.__setattr__(self, "beta1", float(self.beta1))
        if self._decay >= 1.0 - self.beta1:
            longest = (1.0 - self.beta1) / self.learning_rate
            raise ParameterError(
                "weight_decay", self.weight_decay, f"less than (1 - beta1)/learning_rate = {longest:g}"
            )

    @property
    def relaxation_time(self) -> float:
        """Number of steps, -1/ln(1 - η λ) ≈ 1/(η λ), over which the mean of a weight falls to 1/e."""
        return -1.0 / math.log1p(-self._decay)

    def std(self) -> float:
        """Stationary standard deviation of the weight; exact."""
        rho = self.beta1
        square = (1.0 - rho) * (1.0 + self._keep * rho) / ((1.0 + rho) * (1.0 - self._keep * rho))
        return self.learning_rate * math.sqrt(square / (self._decay * (1.0 + self._keep)))

    def var(self) -> float:
        """Stationary variance of the weight; exact."""
        return self.std() ** 2

    def std_after(self, steps: ArrayLike, initial_std: float = 0.0) -> FloatArray:
        """Return the exact standard deviation after ``steps`` steps from weights of ``initial_std``, same shape.

        For steps << 1/(η λ) it is η √steps. A ParameterError for steps that are not non-negative integers.
        """
        count = np.asarray(steps)
        if count.dtype.kind not in "iu" or (count < 0).any():
            raise ParameterError("steps", steps, "non-negative integers")
        if initial_std != 0.0 or isinstance(initial_std, bool):
            initial_std = require_positive_number("initial_std", initial_std)
        t, rho, keep = count.astype(np.float64), self.beta1, self._keep
        log_keep = math.log1p(-self._decay)
        log_rho = math.log(rho) if rho > 0.0 else -math.inf
        with np.errstate(invalid="ignore"):
            terms = (
                keep**2 * _spent(2.0 * log_keep, t) / (self._decay * (1.0 + keep))
                - 2.0 * keep * rho * _spent(log_keep + log_rho, t) / (1.0 - keep * rho)
                + rho**2 * _spent(2.0 * log_rho, t) / (1.0 - rho**2)
            )
        noise = (self.learning_rate * (1.0 - rho) / (keep - rho)) ** 2 * terms
        return np.sqrt(np.exp(2.0 * t * log_keep) * initial_std**2 + np.maximum(noise, 0.0))

    @property
    def _decay(self) -> float:
        return self.learning_rate * self.weight_decay

    @property
    def _keep(self) -> float:
        return 1.0 - self._decay


def _spent(log_factor: float, steps: FloatArray) -> FloatArray:
    return np.where(steps == 0.0, 0.0, -np.expm1(log_factor * steps))
