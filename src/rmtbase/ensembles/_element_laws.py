"""Laws of a single element; the parameters may be tracers in ``sample``, and are plain numbers in ``std``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Key


@runtime_checkable
class ElementLaw(Protocol):
    @property
    def std(self) -> float: ...  # infinite if the variance is
    def sample(self, key: Key[Array, ""], count: int) -> Float[Array, " {count}"]: ...


@dataclass(frozen=True)
class Normal:
    """N(mean, std²)."""

    std: float
    mean: float = 0.0

    def sample(self, key: Key[Array, ""], count: int) -> Float[Array, " {count}"]:
        return self.mean + self.std * jax.random.normal(key, (count,))


@dataclass(frozen=True)
class Uniform:
    """U(−bound, bound), of standard deviation bound/√3."""

    bound: float

    @property
    def std(self) -> float:
        return self.bound / 3**0.5

    def sample(self, key: Key[Array, ""], count: int) -> Float[Array, " {count}"]:
        return self.bound * jax.random.uniform(key, (count,), minval=-1.0, maxval=1.0)


@dataclass(frozen=True)
class TruncatedNormal:
    """N(0, parent_std²) given that |w| ≤ bound · parent_std; the bound is in units of the parent's deviation."""

    parent_std: float
    bound: float

    @property
    def std(self) -> float:
        return self.parent_std * truncated_std(self.bound)

    def sample(self, key: Key[Array, ""], count: int) -> Float[Array, " {count}"]:
        return self.parent_std * jax.random.truncated_normal(key, -self.bound, self.bound, (count,))


def truncated_std(bound: float) -> float:
    """Return √(1 − 2 b φ(b)/(2 Φ(b) − 1)), the deviation of a standard normal z given |z| ≤ b; to rounding."""
    if bound > 2:
        density_term = bound * math.sqrt(2 / math.pi) * math.exp(-(bound**2) / 2) / math.erf(bound / math.sqrt(2))
        return math.sqrt(1 - density_term)
    # 2 b φ(b)/(2 Φ(b) − 1) = 1/T with T = Σ_k b^{2k}/(2k+1)!!: 1 − 1/T = (T − 1)/T has no cancellation at small b.
    terms = [bound**2 / 3]
    while terms[-1] > 1e-18 * terms[0]:
        terms.append(terms[-1] * bound**2 / (2 * len(terms) + 3))
    excess = math.fsum(terms)
    return math.sqrt(excess / (1 + excess))


@dataclass(frozen=True)
class Logistic:
    """Logistic law: density 1/(4 s cosh²((w − location)/(2 s))), s = ``scale``; standard deviation π s/√3."""

    scale: float
    location: float = 0.0

    @property
    def std(self) -> float:
        return math.pi * self.scale / 3**0.5

    def sample(self, key: Key[Array, ""], count: int) -> Float[Array, " {count}"]:
        return self.location + self.scale * jax.random.logistic(key, (count,))


@dataclass(frozen=True)
class StudentT:
    """Law of location + scale · t_ν, ν = ``df``, in polar form: R. W. Bailey, Math. Comp. 62, 779 (1994)."""

    df: float
    scale: float
    location: float = 0.0

    @property
    def std(self) -> float:
        return self.scale / math.sqrt(1 - 2 / self.df) if self.df > 2 else math.inf

    def sample(self, key: Key[Array, ""], count: int) -> Float[Array, " {count}"]:
        key_radius, key_angle = jax.random.split(key)
        log_term = 2.0 * jax.random.exponential(key_radius, (count,))  # −2 ln U
        exponent = log_term / self.df
        growth = jnp.where(exponent == 0, 1.0, jnp.expm1(exponent) / exponent)  # 0/0 if ν = ∞ or U = 1
        angle = 2 * math.pi * jax.random.uniform(key_angle, (count,))
        return self.location + self.scale * jnp.sqrt(log_term * growth) * jnp.cos(angle)
