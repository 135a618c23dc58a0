"""How the laws of element statistics are made: of independent weights, and of the elements of one W_QK."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from rmtbase.laws._distribution import Distribution, FloatArray
from rmtbase.laws._element._normal_sample import gaussian_sample_statistic
from rmtbase.laws._element._product_element import ProductElement
from rmtbase.laws._null._cell_entropies import CountedEstimate
from rmtbase.laws._null._drawn_entropies import ResolvedEstimate
from rmtbase.laws._null._largest_magnitude import LargestMagnitude
from rmtbase.laws._null._pearson import BelowEnd, Pearson3
from rmtbase.laws._null._self_normalised_maximum import NormalMaximum, ProductMaximum
from rmtbase.laws._null._smooth_statistic import IDENTITY, Cumulants, OnScale, Scale
from rmtbase.laws._weibull._arithmetic import FLOAT
from rmtbase.laws._weibull._dependence import DependentStatistic, SharedNorms
from rmtbase.laws._weibull._expansion import Expansion, mean_square
from rmtbase.laws._weibull._panels import Panels, panels
from rmtbase.laws._weibull.parents import Normal, Parent, VarianceGamma


class Laws(NamedTuple):
    """The laws of one statistic: its limit, nan where there is none, and the law at every size."""

    limit: float
    at: Callable[..., Distribution]


class ElementLaw(ABC):
    """The laws of one element statistic."""

    @abstractmethod
    def independent(self, parent: Parent) -> Laws:
        """Of n independent weights, n ↦ law."""

    @abstractmethod
    def product(self, parent: VarianceGamma) -> Laws:
        """Of the elements of W_QK, whose law the parent is: (d_query, d_key) ↦ law."""


@dataclass(frozen=True)
class Smooth(ElementLaw):
    """Of a smooth statistic: Pearson's type III on a scale of it, with the cumulants of its expansion.

    Attributes:
        expand: its expansion about a parent's law.
        scale: where its law is nearer to normal.
        corrections: n times the relative corrections of κ₂ and κ₃ on that scale, measured.
    """

    expand: Callable[[Parent], Expansion]
    scale: Scale = IDENTITY
    corrections: tuple[float, float] = (0.0, 0.0)

    def independent(self, parent: Parent) -> Laws:
        statistic = self.expand(parent)
        own, scaled = Cumulants.of(statistic, self.corrections), Cumulants.of(self._scaled(statistic), self.corrections)
        return Laws(own.limit, lambda n: self._law(own.at(n), scaled.at(n)))

    def product(self, parent: VarianceGamma) -> Laws:
        statistic = self.expand(parent)
        norms = SharedNorms(statistic.grid)
        own, scaled = norms(statistic), norms(self._scaled(statistic))
        return Laws(statistic.value, lambda rows, columns: self._law(*(_at(x, rows, columns) for x in (own, scaled))))

    def _scaled(self, statistic: Expansion) -> Expansion:
        return statistic.map(*self.scale.derivatives(statistic.value))

    def _law(self, own: Pearson3, scaled: Pearson3) -> Distribution:
        return own if self.scale is IDENTITY else OnScale(self.scale, scaled, own.mean(), own.std())


@dataclass(frozen=True)
class NearlyFlat(ElementLaw):
    """Of a smooth statistic whose influence is small beside its curvature, near an end that it cannot reach.

    The curvature adds noise of its own; where the influence is not small, the third order takes as much off again.

    Attributes:
        expand: its expansion about a parent's law.
        end: of n, its largest value.
        flat: E IF² below which the noise is added.
    """

    expand: Callable[[Parent], Expansion]
    end: Callable[[int], float]
    flat: float = math.inf

    def independent(self, parent: Parent) -> Laws:
        own = self._cumulants(self.expand(parent))
        return Laws(own.limit, lambda n: BelowEnd.matched(self.end(n), own.at(n)))

    def product(self, parent: VarianceGamma) -> Laws:
        statistic = self.expand(parent)
        own, dependent = self._cumulants(statistic), SharedNorms(statistic.grid)(statistic)

        def at(rows: int, columns: int) -> Distribution:
            law = _at(dependent, rows, columns, (own.second_next, own.third_next))
            return BelowEnd.matched(self.end(rows * columns), law)

        return Laws(own.limit, at)

    def _cumulants(self, statistic: Expansion) -> Cumulants:
        return Cumulants.with_noise(statistic) if statistic.variance < self.flat else Cumulants.of(statistic)


@dataclass(frozen=True)
class Odd(ElementLaw):
    """Of a statistic that changes its sign with w, normal about zero.

    The elements of W_QK in one row are as often of either sign, whatever its norm: their dependence does not matter.

    Attributes:
        influence: at positive w.
    """

    influence: Callable[[Panels], FloatArray]

    def independent(self, parent: Parent) -> Laws:
        grid = panels(parent)
        second = float(grid.probability @ self.influence(grid) ** 2)
        return Laws(0.0, Cumulants(0.0, 0.0, second, 0.0).at)

    def product(self, parent: VarianceGamma) -> Laws:
        at = self.independent(parent).at
        return Laws(0.0, lambda rows, columns: at(rows * columns))


@dataclass(frozen=True)
class NormalSample(ElementLaw):
    """Of a statistic with a law of its own for normal weights, :func:`gaussian_sample_statistic`.

    Attributes:
        name: of the statistic.
        otherwise: for other parents.
    """

    name: str
    otherwise: ElementLaw

    def independent(self, parent: Parent) -> Laws:
        if isinstance(parent, Normal):
            return Laws(0.0, partial(gaussian_sample_statistic, self.name))
        return self.otherwise.independent(parent)

    def product(self, parent: VarianceGamma) -> Laws:
        return self.otherwise.product(parent)


@dataclass(frozen=True)
class Mean(ElementLaw):
    """Of w̄/s: Student's t. Of W_QK w̄ is q̄ · k̄, of two independent normal vectors, a :class:`ProductElement`."""

    def independent(self, parent: Parent) -> Laws:
        return Laws(0.0, partial(gaussian_sample_statistic, "mean"))

    def product(self, parent: VarianceGamma) -> Laws:
        return Laws(0.0, lambda rows, columns: ProductElement(parent.h, 1.0 / math.sqrt(rows * columns * parent.h)))


@dataclass(frozen=True)
class Counted(ElementLaw):
    """Of an estimate by cells.

    Attributes:
        estimate: of parent and n.
        limit: of the parent.
    """

    estimate: Callable[[Parent, int], CountedEstimate]
    limit: Callable[[Parent], float]

    def independent(self, parent: Parent) -> Laws:
        return Laws(self.limit(parent), lambda n: self.estimate(parent, n).of_independent())

    def product(self, parent: VarianceGamma) -> Laws:
        def at(rows: int, columns: int) -> Distribution:
            found = self.estimate(parent, rows * columns)
            own = (float(found.own[0]), float(found.own[1]))
            return _at(SharedNorms(found.statistic.grid)(found.statistic), rows, columns, own)

        return Laws(self.limit(parent), at)


@dataclass(frozen=True)
class Resolved(ElementLaw):
    """Of an estimate at the resolution that n weights have.

    Attributes:
        estimate: of parent and n.
        limit: of the parent.
    """

    estimate: Callable[[Parent, int], ResolvedEstimate]
    limit: Callable[[Parent], float]

    def independent(self, parent: Parent) -> Laws:
        return Laws(self.limit(parent), lambda n: self.estimate(parent, n).of_independent(n))

    def product(self, parent: VarianceGamma) -> Laws:
        def at(rows: int, columns: int) -> Distribution:
            found = self.estimate(parent, rows * columns)
            dependent = SharedNorms(found.statistic.grid)(found.statistic).cumulants(rows, columns)
            return found.law(rows * columns, *dependent)

        return Laws(self.limit(parent), at)


@dataclass(frozen=True)
class Largest(ElementLaw):
    """Of max |w − w̄|/s; the limit is the largest |w|/σ that there is."""

    def independent(self, parent: Parent) -> Laws:
        if isinstance(parent, Normal):
            return Laws(math.inf, NormalMaximum)
        supremum = float(parent.upper(FLOAT)) / math.sqrt(mean_square(panels(parent)).value)
        return Laws(supremum, partial(LargestMagnitude, parent))

    def product(self, parent: VarianceGamma) -> Laws:
        return Laws(math.inf, lambda rows, columns: ProductMaximum(rows, parent.h, columns))


@dataclass(frozen=True)
class OfLargest(ElementLaw):
    """Of a statistic of the largest magnitude and of the body.

    Attributes:
        make: its law, of parent and n.
        given: its law for W_QK, of parent, d_query, d_key, and nodes of ln(max |w|/s) with their weights.
    """

    make: Callable[[Parent, int], Distribution]
    given: Callable[[VarianceGamma, int, int, FloatArray, FloatArray], Distribution]

    def independent(self, parent: Parent) -> Laws:
        return Laws(math.nan, partial(self.make, parent))

    def product(self, parent: VarianceGamma) -> Laws:
        def at(rows: int, columns: int) -> Distribution:
            return self.given(parent, rows, columns, *ProductMaximum(rows, parent.h, columns).rule)

        return Laws(math.nan, at)


def _at(statistic: DependentStatistic, rows: int, columns: int, own: tuple[float, float] = (0.0, 0.0)) -> Pearson3:
    """The law of a statistic of rows × columns elements; ``own`` is n² κ₂ and n³ κ₃ of a noise besides."""
    n, (drift, second, third) = rows * columns, statistic.cumulants(rows, columns)
    mean = statistic.statistic.value + (0.0 if math.isnan(drift) else drift) / n
    return Pearson3.of(mean, (second + own[0] / n) / n, (third + own[1] / n) / n**2)
