"""Laws of weights: a contaminated normal bulk, the two-point law of Pearson's bound, the scale under AdamW.

Kurtosis is the fourth standardized moment, 3 for a normal law; subtract 3 for the excess kurtosis.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from scipy.integrate import quad
from scipy.optimize.elementwise import find_root
from scipy.special import ndtr, ndtri, xlogy

from rmtbase.errors import ParameterError
from rmtbase.laws._distribution import DiscreteDistribution, Distribution, FloatArray
from rmtbase.parameters import require_finite_number, require_order, require_positive_number, require_real_numbers

_ROOT_TAU = math.sqrt(2.0 * math.pi)


@dataclass(frozen=True)
class ContaminatedNormal(Distribution):
    """Mixture (1 - q) N(mean_bulk, σ_bulk²) + q N(mean_spike, σ_spike²) with q = ``spike_weight`` (Tukey 1960).

    With δ = mean_spike - mean_bulk and v_b, v_s the two variances,

        mean = mean_bulk + q δ,    var = (1 - q) v_b + q v_s + q (1 - q) δ²,
        μ_3  = q (1 - q) δ [3 (v_s - v_b) + (1 - 2q) δ²],
        μ_4  = 3 (1 - q) v_b² + 3 q v_s² + 6 q (1 - q) δ² [q v_b + (1 - q) v_s] + q (1 - q) δ⁴ [1 - 3 q (1 - q)].

    Exact; all functions are computed to rounding, except the entropy. With ``sigma_spike=0`` the point mass is included
    in ``cdf``, ``sf``, ``ppf`` and the moments; ``pdf`` is the continuous part, of mass 1 - q, and the entropy is -inf.

    Attributes:
        spike_weight: q, the weight of the spike (not of the bulk), 0 ≤ q ≤ 1.
        mean_spike, mean_bulk: means of spike and bulk.
        sigma_bulk, sigma_spike: their standard deviations, positive; that of the spike may be zero. Other parameters
            raise a ParameterError.
    """

    spike_weight: float
    mean_spike: float = 0.0
    sigma_bulk: float = 1.0
    sigma_spike: float = 0.0
    mean_bulk: float = 0.0

    def __post_init__(self) -> None:
        weight = require_finite_number("spike_weight", self.spike_weight)
        if not 0.0 <= weight <= 1.0:
            raise ParameterError("spike_weight", self.spike_weight, "a number from 0 to 1")
        spread = require_finite_number("sigma_spike", self.sigma_spike)
        if spread < 0.0:
            raise ParameterError("sigma_spike", self.sigma_spike, "zero (a point mass) or a positive number")
        object.__setattr__(self, "spike_weight", weight)
        object.__setattr__(self, "sigma_spike", spread)
        object.__setattr__(self, "sigma_bulk", require_positive_number("sigma_bulk", self.sigma_bulk))
        for name in ("mean_spike", "mean_bulk"):
            object.__setattr__(self, name, require_finite_number(name, getattr(self, name)))

    @property
    def atom_mass(self) -> float:
        """Mass of the atom at mean_spike: q for σ_spike = 0, else 0."""
        return self.spike_weight if self.sigma_spike == 0.0 else 0.0

    def _pdf(self, x: FloatArray) -> FloatArray:
        density = (1.0 - self.spike_weight) * _normal_pdf(x, self.mean_bulk, self.sigma_bulk)
        if self.sigma_spike > 0.0:
            density = density + self.spike_weight * _normal_pdf(x, self.mean_spike, self.sigma_spike)
        return density

    def _cdf(self, x: FloatArray) -> FloatArray:
        spike = ndtr((x - self.mean_spike) / self.sigma_spike) if self.sigma_spike > 0.0 else x >= self.mean_spike
        return (1.0 - self.spike_weight) * ndtr((x - self.mean_bulk) / self.sigma_bulk) + self.spike_weight * spike

    def _sf(self, x: FloatArray) -> FloatArray:
        spike = ndtr((self.mean_spike - x) / self.sigma_spike) if self.sigma_spike > 0.0 else x < self.mean_spike
        return (1.0 - self.spike_weight) * ndtr((self.mean_bulk - x) / self.sigma_bulk) + self.spike_weight * spike

    def _bracketed(self, mass: FloatArray, from_below: NDArray[np.bool_]) -> FloatArray:
        """Find the smallest w with the given mass; it lies between the quantiles of the components."""
        score = np.where(from_below, 1.0, -1.0) * ndtri(mass)
        ends = self.mean_bulk + self.sigma_bulk * score, self.mean_spike + self.sigma_spike * score
        low, high = np.minimum(*ends), np.maximum(*ends)

        def excess(x: FloatArray, mass: FloatArray, from_below: NDArray[np.bool_]) -> FloatArray:
            return np.where(from_below, self.cdf(x) - mass, mass - self.sf(x))

        result = find_root(excess, (low, high), args=(mass, from_below), tolerances={"xatol": 0.0, "xrtol": 4e-16})
        # Equal ends, or a jump exactly at one of them, give no change of sign: take the lowest end that suffices.
        return np.where(result.success, result.x, np.where(excess(low, mass, from_below) >= 0.0, low, high))

    def moment(self, k: int) -> float:
        """E[w^k], k = 0, 1, 2, ...; exact up to rounding."""
        order = require_order(k)
        bulk = _normal_moment(order, self.mean_bulk, self.sigma_bulk)
        spike = _normal_moment(order, self.mean_spike, self.sigma_spike)
        return (1.0 - self.spike_weight) * bulk + self.spike_weight * spike

    def mean(self) -> float:
        return self.mean_bulk + self.spike_weight * self._delta

    def var(self) -> float:
        q = self.spike_weight
        return (1.0 - q) * self.sigma_bulk**2 + q * self.sigma_spike**2 + q * (1.0 - q) * self._delta**2

    def skewness(self) -> float:
        """Third standardized moment."""
        q, delta = self.spike_weight, self._delta
        widths = 3.0 * (self.sigma_spike**2 - self.sigma_bulk**2)
        return q * (1.0 - q) * delta * (widths + (1.0 - 2.0 * q) * delta**2) / self.var() ** 1.5

    def kurtosis(self) -> float:
        """Fourth standardized moment, 3 for a normal law."""
        q, delta2 = self.spike_weight, self._delta**2
        bulk, spike, both = self.sigma_bulk**2, self.sigma_spike**2, q * (1.0 - q)
        fourth = (
            3.0 * (1.0 - q) * bulk**2
            + 3.0 * q * spike**2
            + 6.0 * both * delta2 * (q * bulk + (1.0 - q) * spike)
            + both * delta2**2 * (1.0 - 3.0 * both)
        )
        return fourth / self.var() ** 2

    def entropy(self) -> float:
        """Differential entropy -<ln pdf> in nats; numerical, absolute error below 1e-9; -inf with a point mass."""
        if self.atom_mass > 0.0:
            return -math.inf
        components = [(self.mean_bulk, self.sigma_bulk)] * (self.spike_weight < 1.0)
        components += [(self.mean_spike, self.sigma_spike)] * (self.spike_weight > 0.0)
        reaches = [sign * reach for sign in (-1.0, 1.0) for reach in (0.0, 3.0, 9.0, 38.0)]
        ends = sorted({mean + reach * sigma for mean, sigma in components for reach in reaches})
        return math.fsum(
            quad(lambda x: -xlogy(p := float(self.pdf(x)), p), low, high, epsabs=1e-12, epsrel=1e-11, limit=200)[0]
            for low, high in pairwise(ends)
        )

    @property
    def _delta(self) -> float:
        return self.mean_spike - self.mean_bulk


def _normal_pdf(x: FloatArray, mean: float, sigma: float) -> FloatArray:
    return np.exp(-0.5 * ((x - mean) / sigma) ** 2) / (_ROOT_TAU * sigma)


def _normal_moment(k: int, mean: float, sigma: float) -> float:
    return math.fsum(
        math.comb(k, j) * mean ** (k - j) * sigma**j * math.prod(range(1, j, 2)) for j in range(0, k + 1, 2)
    )


def pearson_bound(skewness: ArrayLike) -> FloatArray:
    """Return the smallest kurtosis, skewness² + 1, that a law with this skewness can have; exact, same shape.

    Only two-point laws reach it (Pearson 1916); see :class:`TwoPoint`. The bound also holds for samples, if both
    statistics are the plain moments with 1/n. nan gives nan; an infinite skewness raises a ParameterError.
    """
    values = require_real_numbers("skewness", skewness)
    if np.isinf(values).any():
        raise ParameterError("skewness", skewness, "finite numbers, NaN where not known")
    with np.errstate(over="ignore"):
        return values**2 + 1.0


@dataclass(frozen=True)
class TwoPoint(DiscreteDistribution):
    """Two-point law with a given skewness; it reaches Pearson's bound.

    With t = √(skewness² + 4), the standardized points are (skewness ∓ t)/2, and the upper point has probability
    (1 - skewness/t)/2.

    Attributes:
        skewness: any finite number.
        center: the mean, finite.
        scale: the standard deviation, positive.
    """

    skewness: float
    center: float = 0.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        for name in ("skewness", "center"):
            object.__setattr__(self, name, require_finite_number(name, getattr(self, name)))
        object.__setattr__(self, "scale", require_positive_number("scale", self.scale))

    @property
    def points(self) -> Float[np.ndarray, "2"]:
        """Both points, in ascending order."""
        return np.array([self.center + self.scale * point for point in sorted(self._standardized)])

    @property
    def weights(self) -> tuple[float, float]:
        """Probabilities of the two points, in ascending order."""
        low, high = sorted(self._standardized)
        return high / (high - low), -low / (high - low)

    def pmf(self, x: ArrayLike) -> FloatArray:
        values = require_real_numbers("x", x)
        (low, high), (below, above) = self.support, self.weights
        return np.select([np.isnan(values), values == low, values == high], [np.nan, below, above], 0.0)[()]

    def moment(self, k: int) -> float:
        order = require_order(k)
        return math.fsum(weight * point**order for weight, point in zip(self.weights, self.support, strict=True))

    def mean(self) -> float:
        return self.center

    def var(self) -> float:
        return self.scale**2

    def std(self) -> float:
        return self.scale

    def kurtosis(self) -> float:
        """Return the kurtosis, skewness² + 1."""
        return self.skewness**2 + 1.0

    @property
    def _standardized(self) -> tuple[float, float]:
        """Both points for mean 0 and variance 1; their product is -1."""
        far = 0.5 * (self.skewness + math.copysign(math.hypot(self.skewness, 2.0), self.skewness))
        return -1.0 / far, far


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
