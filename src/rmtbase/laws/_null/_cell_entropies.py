"""Laws of the entropy and of the divergences from normal laws that are counted in cells, of n independent weights.

About a normal law the influence of these estimates vanishes, and what is left is a quadratic form in the counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from rmtbase.laws._distribution import Distribution, FloatArray
from rmtbase.laws._element._expansion import Expansion, Quadratic, mean_square
from rmtbase.laws._element._panels import Panels
from rmtbase.laws._element.parents import Parent
from rmtbase.laws._null._pearson import Pearson3, Pearson3Mixture
from rmtbase.laws._null._poisson_noise import corrected, noise
from rmtbase.laws._null._reference_law import ReferenceLaw, reference_law

_SCOTT, _NARROWEST = 3.49, 1.0 / 16.0  # widths of the cells, in spreads, as :mod:`rmtbase.statistics` has them
_ACROSS, _ALONG = 9, 81  # nodes of w̄ and of the spread
_REACH = 5.0
_FURTHEST = 40.0
_STEEPEST = 1.0  # skewness of what the edges leave
_TINY = 1e-300
_ENDING = 16  # numbers from which on an outermost cell ends where the sample does
_GIVEN = np.array([-1.5, -3.0])  # of n² κ₂ and n³ κ₃: number, mean and variance are three degrees of freedom less


class _Cells:
    """The cells of the estimates at one n, in units of σ; arrays are (node, cell).

    They lie about w̄ and are as wide as the sample's spread says. Where the parent's density ends with a jump it matters
    where in a cell that is: the nodes are those of a mean over w̄ and ln spread, both normal. Elsewhere one is enough.

    Attributes:
        share: P(w in cell), an even number of cells.
        low, high: their edges; of cells in which the parent ends and many numbers lie, where it ends.
        ends: how many of those the middle node has.
        jumps: whether any node has one.
        log_width: (node,).
        weight: of the nodes, of sum 1.
        score: of ln spread, in standard deviations, (node,).
        middle: the node of the largest weight.
    """

    def __init__(self, law: ReferenceLaw, n: int) -> None:
        spread, tie = law.spread
        # Of two that agree, apart by a normal variable of standard deviation d, the smaller is less by d/√(2π).
        width = math.exp(spread.value) * (1.0 - tie / math.sqrt(2.0 * math.pi * n))
        width *= max(_SCOTT * n ** (-1.0 / 3.0), _NARROWEST)
        ends = math.isfinite(law.upper)
        across, first = _normal_rule(_ACROSS if ends else 1)
        along, second = _normal_rule(_ALONG if ends else 1)
        centre, self.score = (one.ravel() for one in np.meshgrid(across / math.sqrt(n), along))
        self.weight = np.outer(second, first).ravel()
        self.middle = int(np.argmax(self.weight))
        self.log_width = math.log(width) + self.score * math.sqrt(spread.variance / n)
        widths = np.exp(self.log_width)[:, None]
        self._last = 2 * math.ceil((min(law.upper, _FURTHEST) / float(widths.min()) + 4.0) / 2.0)
        edges = centre[:, None] + (np.arange(-self._last, self._last + 3) - 0.5) * widths
        self.share = law.masses(edges)
        reach = np.where(n * self.share < _ENDING, math.inf, law.upper)
        self.low, self.high = np.maximum(edges[:, :-1], -reach), np.minimum(edges[:, 1:], reach)
        cut = (self.low > edges[:, :-1]) | (self.high < edges[:, 1:])
        self.ends = int(cut[self.middle].sum())
        self.jumps = bool(cut.any())

    def of_magnitude(self, values: FloatArray, x: FloatArray) -> FloatArray:
        """The mean over both signs of a number of the cells, (cell,), at w = ±x and the middle node."""
        place = np.round(x / math.exp(self.log_width[self.middle])).astype(np.intp)
        right, left = (values[np.clip(self._last + side, 0, values.size - 1)] for side in (place, -place))
        return 0.5 * (right + left)


@dataclass(frozen=True)
class CountedEstimate:
    """An estimate by cells at one n.

    Attributes:
        statistic: its expansion at the middle node of the cells.
        own: n² κ₂ and n³ κ₃ of the counts' own noise.
        law, n, cells: of the weights.
        value: at the nodes of the cells, (node,).
    """

    statistic: Expansion
    own: FloatArray
    law: ReferenceLaw
    n: int
    cells: _Cells
    value: FloatArray

    def of_independent(self) -> Distribution:
        """The law of independent weights."""
        n, statistic, cells, spread = self.n, self.statistic, self.cells, self.law.spread[0]
        mean = self.value + statistic.drift / n
        second, third = statistic.variance / n + self.own[0] / n**2, statistic.third / n**2 + self.own[1] / n**3
        if cells.weight.size == 1:
            return Pearson3.of(float(mean[0]), second, third)
        along = statistic.covariance(spread) / math.sqrt(spread.variance * n)
        centre = mean + along * cells.score
        # At least 3/5 of the parts' distance, so that they leave no gaps.
        apart = 1.2 * _REACH / (_ALONG - 1) * float(np.sqrt(cells.weight @ (centre - cells.weight @ centre) ** 2))
        left = max(math.sqrt(max(second - along**2, self.own[0] / n**2)), apart)
        skewness = min(max(third / left**3, -_STEEPEST), _STEEPEST)
        return Pearson3Mixture(centre, left, skewness, cells.weight)


def counted_average(
    grid: Panels, value: float, influence: FloatArray, drift: float, sign: float, rest: Quadratic
) -> Expansion:
    """Σ p ln p of the counts, or −Σ p ln p, with what else depends on the weights: its curvature is ``rest``."""
    influence = influence - float(grid.probability @ influence)
    return Expansion(
        grid,
        value,
        influence,
        drift,
        lambda direction: sign * float(grid.probability @ direction**2) + rest(direction),
    )


def _normal_rule(count: int) -> tuple[FloatArray, FloatArray]:
    """Equally spaced nodes, an odd number of them, and weights of a mean over a standard normal variable."""
    nodes = np.linspace(-_REACH, _REACH, count) if count > 1 else np.zeros(1)
    weights = np.exp(-0.5 * nodes**2)
    return nodes, weights / weights.sum()


def divergence(parent: Parent, n: int, of_core: bool) -> CountedEstimate:
    """Of D_KL(w ‖ N(w̄, s²)) plus 1/n, or of D_KL(w ‖ N(c, σ_fit²)), c and σ_fit those of the core."""
    law, cells = reference_law(parent), _Cells(reference_law(parent), n)
    log_scale = law.log_s + law.core if of_core else law.log_s
    ratio = math.exp(law.core.value) if of_core else 1.0
    log_mass = _log_normal_mass(cells.low / ratio, cells.high / ratio)
    excess = np.where(cells.share > 0.0, np.log(np.maximum(cells.share, _TINY)) - log_mass, 0.0)
    value = (cells.share * excess).sum(axis=1)
    influence = cells.of_magnitude(excess[cells.middle], law.x) + (1.0 - ratio**-2) * log_scale.influence
    # The mean of −ln q at the fitted law, a smooth statistic, and the mean square about the fitted centre.
    fitted = log_scale + 0.5 * mean_square(law.grid) * (-2.0 * log_scale).exp()
    centre = law.core_centre if of_core else law.x
    about_centre = float(law.grid.probability @ (0.5 * centre**2 - centre * law.x)) / ratio**2
    counts = noise(corrected, n * cells.share[cells.middle])
    bias = float(counts.bias.sum()) - 0.5 + fitted.drift + about_centre + (0.0 if of_core else 1.0)
    bias += cells.ends  # the outermost of N numbers leaves 1/N of its cell
    own = np.array([counts.variance.sum(), counts.third.sum()]) + _GIVEN
    if of_core:  # its fit adds ½(c − w̄)²/s² + ln²(σ_fit/s)
        apart = np.array([0.5 * float(law.grid.probability @ (centre - law.x) ** 2), law.core.variance])
        own += np.array([2.0 * np.sum(apart**2), 8.0 * np.sum(apart**3)])
    statistic = counted_average(law.grid, float(value[cells.middle]), influence, bias, 1.0, fitted.curvature)
    return CountedEstimate(statistic, own, law, n, cells, value)


def ends_with_a_jump(parent: Parent, n: int) -> bool:
    """Whether so many of n weights can be in the outermost cell that it ends where the parent does."""
    return _Cells(reference_law(parent), n).jumps


def entropy_residual(parent: Parent, n: int) -> CountedEstimate:
    """Of S − ½ ln(2πe s²), S the cross-entropy with N(w̄, s²), ½ ln(2π s²) + (n − 1)/(2n), less the divergence."""
    matched = divergence(parent, n, of_core=False)
    return replace(
        matched,
        statistic=(-matched.statistic).drifting(0.5),  # of the divergence plus 1/n
        own=matched.own * [1.0, -1.0],
        value=-matched.value,
    )


def _log_normal_mass(low: FloatArray, high: FloatArray) -> FloatArray:
    """ln P(low < z < high) of a standard normal z; finite far into the tails."""
    flip = low > 0.0
    low, high = np.where(flip, -high, low), np.where(flip, -low, high)
    larger = special.log_ndtr(high)
    return larger + np.log(-np.expm1(special.log_ndtr(low) - larger))
