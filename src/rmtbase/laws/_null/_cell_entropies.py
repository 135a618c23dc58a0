"""Laws of estimates of entropy and divergence of n independent weights: in cells, by histogram and by kernel."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar, NamedTuple

import numpy as np
from scipy import special
from scipy.interpolate import CubicSpline

from rmtbase.laws._distribution import Distribution, FloatArray
from rmtbase.laws._element._element_estimates import log_normal_mass
from rmtbase.laws._element._expansion import Expansion, mean_square
from rmtbase.laws._element.parents import Parent
from rmtbase.laws._null._pearson import Pearson3, Pearson3Mixture, ShiftedLogNormal, ThreeMoments
from rmtbase.laws._null._reference_law import LOG_TWO_PI, ReferenceLaw, reference_law

_TINY = 1e-300
_PER_BANDWIDTH = 8  # grid points per bandwidth
_BINS = 100  # of the histogram
_FEW = 16  # from this count on Grassberger's G(N) is taken as ψ(N)
_RANGE = (math.log(1e-6), math.log(400.0))


class CountNoise(NamedTuple):
    """Moments of f(N) for a Poisson count N of mean μ, as functions of μ."""

    bias: FloatArray  # E f(N) − μ ln μ
    slope: FloatArray  # Cov(f, N)/μ, which is ln μ + 1 for large μ
    # variance, third: second and third cumulant of f minus its linear regression on N
    variance: FloatArray
    third: FloatArray


def plain(count: FloatArray) -> FloatArray:
    return special.xlogy(count, count)


def corrected(count: FloatArray) -> FloatArray:
    """N G(N), whose mean is μ ln μ; G(N) = ψ(N) + (−1)^N (ψ((N + 1)/2) − ψ(N/2))/2 for N < 16 (Grassberger 2003)."""
    at = np.maximum(count, 1.0)
    few = np.minimum(at, _FEW)
    parity = np.where(at < _FEW, 0.5 - few % 2, 0.0)
    g = special.digamma(at) + parity * (special.digamma((few + 1) / 2) - special.digamma(few / 2))
    return count * g


_LIMITS = {plain: (0.5, 0.0, 0.5, 1.0), corrected: (0.0, 0.0, 0.5, 1.0)}
"""Bias, slope minus (ln μ + 1), variance and third cumulant for large counts, where the nonlinear part of f is Z²/2."""


def noise(function: Callable[..., FloatArray], mean: FloatArray) -> CountNoise:
    log_mean = np.log(np.maximum(mean, 1e-300))
    low, high = log_mean < _RANGE[0], log_mean > _RANGE[1]
    columns = zip(_LIMITS[function], _table(function)(np.clip(log_mean, *_RANGE)).T, strict=True)
    bias, slope, variance, third = (np.where(high, limit, column) for limit, column in columns)
    share = np.where(low, np.exp(np.minimum(log_mean - _RANGE[0], 0.0)), 1.0)  # below, all but the slope are ~ μ
    return CountNoise(bias * share, slope + log_mean + 1.0, variance * share, third * share)


@cache
def _table(function: Callable[..., FloatArray]) -> CubicSpline:
    log_means, rows = np.linspace(*_RANGE, 140), []
    for mean in map(math.exp, log_means):
        reach = 9.0 * math.sqrt(mean)
        count = np.arange(math.floor(max(mean - reach, 0.0)), math.ceil(mean + reach) + 12.0)
        mass = np.exp(special.xlogy(count, mean) - mean - special.gammaln(count + 1.0))
        value = function(count)
        first_moment = float(np.sum(mass * value))
        slope = float(np.sum(mass * (value - first_moment) * (count - mean))) / mean
        residual = value - first_moment - slope * (count - mean)
        residual -= float(np.sum(mass * residual))
        bias = first_moment - float(special.xlogy(mean, mean))
        rows.append((bias, slope - math.log(mean) - 1.0, np.sum(mass * residual**2), np.sum(mass * residual**3)))
    return CubicSpline(log_means, np.array(rows))


@dataclass(frozen=True)
class Estimate:
    """Estimate whose resolution depends on n, or that is counted in cells whose width does."""

    statistic: Expansion  # its expansion
    noise: Sequence[float]  # n² κ₂ and n³ κ₃ of the curvature, and of the few weights in the tails
    n: int  # number of weights

    family: ClassVar[type[ThreeMoments]] = ShiftedLogNormal

    def law(self, cumulants: tuple[float, float, float], noise: Sequence[float]) -> Distribution:
        return self.family.of_numbers(self.n, self.statistic.value, cumulants, noise)

    def of_independent(self) -> Distribution:
        return self.law((self.statistic.drift, self.statistic.variance, self.statistic.third), self.noise)


def kernel_residual(parent: Parent, n: int) -> Estimate:
    """S − ½ ln(2πe s²), S by a kernel of width s n^(−1/5); its noise −∫ δp²/(2 p_K) has counts n p_K²/(K² ∗ p)."""
    law, bandwidth = reference_law(parent), n**-0.2
    smoothed = _Smoothed(law, bandwidth)
    log_s = law.log_s * (smoothed.stretch - 1.0)
    probability = law.grid.probability
    influence = law.centred(smoothed.surprise(law.x) + log_s.influence)
    if law.is_normal:  # by invariance the influence has no part along the number or the variance, so it vanishes
        influence = np.zeros_like(influence)
    sparse, square = law.centred(smoothed.sparse(law.x, n)), law.centred(law.x**2)
    sparse -= square * (probability @ (sparse * square)) / (probability @ square**2)
    bias, second, third = smoothed.noise(n)
    # Number, mean and variance are fixed: for normal weights these are the Hermite functions up to the second.
    rho = 1.0 / (1.0 + bandwidth**2)
    drift = 0.5 - bias + (0.5 * rho**2 if law.is_normal else log_s.drift)
    tails = (
        second - 0.5 * (rho**2 + rho**4) + n * float(probability @ (sparse * (sparse + 2.0 * influence))),
        n * float(probability @ sparse**3) - third + rho**3 + rho**6,
    )
    statistic = Expansion(
        law.grid,
        smoothed.entropy - 0.5 * (LOG_TWO_PI + 1.0),
        influence,
        drift,
        lambda direction: log_s.curvature(direction) - smoothed.squared(law.x, direction),
    )
    return Estimate(statistic, tails, n)


class _Smoothed:
    def __init__(self, law: ReferenceLaw, bandwidth: float) -> None:
        upper = min(law.upper, 12.0)
        self.bandwidth, self.step = bandwidth, bandwidth / _PER_BANDWIDTH
        last = math.ceil((upper + 9.0 * bandwidth) / self.step)
        self.at = self.step * np.arange(-last, last + 1)
        mass = law.masses(np.append(self.at - 0.5 * self.step, self.at[-1] + 0.5 * self.step))
        reach = np.arange(-9 * _PER_BANDWIDTH, 9 * _PER_BANDWIDTH + 1) / _PER_BANDWIDTH
        kernel = np.exp(-0.5 * reach**2) / math.sqrt(2.0 * math.pi) / bandwidth
        self.mass, self.kernel = mass, kernel
        self.density = np.maximum(np.convolve(mass, kernel, mode="same"), 1e-300)
        self.entropy = -float(self.step * self.density @ np.log(self.density))
        slope = np.convolve(mass, kernel * reach, mode="same")  # −b p_K'
        self.stretch = float(self.step * np.sum(slope**2 / self.density))
        self.square = np.convolve(mass, kernel**2, mode="same")
        self._surprise = -np.convolve(np.log(self.density), kernel * self.step, mode="same")

    def surprise(self, x: FloatArray) -> FloatArray:
        return np.interp(x, self.at, self._surprise)

    def squared(self, x: FloatArray, direction: FloatArray) -> float:
        change = np.convolve(self.mass * np.interp(np.abs(self.at), x, direction), self.kernel, mode="same")
        return float(self.step * np.sum(change**2 / np.maximum(self.density, 1e-30)))

    def sparse(self, x: FloatArray, n: int) -> FloatArray:
        """Return the additional surprise where the density is so low that n weights leave gaps."""
        mean = n * self.density**2 / np.maximum(self.square, 1e-300)
        excess = noise(plain, mean).slope - np.log(np.maximum(mean, 1e-300)) - 1.0
        return np.interp(x, self.at, -np.convolve(excess, self.kernel * self.step, mode="same"))

    def noise(self, n: int) -> tuple[float, float, float]:
        """Return n × bias, n² × variance and n³ × third cumulant of the negative of the estimate, for n weights."""
        dense = self.density > 1e-12
        density, square = self.density[dense], self.square[dense]
        counts = noise(plain, n * density**2 / square)
        bias = float(self.step * np.sum(square / density * counts.bias))
        # The covariance of δp/√p_K at points half a bandwidth apart, reduced where the counts are small.
        every = slice(None, None, _PER_BANDWIDTH // 2)
        at, density = self.at[dense][every], density[every]
        middle = 0.5 * (at[:, None] + at)
        joint = np.interp(middle, self.at, self.square) * np.exp(-0.25 * ((at[:, None] - at) / self.bandwidth) ** 2)
        few = np.sqrt(2.0 * counts.variance[every]) / density
        form = (joint - density[:, None] * density) * np.sqrt(few[:, None] * few) * self.step * _PER_BANDWIDTH / 2
        twice = form @ form
        return bias, 0.5 * float(np.trace(twice)), float(np.sum(twice * form))


def histogram_residual(parent: Parent, n: int) -> Estimate:
    """−Σ p ln(p/width) − ½ ln(2πe s²), 100 equal bins between the extremes, given which the others are independent."""
    law = reference_law(parent)
    nodes, gauss = np.polynomial.legendre.leggauss(24)
    low, high = -4.5, math.log(12.0)
    log_rate = 0.5 * (high - low) * nodes + 0.5 * (high + low)
    rate = np.exp(log_rate)
    weight = 0.5 * (high - low) * gauss * rate * np.exp(-rate)
    weight /= weight.sum()
    ends = law.parent.isf(np.minimum(2.0 * -np.expm1(-rate / n), 0.5)) / law.sigma
    # The mean of two independent ends, from the nodes of both.
    reach = 0.5 * (ends[:, None] + ends).ravel()
    joint = np.outer(weight, weight).ravel()
    order = np.argsort(reach)
    reach, joint = reach[order], joint[order]
    parts = []
    for group in np.array_split(np.arange(reach.size), 24):
        share = joint[group].sum()
        half = float(joint[group] @ reach[group]) / share
        parts.append((share, *_cumulants_within(law, n, half)))
    share, mean, second, third = np.array(parts).T
    average = float(share @ mean)
    apart = mean - average
    # Expansion for the weights between fixed ends; ``of_ends`` holds the contribution of the ends.
    influence = law.centred(-np.log(np.maximum(law.grid.density / law.x, _TINY)) - law.log_s.influence)
    curvature = law.log_s.curvature
    statistic = Expansion(
        law.grid,
        average,
        influence,
        0.0,
        lambda direction: -float(law.grid.probability @ direction**2) - curvature(direction),
    )
    of_ends = (
        n**2 * float(share @ (second + apart**2)) - n * statistic.variance,
        n**3 * float(share @ (third + 3.0 * second * apart + apart**3)) - n * statistic.third,
    )
    return Estimate(statistic, of_ends, n)


def _cumulants_within(law: ReferenceLaw, n: int, half: float) -> tuple[float, float, float]:
    edges = np.linspace(0.0, half, _BINS // 2 + 1)
    mass = law.masses(edges)
    share = mass / mass.sum()  # law of |w| within the range
    mean = 0.5 * (n - 2) * share
    counts = noise(plain, mean)
    total = special.xlogy(mean, mean) + counts.bias
    # E (N + 1) ln(N + 1) for the Poisson count N of the bin that also holds one of the extremes.
    last = float(mean[-1])
    total[-1] = float((last + 1.0) * math.log(last + 1.0)) + 0.5
    if last <= 200.0:
        count = np.arange(math.ceil(last + 10.0 * math.sqrt(last)) + 20.0)
        poisson = np.exp(special.xlogy(count, last) - last - special.gammaln(count + 1.0))
        total[-1] = float(poisson @ special.xlogy(count + 1.0, count + 1.0))
    inside = law.x < half
    probability = np.where(inside, law.grid.probability, 0.0)
    probability = probability / probability.sum()
    square, fourth = float(probability @ law.x**2), float(probability @ law.x**4)
    s2 = ((n - 2) * square + 2.0 * half**2) / (n - 1)
    entropy = math.log(n) - 2.0 * float(total.sum()) / n + 0.5 / n
    entropy += math.log(2.0 * half / _BINS)
    log_s = 0.5 * math.log(s2) - 0.25 * (fourth - square**2) / (n * s2**2)
    place = np.minimum(np.searchsorted(edges, law.x, side="right") - 1, share.size - 1)
    influence = -counts.slope[place] - 0.5 * law.x**2 / s2
    influence = influence - float(probability @ influence)
    second = float(probability @ influence**2) / n + 2.0 * float(counts.variance.sum()) / n**2
    third = float(probability @ influence**3) / n**2 - 2.0 * float(counts.third.sum()) / n**3
    return entropy - log_s - 0.5 * (LOG_TWO_PI + 1.0), second, third


_SCOTT, _NARROWEST = 3.49, 1.0 / 16.0  # widths of the cells, in spreads, as in :mod:`rmtbase.statistics`
_ACROSS, _ALONG = 9, 81  # nodes of w̄ and of the spread
_REACH = 5.0
_FURTHEST = 40.0
_STEEPEST = 1.0  # largest skewness of the parts of the mixture over the nodes
_ENDING = 16  # expected count from which on an outermost cell ends where the parent does
_FIXED = np.array([-1.5, -3.0])  # n² κ₂ and n³ κ₃ of the three degrees of freedom that number, mean and variance fix


class _Cells:
    """Cells at one n, in units of σ, (node, cell); where a parent ends with a jump, nodes average over w̄ and spread."""

    def __init__(self, law: ReferenceLaw, n: int) -> None:
        spread, tie = law.spread
        # The smaller of two estimates with a normal difference of standard deviation d is lower by d/√(2π) on average.
        width = math.exp(spread.value) * (1.0 - tie / math.sqrt(2.0 * math.pi * n))
        width *= max(_SCOTT * n ** (-1.0 / 3.0), _NARROWEST)
        ends = math.isfinite(law.upper)
        across, first = _normal_rule(_ACROSS if ends else 1)
        along, second = _normal_rule(_ALONG if ends else 1)
        # ``score`` is ln spread in standard deviations.
        centre, self.score = (nodes.ravel() for nodes in np.meshgrid(across / math.sqrt(n), along))
        self.weight = np.outer(second, first).ravel()  # of the nodes, of sum 1
        self.middle = int(np.argmax(self.weight))
        self.log_width = math.log(width) + self.score * math.sqrt(spread.variance / n)
        widths = np.exp(self.log_width)[:, None]
        self._last = 2 * math.ceil((min(law.upper, _FURTHEST) / float(widths.min()) + 4.0) / 2.0)
        edges = centre[:, None] + (np.arange(-self._last, self._last + 3) - 0.5) * widths
        self.share = law.masses(edges)  # P(w in cell), for an even number of cells
        # A cell with many numbers in which the parent ends is cut at that end.
        reach = np.where(n * self.share < _ENDING, math.inf, law.upper)
        self.low, self.high = np.maximum(edges[:, :-1], -reach), np.minimum(edges[:, 1:], reach)
        cut = (self.low > edges[:, :-1]) | (self.high < edges[:, 1:])
        self.ends = int(cut[self.middle].sum())  # number of cut cells
        self.jumps = bool(cut.any())

    def of_magnitude(self, values: FloatArray, x: FloatArray) -> FloatArray:
        place = np.round(x / math.exp(self.log_width[self.middle])).astype(np.intp)
        right, left = (values[np.clip(self._last + side, 0, values.size - 1)] for side in (place, -place))
        return 0.5 * (right + left)


@dataclass(frozen=True)
class CountedEstimate(Estimate):
    parent: ReferenceLaw  # law of the weights
    cells: _Cells
    value: FloatArray  # the estimate at the nodes of the cells, (node,)

    family: ClassVar = Pearson3

    def of_independent(self) -> Distribution:
        n, statistic, cells, spread = self.n, self.statistic, self.cells, self.parent.spread[0]
        mean = self.value + statistic.drift / n
        second, third = statistic.variance / n + self.noise[0] / n**2, statistic.third / n**2 + self.noise[1] / n**3
        if cells.weight.size == 1:
            return Pearson3.from_cumulants(float(mean[0]), second, third)
        along = statistic.covariance(spread) / math.sqrt(spread.variance * n)
        centre = mean + along * cells.score
        # Spread of at least 3/5 of the distance between the parts, so that they leave no gaps.
        apart = 1.2 * _REACH / (_ALONG - 1) * float(np.sqrt(cells.weight @ (centre - cells.weight @ centre) ** 2))
        across = max(math.sqrt(max(second - along**2, self.noise[0] / n**2)), apart)
        skewness = min(max(third / across**3, -_STEEPEST), _STEEPEST)
        return Pearson3Mixture(centre, across, skewness, cells.weight)


def _normal_rule(count: int) -> tuple[FloatArray, FloatArray]:
    nodes = np.linspace(-_REACH, _REACH, count) if count > 1 else np.zeros(1)
    weights = np.exp(-0.5 * nodes**2)
    return nodes, weights / weights.sum()


def divergence(parent: Parent, n: int, of_core: bool) -> CountedEstimate:
    """Return the estimate of D_KL(w ‖ N(w̄, s²)) plus 1/n, or of D_KL(w ‖ N(c, σ_fit²)) with the core's c and σ_fit."""
    law, cells = reference_law(parent), _Cells(reference_law(parent), n)
    log_scale = law.log_s + law.core if of_core else law.log_s
    ratio = math.exp(law.core.value) if of_core else 1.0
    log_mass = log_normal_mass(cells.low / ratio, cells.high / ratio)
    excess = np.where(cells.share > 0.0, np.log(np.maximum(cells.share, _TINY)) - log_mass, 0.0)
    value = (cells.share * excess).sum(axis=1)
    influence = cells.of_magnitude(excess[cells.middle], law.x) + (1.0 - ratio**-2) * log_scale.influence
    # The mean of −ln q at the fitted law, a smooth statistic, and the mean square about the fitted centre.
    fitted = log_scale + 0.5 * mean_square(law.grid) * (-2.0 * log_scale).exp()
    centre = law.core_centre if of_core else law.x
    about_centre = float(law.grid.probability @ (0.5 * centre**2 - centre * law.x)) / ratio**2
    counts = noise(corrected, n * cells.share[cells.middle])
    bias = float(counts.bias.sum()) - 0.5 + fitted.drift + about_centre + (0.0 if of_core else 1.0)
    bias += cells.ends  # the outermost of n numbers leaves 1/n of the mass of its cell empty
    of_counts = np.array([counts.variance.sum(), counts.third.sum()]) + _FIXED
    if of_core:  # its fit adds ½(c − w̄)²/s² + ln²(σ_fit/s)
        apart = np.array([0.5 * float(law.grid.probability @ (centre - law.x) ** 2), law.core.variance])
        of_counts += np.array([2.0 * np.sum(apart**2), 8.0 * np.sum(apart**3)])
    probability = law.grid.probability
    statistic = Expansion(
        law.grid,
        float(value[cells.middle]),
        influence - float(probability @ influence),
        bias,
        lambda direction: float(probability @ direction**2) + fitted.curvature(direction),
    )
    return CountedEstimate(statistic, of_counts.tolist(), n, law, cells, value)


def ends_with_a_jump(parent: Parent, n: int) -> bool:
    """Return True if so many of n weights can be in the outermost cell that it ends where the parent does."""
    return _Cells(reference_law(parent), n).jumps


def entropy_residual(parent: Parent, n: int) -> CountedEstimate:
    """Return the estimate of S − ½ ln(2πe s²): S is the cross-entropy with N(w̄, s²) minus the divergence."""
    matched = divergence(parent, n, of_core=False)
    return replace(
        matched,
        statistic=(-matched.statistic).drifting(0.5),  # ``matched`` is the divergence plus 1/n
        noise=[matched.noise[0], -matched.noise[1]],
        value=-matched.value,
    )
