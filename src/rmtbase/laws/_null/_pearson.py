"""Laws given by their first moments: Pearson's type III (plain, tailed, mixed) and a shifted log-normal."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.optimize import root
from scipy.special import gammainc, gammaincc, gammainccinv, gammaincinv, ndtr, ndtri

from rmtbase.errors import ParameterError
from rmtbase.laws._distribution import Distribution, FloatArray, InvertedScore, KnownSpread, ScoredLaw, TransformedLaw

_LEAST = 1e-6  # smallest skewness, and smallest gamma variable relative to its mean, in a mixture
_SYMMETRIC = 5e-3  # skewness below which gammainc loses its tails, and the cube root of the gamma variable is normal
_STEPS = 100  # of a fixed-point iteration that needs three to twenty
_SETTLED = 1e-10
_ROUNDING = 1e-14
_TURN = 0.5  # largest change of the skewness in one step
_Z = np.linspace(-7.0, 7.0, 113)
_WEIGHT = np.exp(-0.5 * _Z * _Z) / np.exp(-0.5 * _Z * _Z).sum()


@dataclass(frozen=True)
class TwoMoments(KnownSpread):
    centre: float  # mean
    spread: float  # standard deviation

    def mean(self) -> float:
        return self.centre

    def std(self) -> float:
        return self.spread


@dataclass(frozen=True)
class ThreeMoments(TwoMoments):
    skewness: float  # third central moment over std³

    @classmethod
    def from_cumulants(cls, mean: float, variance: float, third: float) -> Self:
        return cls(mean, math.sqrt(variance), third / variance**1.5)

    @classmethod
    def of_numbers(
        cls, n: float, limit: float, cumulants: tuple[float, float, float], noise: Sequence[float] = (0.0, 0.0)
    ) -> Self:
        """Return the law with mean limit + drift/n (if known), n κ₂ = second + noise/n, and n² κ₃ likewise."""
        drift, second, third = cumulants
        mean = limit + (0.0 if math.isnan(drift) else drift) / n
        return cls.from_cumulants(mean, (second + noise[0] / n) / n, (third + noise[1] / n) / n**2)

    def scaled(self, unit: float) -> Self:
        return replace(self, centre=unit * self.centre, spread=unit * self.spread)


class Pearson3(ThreeMoments):
    """Gamma law with these moments, shifted and possibly reversed (Pearson's type III); exact as d_head/d_model → 0."""

    @property
    def support(self) -> tuple[float, float]:
        if self.skewness == 0.0:
            return -math.inf, math.inf
        end = self.centre - 2.0 * self.spread / self.skewness
        return (end, math.inf) if self.skewness > 0.0 else (-math.inf, end)

    def _cdf(self, x: FloatArray) -> FloatArray:
        return self._mass(x, 1.0)

    def _sf(self, x: FloatArray) -> FloatArray:
        return self._mass(x, -1.0)

    def _ppf(self, q: FloatArray) -> FloatArray:
        return self._quantile(q, 1.0)

    def _isf(self, q: FloatArray) -> FloatArray:
        return self._quantile(q, -1.0)

    def at_score(self, z: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            return np.where(z < 0.0, self._ppf(ndtr(z)), self._isf(ndtr(-z)))

    def score(self, x: FloatArray) -> FloatArray:
        below, above = self._mass(x, 1.0), self._mass(x, -1.0)
        return np.where(below < above, ndtri(below), -ndtri(above))

    @classmethod
    def through(
        cls, scale: Callable[[FloatArray], FloatArray], mean: float, std: float, skewness: float, start: Self
    ) -> Self:
        """Find the law of x for which an increasing function of x has these moments, from a nearby law."""
        law, settled = start, _SETTLED + _ROUNDING * abs(mean) / std
        for _ in range(_STEPS):
            centre, spread, shape = moments_at_scores(scale(law.at_score(_Z)))
            if max(abs(centre - mean) / std, abs(spread / std - 1.0), abs(shape - skewness)) < settled:
                return law
            if not 0.0 < spread < math.inf:
                break
            stretch = min(max(std / spread, 0.5), 2.0)
            shift = (mean - centre) * law.spread / spread
            turn = min(max(skewness - shape, -_TURN), _TURN)
            law = cls(law.centre + shift, law.spread * stretch, law.skewness + turn)
        raise ParameterError("skewness", skewness, f"one that a gamma law can have with mean {mean}, std {std}")

    # With k = 4/skewness² and G a gamma variable of mean and variance k: x = mean + std (G - k) skewness/2. Below
    # _SYMMETRIC, (G/k)^(1/3) is treated as normal (Wilson & Hilferty 1931), to 3e-4 of the mass of the tail at eight
    # standard deviations.

    def _mass(self, x: FloatArray, sign: float) -> FloatArray:
        with np.errstate(over="ignore", divide="ignore"):
            score = (x - self.centre) / self.spread
            if self.skewness == 0.0:
                return ndtr(sign * score)
            rise = np.maximum(0.5 * self.skewness * score, -1.0)  # G/k - 1
            if abs(self.skewness) >= _SYMMETRIC:
                shape = 4.0 / self.skewness**2
                return (gammainc if sign * self.skewness > 0.0 else gammaincc)(shape, shape + shape * rise)
            root = np.expm1(np.log1p(rise) / 3.0)
            return ndtr(sign * (6.0 / self.skewness * root + self.skewness / 6.0))

    def _quantile(self, q: FloatArray, sign: float) -> FloatArray:
        if self.skewness == 0.0:
            return self.centre + self.spread * sign * ndtri(q)
        if abs(self.skewness) >= _SYMMETRIC:
            shape = 4.0 / self.skewness**2
            inverse = gammaincinv if sign * self.skewness > 0.0 else gammainccinv
            rise = (inverse(shape, q) - shape) / shape
        else:
            root = np.maximum(self.skewness / 6.0 * (sign * ndtri(q) - self.skewness / 6.0), -1.0)
            rise = root * (3.0 + root * (3.0 + root))
        return self.centre + self.spread * 2.0 / self.skewness * rise


@dataclass(frozen=True)
class TailedPearson3(TwoMoments, InvertedScore):
    """Type III at the normal score sinh(tail arsinh z) (M. C. Jones and A. Pewsey, Biometrika 96, 761 (2009))."""

    body: Pearson3  # the law at tail = 1
    tail: float  # above 1 for heavier tails than the body, below 1 for lighter tails

    @classmethod
    def matched(cls, mean: float, std: float, skewness: float, excess_kurtosis: float) -> TailedPearson3:
        """Return the member with these moments, or with the first three if none has all four."""
        shape, tail = _tailed_shape(skewness, excess_kurtosis)
        centre, spread, _ = moments_at_scores(Pearson3(0.0, 1.0, shape).at_score(_tailed(_Z, tail)))
        return cls(mean, std, Pearson3(mean - std * centre / spread, std / spread, shape), tail)

    @property
    def support(self) -> tuple[float, float]:
        return self.body.support

    def at_score(self, z: FloatArray) -> FloatArray:
        return self.body.at_score(_tailed(z, self.tail))

    def scaled(self, unit: float) -> Self:
        return replace(self, centre=unit * self.centre, spread=unit * self.spread, body=self.body.scaled(unit))

    def _score(self, x: FloatArray) -> FloatArray:
        return _tailed(self.body.score(x), 1.0 / self.tail)


def moments_at_scores(values: FloatArray) -> tuple[float, float, float]:
    mean = float(_WEIGHT @ values)
    std = math.sqrt(float(_WEIGHT @ (values - mean) ** 2))
    with np.errstate(divide="ignore", invalid="ignore"):  # if all values are equal there is no law
        return mean, std, float(_WEIGHT @ ((values - mean) / std) ** 3)


def log_moments(at_score: Callable[[FloatArray], FloatArray]) -> tuple[float, float, float]:
    return moments_at_scores(np.log(np.maximum(at_score(_Z), 1.0)))


def _tailed(z: FloatArray, tail: float) -> FloatArray:
    return np.sinh(tail * np.arcsinh(z))


@lru_cache(maxsize=256)
def _tailed_shape(skewness: float, excess_kurtosis: float) -> tuple[float, float]:
    def excess(parameters: FloatArray) -> list[float]:
        shape, tail = map(float, parameters)
        if not 0.3 < tail < 2.0 or abs(shape) > 4.0:
            return [math.inf, math.inf]
        values = Pearson3(0.0, 1.0, shape).at_score(_tailed(_Z, tail))
        mean, std, third = moments_at_scores(values)
        return [third - skewness, float(_WEIGHT @ ((values - mean) / std) ** 4) - 3.0 - excess_kurtosis]

    solution = root(excess, [skewness, 1.0], tol=1e-10)
    if max(map(abs, excess(solution.x))) > 1e-6:
        return skewness, 1.0
    return float(solution.x[0]), float(solution.x[1])


@dataclass(frozen=True)
class Pearson3Mixture(Distribution):
    """Mixture of type III laws of |skewness| < 1, by the nearly normal cube roots of their gamma variables."""

    centre: FloatArray  # of each part, (part,); spread and skewness likewise, or one number for all parts
    spread: FloatArray | float
    skewness: FloatArray | float
    weight: FloatArray  # weights of the parts, of sum 1, (part,)

    def mean(self) -> float:
        return float(self.weight @ self.centre)

    def var(self) -> float:
        return float(self.weight @ ((self.centre - self.mean()) ** 2 + np.square(self.spread)))

    def _cdf(self, x: FloatArray) -> FloatArray:
        return ndtr(self._scores(x)) @ self.weight

    def _sf(self, x: FloatArray) -> FloatArray:
        return ndtr(-self._scores(x)) @ self.weight

    def _scores(self, x: FloatArray) -> FloatArray:
        score = (x[..., None] - self.centre) / self.spread
        skewness = np.where(np.abs(self.skewness) < _LEAST, _LEAST, self.skewness)
        rise = np.maximum(0.5 * skewness * score, _LEAST - 1.0)
        return 6.0 / skewness * np.expm1(np.log1p(rise) / 3.0) + skewness / 6.0


class ShiftedLogNormal(ThreeMoments, ScoredLaw):
    """±(e^y − c), normal y: the log-normal law with these moments; |skewness| = (ω + 2)(ω − 1)^(1/2), ω = e^(Var y)."""

    @cached_property
    def _shape(self) -> tuple[float, float]:
        """Standard deviation of y, and the median of e^y in units of the spread."""
        # (ω + 2)²(ω − 1) = skewness², a cubic: with ω + 1 = 2 cosh v it is cosh 3v = 1 + skewness²/2.
        omega = 2.0 * math.cosh(math.acosh(1.0 + 0.5 * self.skewness**2) / 3.0) - 1.0
        return math.sqrt(math.log(omega)), 1.0 / math.sqrt(omega * (omega - 1.0))

    @property
    def support(self) -> tuple[float, float]:
        sigma, median = self._shape
        end = self.centre - math.copysign(median * math.exp(0.5 * sigma**2) * self.spread, self.skewness)
        return (end, math.inf) if self.skewness > 0.0 else (-math.inf, end)

    def _score(self, x: FloatArray) -> FloatArray:
        sigma, median = self._shape
        sign = math.copysign(1.0, self.skewness)
        rise = sign * (x - self.centre) / self.spread + median * math.exp(0.5 * sigma**2)
        return sign * np.log(np.maximum(rise, 1e-300) / median) / sigma


_FAITHFUL = 0.6  # relative spread up to which three moments determine the law better than two
_NARROW = 1e-4  # relative spread below which a double holds only the leading order of the moments of e^y
_LARGEST = 50.0  # largest logarithm of a moment


class Scale(NamedTuple):
    """Increasing function of a statistic whose law is nearer to normal than that of the statistic."""

    transform: Callable[[FloatArray], FloatArray]
    inverse: Callable[[FloatArray], FloatArray]
    image: tuple[float, float] = (-math.inf, math.inf)  # interval of its values
    derivatives: Any = None  # x ↦ its value and first two derivatives, where expansions are made on it


IDENTITY = Scale(lambda x: x, lambda u: u, derivatives=lambda x: (x, 1.0, 0.0))
EXPONENTIAL = Scale(np.exp, np.log, (1.0, math.inf))  # for ln of a number of 1 or more


def logarithm(origin: float = 0.0) -> Scale:
    """ln(x − origin)."""
    return Scale(
        lambda x: np.log(x - origin),
        lambda u: origin + np.exp(u),
        derivatives=lambda x: (math.log(x - origin), 1.0 / (x - origin), -1.0 / (x - origin) ** 2),
    )


def nearness(end: float) -> Scale:
    """−ln(end − x)."""
    return Scale(lambda x: -np.log(end - x), lambda u: end - np.exp(-u))


def reciprocal(origin: float) -> Scale:
    """−1/(x − origin)."""
    return Scale(
        lambda x: -1.0 / (x - origin),
        lambda u: origin - 1.0 / u,
        (-math.inf, -0.0),
        lambda x: (-1.0 / (x - origin), 1.0 / (x - origin) ** 2, -2.0 / (x - origin) ** 3),
    )


@dataclass(frozen=True)
class OnScale(TwoMoments, TransformedLaw):
    """Law of a statistic T with this mean and standard deviation, given by the law of an increasing function of T."""

    scale: Scale  # the function
    law: Distribution  # the law of scale(T)

    @property
    def support(self) -> tuple[float, float]:
        low, high = self._to(np.array(self.law.support))
        return float(low), float(high)

    def _from(self, x: FloatArray) -> FloatArray:
        return self.scale.transform(x)

    def _to(self, x: FloatArray) -> FloatArray:
        # Values of an approximate law beyond the image are clipped to its ends.
        with np.errstate(over="ignore", divide="ignore"):
            return self.scale.inverse(np.clip(x, *self.scale.image))


class LogPearson3(OnScale):
    """Law of e^y, origin + e^y or end − e^y with y of Pearson's type III, for a number that cannot reach an end."""

    @classmethod
    def matched(cls, mean: float, std: float, skewness: float, faithful: float = _FAITHFUL) -> Self:
        """Return the member with these three moments; beyond a relative spread of ``faithful``, with the first two."""
        return cls(mean, std, logarithm(), _matched(mean, std, skewness, faithful))

    @classmethod
    def with_inverse(cls, mean: float, std: float, log_product: float) -> Self:
        """Return the member with this mean, std and ln (E e^-y) (E e^y), for a wide law; log-normal if none has."""
        second = math.log1p((std / mean) ** 2)

        def excess(parameters: FloatArray) -> list[float]:
            below, first, above = (_log_moment(p, *map(float, parameters)) for p in (-1, 1, 2))
            if max(below, above) > _LARGEST:
                return [math.inf, math.inf]
            return [above - 2.0 * first - second, below + first - log_product]

        sigma, shape = math.sqrt(second), 0.0
        solution = root(excess, [sigma, shape], tol=1e-10)
        if max(map(abs, excess(solution.x))) < 1e-6:
            sigma, shape = map(float, solution.x)
        return cls(mean, std, logarithm(), Pearson3(math.log(mean) - _log_moment(1, sigma, shape), sigma, shape))

    @classmethod
    def above(cls, origin: float, exponent: Pearson3) -> Self:
        """Return the law of origin + e^y for this law of y."""
        first, second = (_log_moment(p, exponent.spread, exponent.skewness) for p in (1, 2))
        mean = math.exp(exponent.centre + first)
        return cls(origin + mean, mean * math.sqrt(math.expm1(second - 2.0 * first)), logarithm(origin), exponent)

    @classmethod
    def below(cls, end: float, law: Pearson3) -> Self:
        """Return the law of end − e^y with mean, standard deviation and skewness of another law."""
        y = _matched(end - law.centre, law.spread, -law.skewness, faithful=1.0)
        return cls(law.centre, law.spread, nearness(end), Pearson3(-y.centre, y.spread, -y.skewness))


def _matched(mean: float, std: float, skewness: float, faithful: float) -> Pearson3:
    relative = std / mean

    def excess(parameters: FloatArray) -> list[float]:
        sigma, shape = relative * parameters[0], float(parameters[1])
        second, third = (_log_moment(p, sigma, shape) - p * _log_moment(1, sigma, shape) for p in (2, 3))
        if max(second, third) > _LARGEST:
            return [math.inf, math.inf]
        variance = math.expm1(second)
        return [variance / relative**2 - 1.0, (math.expm1(third) - 3.0 * variance) / relative**3 - skewness]

    sigma, shape = math.sqrt(math.log1p(relative**2)), 0.0  # log-normal, if no member has that skewness
    if relative < _NARROW:
        shape = skewness - 3.0 * relative
    elif relative < faithful:
        solution = root(excess, [1.0, skewness - 3.0 * relative], tol=1e-9)
        if max(map(abs, excess(solution.x))) < 1e-5:
            sigma, shape = relative * float(solution.x[0]), float(solution.x[1])
    location = math.log(mean) - _log_moment(1, sigma, shape)
    return Pearson3(location, sigma, shape)


def _log_moment(p: int, sigma: float, skewness: float) -> float:
    """ln E e^(p y) for type III of mean 0: -k (ln(1 - u) + u) with k = 4/skewness² and u = p σ skewness/2."""
    u = 0.5 * p * sigma * skewness
    if abs(u) < 0.03:  # ln(1 - u) + u loses digits
        return 0.5 * (p * sigma) ** 2 * math.fsum(2.0 * u**n / (n + 2) for n in range(10))
    if u >= 1.0:
        return math.inf
    return -4.0 / skewness**2 * (math.log1p(-u) + u)
