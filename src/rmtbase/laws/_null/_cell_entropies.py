"""Laws of the entropy and of divergences from normal laws, estimated from counts in cells, for n independent weights.

About a normal law the influence of these estimates vanishes, and a quadratic form in the counts remains.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from rmtbase.laws._distribution import Distribution, FloatArray
from rmtbase.laws._element._element_histogram import log_normal_mass
from rmtbase.laws._element._expansion import Expansion, mean_square
from rmtbase.laws._element.parents import Parent
from rmtbase.laws._null._drawn_entropies import Estimate, corrected, noise
from rmtbase.laws._null._pearson import Pearson3, Pearson3Mixture
from rmtbase.laws._null._reference_law import ReferenceLaw, reference_law

_SCOTT, _NARROWEST = 3.49, 1.0 / 16.0  # widths of the cells, in spreads, as in :mod:`rmtbase.statistics`
_ACROSS, _ALONG = 9, 81  # nodes of w̄ and of the spread
_REACH = 5.0
_FURTHEST = 40.0
_STEEPEST = 1.0  # largest skewness of the parts of the mixture over the nodes
_TINY = 1e-300
_ENDING = 16  # expected count from which on an outermost cell ends where the parent does
_FIXED = np.array([-1.5, -3.0])  # n² κ₂ and n³ κ₃ of the three degrees of freedom that number, mean and variance fix


class _Cells:
    """Cells of the estimates at one n, in units of σ, centred on w̄ with a width set by the spread; arrays (node, cell).

    Where the density of the parent ends with a jump, the nodes average over w̄ and ln spread, both normal.
    """

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
        """Return the mean over w = ±x of values of the cells, (cell,), at the middle node."""
        place = np.round(x / math.exp(self.log_width[self.middle])).astype(np.intp)
        right, left = (values[np.clip(self._last + side, 0, values.size - 1)] for side in (place, -place))
        return 0.5 * (right + left)


@dataclass(frozen=True)
class CountedEstimate(Estimate):
    """Estimate from counts in cells at one n, expanded at the middle node of the cells."""

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
    """Return an odd number of equidistant nodes, and weights for the mean over a standard normal variable."""
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
