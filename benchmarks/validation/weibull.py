"""The Weibull fit of independent weights: its large-sample laws beside fits of simulated samples."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from effort import Effort, generator
from scipy.special import gamma

from comparison import ASYMPTOTIC, FloatArray, Limits, Row, Subject
from rmtbase.laws import parents, weibull_body_tail_gap, weibull_closure, weibull_null
from rmtbase.statistics import weibull_fit

SECTION = "weibull"
TRIM = 0.1
SAMPLES = ((2_000, 10_000), (20_000, 4000), (200_000, 1000))
"""(weights in a sample, samples)."""
PARENTS: dict[str, tuple[parents.Parent, Callable[[np.random.Generator, int], FloatArray]]] = {
    "normal": (parents.Normal(), lambda rng, n: rng.standard_normal(n)),
    "uniform": (parents.Uniform(), lambda rng, n: rng.uniform(-np.sqrt(3.0), np.sqrt(3.0), n)),
    "laplace": (parents.Laplace(), lambda rng, n: rng.laplace(scale=np.sqrt(0.5), size=n)),
    "student t, 5 degrees of freedom": (parents.StudentT(df=5), lambda rng, n: rng.standard_t(5, n)),
    "variance-gamma, d_head 16": (
        parents.VarianceGamma(h=16),
        lambda rng, n: rng.standard_normal(n) * np.sqrt(rng.chisquare(16, n) / 16.0),
    ),
}
_LIMITS = Limits(0.1, 0.05)
_CLOSURES = ("mean", "rms", "std", "std_to_rms")


def run(effort: Effort) -> tuple[list[Row], dict[str, Any]]:
    """Compare every parent at every sample size."""
    rows: list[Row] = []
    for name in PARENTS:
        for size, count in SAMPLES[: 1 if effort.quick else None]:
            rows += _parent(name, size, effort.draws(count))
        print(f"  {name}", flush=True)
    return rows, {}


def _parent(name: str, size: int, count: int) -> Iterator[Row]:
    parent, draw = PARENTS[name]
    rng = generator(f"weibull {name} {size}")
    values: dict[str, list[float]] = {}
    for _ in range(count):
        for key, value in _fits(draw(rng, size), name == "normal"):
            values.setdefault(key, []).append(value)
    found = {key: np.array(value) for key, value in values.items()}
    null = weibull_null(TRIM, parent)
    laws = {"shape": null.shape, "scale": null.scale, "r_squared": null.r_squared, "scale_to_rms": null.scale_to_rms}
    if name == "normal":
        laws["body_tail_gap"] = weibull_body_tail_gap(parent)
        closure = weibull_closure(TRIM, parent)
        laws |= {f"closure_{reading}": getattr(closure, reading) for reading in _CLOSURES}
    parameters = {"parent": name, "weights": size}
    for key, law in laws.items():
        if np.isnan(law.spread):
            continue  # R^2 of a parent that is itself Weibull has no normal law
        subject = Subject(SECTION, key, parameters, ASYMPTOTIC, _LIMITS)
        yield subject.mean(found[key], law.mean(size))
        yield subject.std(found[key], law.std(size))
    pair = Subject(SECTION, "shape, scale", parameters, ASYMPTOTIC, _LIMITS)
    yield pair.correlation(found["shape"], found["scale"], null.correlation)


def _fits(sample: FloatArray, all_readings: bool) -> Iterator[tuple[str, float]]:
    fit = weibull_fit(sample, TRIM)
    yield "shape", fit.shape
    yield "scale", fit.scale
    yield "r_squared", fit.r_squared
    yield "scale_to_rms", fit.scale / fit.rms
    if all_readings:
        yield "body_tail_gap", fit.shape - weibull_fit(sample, 0).shape
        magnitude = np.abs(sample)
        mean = fit.scale * gamma(1.0 + 1.0 / fit.shape)
        square = fit.scale**2 * gamma(1.0 + 2.0 / fit.shape)
        std = np.sqrt(square - mean**2)
        yield "closure_mean", mean / magnitude.mean()
        yield "closure_rms", np.sqrt(square) / fit.rms
        yield "closure_std", std / magnitude.std()
        yield "closure_std_to_rms", std / fit.rms
