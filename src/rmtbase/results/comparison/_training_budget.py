"""Training budget in time scales of the weight decay, T/τ = T η λ_wd, and its four published states."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rmtbase.parameters import require_positive_integer, require_positive_number
from rmtbase.shown import in_one_line

# Upper end of "approaching" and lower end of "near-saturated". The source prints one example of each, 0.43 and 0.86,
# and no border between them; the ends allow for rounding of the printed numbers.
_APPROACHING, _NEAR_SATURATED = 0.435, 0.855


@in_one_line
@dataclass(frozen=True)
class Training:
    """Settings of a training run with AdamW.

    Source: T. Ding, arXiv:2605.18898 (2026), 4.2 and A.5; X. Wang and L. Aitchison, arXiv:2405.13698 (2024).
    """

    peak_rate: float  #: η > 0, the largest learning rate
    weight_decay: float  #: λ_wd > 0, decoupled, multiplied by the learning rate
    steps: int  #: T, the number of optimizer steps

    def __post_init__(self) -> None:
        for name in ("peak_rate", "weight_decay"):
            object.__setattr__(self, name, require_positive_number(name, getattr(self, name)))
        object.__setattr__(self, "steps", require_positive_integer("steps", self.steps))

    @property
    def budget(self) -> float:
        """T/τ = T η λ_wd: the steps in units of τ = 1/(η λ_wd), as if all were at the peak rate."""
        return self.steps * self.peak_rate * self.weight_decay

    @property
    def root(self) -> float:
        """√(η/λ_wd), to which the scale of a weight moved by noise tends to be proportional."""
        return math.sqrt(self.peak_rate / self.weight_decay)

    @property
    def state(self) -> str:
        """The published state of this budget; see :func:`budget_state`."""
        return budget_state(self.budget)

    def initial_share(self, mean_rate: float = 1.0) -> float:
        """Share of each initial weight that remains after weight decay, exp(−r T/τ).

        ``mean_rate`` is r, the mean learning rate divided by the peak one: 1 if constant, 0.55 for 1 % of warmup and a
        cosine down to a tenth.
        """
        return math.exp(-require_positive_number("mean_rate", mean_rate) * self.budget)


def budget_state(budget: float) -> str:
    """Name the published state of T/τ: "saturated" above 1, "transition" below 0.2, and two states between these.

    A budget between the published examples of these is called "approaching or near-saturated".

    Raises:
        ParameterError: ``budget`` is not a positive number.

    Source: T. Ding, arXiv:2605.18898 (2026), 5.2, Table 3 and Fig. 8.
    """
    budget = require_positive_number("budget", budget)
    if budget > 1.0:
        return "saturated"
    if budget >= _NEAR_SATURATED:
        return "near-saturated"
    if budget < 0.2:
        return "transition"
    return "approaching" if budget <= _APPROACHING else "approaching or near-saturated"
