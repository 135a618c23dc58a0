"""Laws of single weights: the contaminated normal mixture, and the scale to which AdamW grows noise."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from effort import Effort, generator

from comparison import ASYMPTOTIC, Limits, Row, Subject
from rmtbase.laws import AdamWNoise, ContaminatedNormal

SECTION = "weights"
MIXTURES = (
    ContaminatedNormal(0.1, mean_spike=4.0, sigma_bulk=1.0, sigma_spike=0.5),
    ContaminatedNormal(0.02, mean_spike=0.0, sigma_bulk=1.0, sigma_spike=5.0),
    ContaminatedNormal(0.05, mean_spike=3.0, sigma_bulk=0.5),
)
RUNS = (AdamWNoise(1e-2, 1.0, 0.9), AdamWNoise(1e-2, 1.0, 0.0), AdamWNoise(2e-3, 5.0, 0.95))
_BETA2 = 0.999
_RELAXATIONS = 6


def run(effort: Effort) -> tuple[list[Row], dict[str, Any]]:
    """Compare mixtures and optimizer runs."""
    rows = [row for law in MIXTURES for row in _mixture(law, effort.draws(2_000_000))]
    return rows + [row for law in RUNS for row in _adamw(law, effort.draws(40_000))], {}


def _mixture(law: ContaminatedNormal, count: int) -> Iterator[Row]:
    parameters = {
        "spike_weight": law.spike_weight, "mean_spike": law.mean_spike,
        "sigma_bulk": law.sigma_bulk, "sigma_spike": law.sigma_spike,
    }  # fmt: skip
    rng = generator(f"mixture {parameters}")
    spike = rng.random(count) < law.spike_weight
    normal = rng.standard_normal(count)
    sample = np.where(spike, law.mean_spike + law.sigma_spike * normal, law.mean_bulk + law.sigma_bulk * normal)
    subject = Subject(SECTION, "contaminated normal", parameters)
    yield subject.mean(sample, law.mean())
    yield subject.std(sample, law.std())
    yield subject.skewness(sample, law.skewness())
    yield subject.excess_kurtosis(sample, law.kurtosis() - 3.0)
    for p in (0.1, 1e-2, 1e-3):
        threshold = float(law.ppf(1.0 - p))
        yield subject.count(int((sample > threshold).sum()), count, float(law.sf(threshold)), f"upper tail {p:g}")


def _adamw(law: AdamWNoise, count: int) -> Iterator[Row]:
    """Compare the law with the recursion for which it is exact, and with AdamW itself.

    The denominator and the bias correction of AdamW fluctuate; those of the recursion are fixed.
    """
    parameters = {"learning_rate": law.learning_rate, "weight_decay": law.weight_decay, "beta1": law.beta1}
    rng = generator(f"adamw {parameters}")
    steps = round(_RELAXATIONS * law.relaxation_time)
    keep = 1.0 - law.learning_rate * law.weight_decay
    ideal, real = np.zeros(count), np.zeros(count)
    momentum, square = np.zeros(count), np.ones(count)  # the denominator starts where it ends
    checkpoints = {steps // 30, steps // 6}
    exact = Subject(SECTION, "standard deviation under AdamW, denominator fixed", parameters)
    for step in range(1, steps + 1):
        gradient = rng.standard_normal(count)
        momentum = law.beta1 * momentum + (1.0 - law.beta1) * gradient
        square = _BETA2 * square + (1.0 - _BETA2) * gradient**2
        ideal = keep * ideal - law.learning_rate * momentum
        real = keep * real - law.learning_rate * momentum / (np.sqrt(square) + 1e-8)
        if step in checkpoints:
            after = Subject(SECTION, exact.quantity, {**parameters, "steps": step})
            yield after.std(ideal, float(law.std_after(step)))
    # What is left of the start after so many relaxation times, e^-12, is below the errors.
    yield exact.std(ideal, law.std())
    whole = Subject(
        SECTION, "standard deviation under AdamW", {**parameters, "beta2": _BETA2}, ASYMPTOTIC, Limits(std=0.015)
    )
    yield whole.std(real, law.std())
