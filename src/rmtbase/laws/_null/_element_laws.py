"""Recipes for the laws of element statistics, for independent weights and for the elements of one W_QK."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from rmtbase.errors import ParameterError
from rmtbase.laws._distribution import Distribution, FloatArray
from rmtbase.laws._element._expansion import Expansion, Panels, mean_square, panels, quadratic_noise
from rmtbase.laws._element._normal_sample import gaussian_sample_statistic
from rmtbase.laws._element._product_element import ProductElement
from rmtbase.laws._element._product_sum import DependentStatistic, Element, SharedNorms
from rmtbase.laws._element.parents import FLOAT, Normal, Parent
from rmtbase.laws._null._cell_entropies import Estimate, ends_with_a_jump
from rmtbase.laws._null._largest_magnitude import LargestMagnitude, NormalMaximum, ProductMaximum
from rmtbase.laws._null._pearson import IDENTITY, LogPearson3, OnScale, Pearson3, Scale
from rmtbase.laws._null._simulated_law import mended, simulated_quantiles

_FLAT = 1e-3  # E IF² below which the noise of the curvature is added


class Laws(NamedTuple):
    """Limit of one statistic (nan if there is none) and a function from the size to its law."""

    limit: float
    at: Callable[..., Distribution]


class ElementLaw(ABC):
    """Laws of one element statistic."""

    @abstractmethod
    def independent(self, parent: Parent) -> Laws:
        """Return n ↦ law of n independent weights."""

    @abstractmethod
    def product(self, parent: Element) -> Laws:
        """Return (d_query, d_key) ↦ law of the elements of W_QK; ``parent`` is the law of an element."""


@dataclass(frozen=True)
class Smooth(ElementLaw):
    """Laws of a smooth statistic: Pearson's type III on a scale, with the cumulants of the expansion."""

    expand: Callable[[Parent], Expansion]  # its expansion about the law of a parent
    scale: Scale = IDENTITY  # a function of the statistic whose law is nearer to normal
    corrections: tuple[float, float] = (0.0, 0.0)  # n × the measured relative corrections of κ₂ and κ₃ on that scale

    def independent(self, parent: Parent) -> Laws:
        statistic = self.expand(parent)
        plain, scaled = (_independent(x, self.corrections) for x in (statistic, self._scaled(statistic)))
        return Laws(statistic.value, lambda n: self._law(plain(n), scaled(n)))

    def product(self, parent: Element) -> Laws:
        statistic = self.expand(parent)
        norms = SharedNorms(statistic.grid)
        plain, scaled = norms(statistic), norms(self._scaled(statistic))
        return Laws(
            statistic.value, lambda rows, columns: self._law(*(_dependent(x, rows, columns) for x in (plain, scaled)))
        )

    def _scaled(self, statistic: Expansion) -> Expansion:
        return statistic.map(*self.scale.derivatives(statistic.value))

    def _law(self, plain: Pearson3, scaled: Pearson3) -> Distribution:
        return plain if self.scale is IDENTITY else OnScale(plain.mean(), plain.std(), self.scale, scaled)


@dataclass(frozen=True)
class NearlyFlat(ElementLaw):
    """Laws of a smooth statistic whose influence is small beside its curvature, which adds noise, near an end."""

    expand: Callable[[Parent], Expansion]  # its expansion about the law of a parent
    end: Callable[[int], float]  # n ↦ its largest value
    flat: float = math.inf  # E IF² below which the noise is added

    def independent(self, parent: Parent) -> Laws:
        statistic = self.expand(parent)
        law = _independent(statistic, noise=self._noise(statistic))
        return Laws(statistic.value, lambda n: LogPearson3.below(self.end(n), law(n)))

    def product(self, parent: Element) -> Laws:
        statistic = self.expand(parent)
        noise, norms = self._noise(statistic), SharedNorms(statistic.grid)
        dependent = norms(statistic)

        def at(rows: int, columns: int) -> Distribution:
            of_norms = norms.noise(statistic, rows, columns) if any(noise) else (0.0, 0.0)
            law = _dependent(dependent, rows, columns, (noise[0] + of_norms[0], noise[1] + of_norms[1]))
            return LogPearson3.below(self.end(rows * columns), law)

        return Laws(statistic.value, at)

    def _noise(self, statistic: Expansion) -> tuple[float, float]:
        return quadratic_noise(statistic) if statistic.variance < self.flat else (0.0, 0.0)


@dataclass(frozen=True)
class Odd(ElementLaw):
    """Laws of a statistic that changes sign with w, normal about zero; the elements' dependence does not matter."""

    influence: Callable[[Panels], FloatArray]  # the influence function at positive w

    def independent(self, parent: Parent) -> Laws:
        grid = panels(parent)
        second = float(grid.probability @ self.influence(grid) ** 2)
        return Laws(0.0, lambda n: Pearson3.of_numbers(n, 0.0, (0.0, second, 0.0)))

    def product(self, parent: Element) -> Laws:
        at = self.independent(parent).at
        return Laws(0.0, lambda rows, columns: at(rows * columns))


@dataclass(frozen=True)
class NormalSample(ElementLaw):
    """Laws of a statistic with a special law for normal weights, :func:`gaussian_sample_statistic`."""

    name: str  # name of the statistic
    otherwise: ElementLaw  # the laws for other parents

    def independent(self, parent: Parent) -> Laws:
        if isinstance(parent, Normal):
            return Laws(0.0, partial(gaussian_sample_statistic, self.name))
        return self.otherwise.independent(parent)

    def product(self, parent: Element) -> Laws:
        return self.otherwise.product(parent)


class Mean(ElementLaw):
    """Laws of w̄/s: Student's t; for W_QK, w̄ = q̄ · k̄ with independent normal vectors, a :class:`ProductElement`."""

    def independent(self, parent: Parent) -> Laws:
        return Laws(0.0, partial(gaussian_sample_statistic, "mean"))

    def product(self, parent: Element) -> Laws:
        return Laws(0.0, lambda rows, columns: ProductElement(parent.h, 1.0 / math.sqrt(rows * columns * parent.h)))


@dataclass(frozen=True)
class Estimated(ElementLaw):
    """Laws of an estimate from counts in cells, or of one whose resolution depends on n."""

    estimate: Callable[[Parent, int], Estimate]  # (parent, n) ↦ the estimate
    limit: Callable[[Parent], float]  # parent ↦ the limit

    def independent(self, parent: Parent) -> Laws:
        return Laws(self.limit(parent), lambda n: self.estimate(parent, n).of_independent())

    def product(self, parent: Element) -> Laws:
        def at(rows: int, columns: int) -> Distribution:
            estimate = self.estimate(parent, rows * columns)
            statistic = estimate.statistic
            norms = SharedNorms(statistic.grid)
            flat = statistic.variance < _FLAT  # the influence is so small that the noise of the norms matters
            of_norms = norms.noise(statistic, rows, columns) if flat else (0.0, 0.0)
            noise = float(estimate.noise[0]) + of_norms[0], float(estimate.noise[1]) + of_norms[1]
            return estimate.law(norms(statistic).cumulants(rows, columns), noise)

        return Laws(self.limit(parent), at)


@dataclass(frozen=True)
class Mended(ElementLaw):
    """Laws of a statistic that are corrected by simulated quantiles where the weights are few."""

    law: ElementLaw  # the uncorrected laws
    statistic: str  # name of the statistic whose quantiles are used
    reflected: Callable[[int], float] | None = None  # n ↦ c, if the statistic is c minus the simulated one
    # fewest weights for which the uncorrected law holds, for a parent that was not simulated and whose density ends
    # with a jump
    fewest: int = 0
    exact_moments: bool = False  # True if mean and standard deviation of the uncorrected law are exact

    def independent(self, parent: Parent) -> Laws:
        plain, quantiles = self.law.independent(parent), simulated_quantiles(self.statistic, parent)
        if quantiles is None:

            def at(n: int) -> Distribution:
                if n < self.fewest and ends_with_a_jump(parent, n):
                    expected = f"at least {self.fewest} weights of a law that ends with a jump, as {parent} does, for "
                    expected += "the statistics that are counted in cells; fewer only of 'uniform' and "
                    raise ParameterError("n", n, f"{expected}'truncated_normal' weights")
                return plain.at(n)

            return Laws(plain.limit, at)
        if self.reflected is not None:
            quantiles = {n: self.reflected(n) - values[::-1] for n, values in quantiles.items()}
        return Laws(plain.limit, lambda n: mended(quantiles, plain.at, n, self.exact_moments))

    def product(self, parent: Element) -> Laws:
        return self.law.product(parent)


class Largest(ElementLaw):
    """Laws of max |w − w̄|/s; the limit is the supremum of |w|/σ."""

    def independent(self, parent: Parent) -> Laws:
        if isinstance(parent, Normal):
            return Laws(math.inf, NormalMaximum)
        supremum = float(parent.upper(FLOAT)) / math.sqrt(mean_square(panels(parent)).value)
        return Laws(supremum, partial(LargestMagnitude, parent))

    def product(self, parent: Element) -> Laws:
        return Laws(math.inf, lambda rows, columns: ProductMaximum(rows, parent, columns))


@dataclass(frozen=True)
class OfLargest(ElementLaw):
    """Laws of a statistic of the largest magnitude and the body."""

    make: Callable[[Parent, int], Distribution]  # (parent, n) ↦ its law
    # (parent, d_query, d_key, nodes, weights) ↦ its law for W_QK, with nodes and weights of ln(max |w|/s)
    make_of_product: Callable[[Element, int, int, FloatArray, FloatArray], Distribution]

    def independent(self, parent: Parent) -> Laws:
        return Laws(math.nan, partial(self.make, parent))

    def product(self, parent: Element) -> Laws:
        def at(rows: int, columns: int) -> Distribution:
            return self.make_of_product(parent, rows, columns, *ProductMaximum(rows, parent, columns).rule)

        return Laws(math.nan, at)


def _independent(
    statistic: Expansion, corrections: tuple[float, float] = (0.0, 0.0), noise: tuple[float, float] = (0.0, 0.0)
) -> Callable[[int], Pearson3]:
    cumulants = statistic.drift, statistic.variance, statistic.third
    added = noise[0] + cumulants[1] * corrections[0], noise[1] + cumulants[2] * corrections[1]
    return lambda n: Pearson3.of_numbers(n, statistic.value, cumulants, added)


def _dependent(
    dependent: DependentStatistic, rows: int, columns: int, noise: tuple[float, float] = (0.0, 0.0)
) -> Pearson3:
    return Pearson3.of_numbers(rows * columns, dependent.statistic.value, dependent.cumulants(rows, columns), noise)
