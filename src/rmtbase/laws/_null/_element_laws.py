"""Recipes for the laws of element statistics, for independent weights and for the elements of one W_QK."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from rmtbase.errors import ParameterError
from rmtbase.laws._distribution import Distribution, FloatArray
from rmtbase.laws._element._arithmetic import FLOAT
from rmtbase.laws._element._dependence import DependentStatistic, SharedNorms
from rmtbase.laws._element._expansion import Expansion, mean_square, quadratic_noise
from rmtbase.laws._element._normal_sample import gaussian_sample_statistic
from rmtbase.laws._element._panels import Panels, panels
from rmtbase.laws._element._product_element import ProductElement
from rmtbase.laws._element._product_sum import Element
from rmtbase.laws._element.parents import Normal, Parent
from rmtbase.laws._null._cell_entropies import CountedEstimate, ends_with_a_jump
from rmtbase.laws._null._drawn_entropies import ResolvedEstimate
from rmtbase.laws._null._largest_magnitude import LargestMagnitude
from rmtbase.laws._null._log_pearson import LogPearson3
from rmtbase.laws._null._on_scale import IDENTITY, OnScale, Scale
from rmtbase.laws._null._pearson import Pearson3
from rmtbase.laws._null._self_normalised_maximum import NormalMaximum, ProductMaximum
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
        """Return the laws for n independent weights, n ↦ law."""

    @abstractmethod
    def product(self, parent: Element) -> Laws:
        """Return the laws for the elements of W_QK, (d_query, d_key) ↦ law; ``parent`` is the law of an element."""


@dataclass(frozen=True)
class Smooth(ElementLaw):
    """Laws of a smooth statistic: Pearson's type III on a scale, with the cumulants of the expansion."""

    expand: Callable[[Parent], Expansion]  # its expansion about the law of a parent
    scale: Scale = IDENTITY  # a function of the statistic whose law is nearer to normal
    # n times the measured relative corrections of κ₂ and κ₃ on that scale
    corrections: tuple[float, float] = (0.0, 0.0)

    def independent(self, parent: Parent) -> Laws:
        statistic = self.expand(parent)
        own, scaled = (
            Cumulants.from_expansion(statistic, self.corrections),
            Cumulants.from_expansion(self._scaled(statistic), self.corrections),
        )
        return Laws(own.limit, lambda n: self._law(own.at(n), scaled.at(n)))

    def product(self, parent: Element) -> Laws:
        statistic = self.expand(parent)
        norms = SharedNorms(statistic.grid)
        own, scaled = norms(statistic), norms(self._scaled(statistic))
        return Laws(statistic.value, lambda rows, columns: self._law(*(_at(x, rows, columns) for x in (own, scaled))))

    def _scaled(self, statistic: Expansion) -> Expansion:
        return statistic.map(*self.scale.derivatives(statistic.value))

    def _law(self, own: Pearson3, scaled: Pearson3) -> Distribution:
        return own if self.scale is IDENTITY else OnScale(own.mean(), own.std(), self.scale, scaled)


@dataclass(frozen=True)
class NearlyFlat(ElementLaw):
    """Laws of a smooth statistic whose influence is small beside its curvature, near an end that it cannot exceed.

    The curvature adds noise; where the influence is not small, terms of third order cancel it again.
    """

    expand: Callable[[Parent], Expansion]  # its expansion about the law of a parent
    end: Callable[[int], float]  # n ↦ its largest value
    flat: float = math.inf  # E IF² below which the noise is added

    def independent(self, parent: Parent) -> Laws:
        own = self._cumulants(self.expand(parent))
        return Laws(own.limit, lambda n: LogPearson3.below(self.end(n), own.at(n)))

    def product(self, parent: Element) -> Laws:
        statistic = self.expand(parent)
        own, norms = self._cumulants(statistic), SharedNorms(statistic.grid)
        dependent = norms(statistic)

        def at(rows: int, columns: int) -> Distribution:
            noise = own.second_next, own.third_next
            if any(noise):
                noise = _sum(noise, norms.noise(statistic, rows, columns))
            law = _at(dependent, rows, columns, noise)
            return LogPearson3.below(self.end(rows * columns), law)

        return Laws(own.limit, at)

    def _cumulants(self, statistic: Expansion) -> Cumulants:
        return (
            Cumulants.with_noise(statistic) if statistic.variance < self.flat else Cumulants.from_expansion(statistic)
        )


@dataclass(frozen=True)
class Odd(ElementLaw):
    """Laws of a statistic that changes sign with w, normal about zero.

    The elements of W_QK in one row have either sign equally often, whatever its norm, so their dependence does not
    matter.
    """

    influence: Callable[[Panels], FloatArray]  # the influence function at positive w

    def independent(self, parent: Parent) -> Laws:
        grid = panels(parent)
        second = float(grid.probability @ self.influence(grid) ** 2)
        return Laws(0.0, Cumulants(0.0, 0.0, second, 0.0).at)

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


@dataclass(frozen=True)
class Mean(ElementLaw):
    """Laws of w̄/s: Student's t; for W_QK, w̄ = q̄ · k̄ with independent normal vectors, a :class:`ProductElement`."""

    def independent(self, parent: Parent) -> Laws:
        return Laws(0.0, partial(gaussian_sample_statistic, "mean"))

    def product(self, parent: Element) -> Laws:
        return Laws(0.0, lambda rows, columns: ProductElement(parent.h, 1.0 / math.sqrt(rows * columns * parent.h)))


@dataclass(frozen=True)
class Estimated(ElementLaw):
    """Laws of an estimate from counts in cells, or of one whose resolution depends on n."""

    estimate: Callable[[Parent, int], CountedEstimate | ResolvedEstimate]  # (parent, n) ↦ the estimate
    limit: Callable[[Parent], float]  # parent ↦ the limit

    def independent(self, parent: Parent) -> Laws:
        return Laws(self.limit(parent), lambda n: self.estimate(parent, n).of_independent())

    def product(self, parent: Element) -> Laws:
        def at(rows: int, columns: int) -> Distribution:
            found = self.estimate(parent, rows * columns)
            norms = SharedNorms(found.statistic.grid)
            flat = found.statistic.variance < _FLAT  # the influence is so small that the noise of the norms matters
            own = _sum(found.own, norms.noise(found.statistic, rows, columns) if flat else (0.0, 0.0))
            return found.law(*norms(found.statistic).cumulants(rows, columns), own)

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
            return Laws(plain.limit, lambda n: plain.at(self._enough(parent, n)))
        if self.reflected is not None:
            quantiles = {n: self.reflected(n) - values[::-1] for n, values in quantiles.items()}
        return Laws(plain.limit, lambda n: mended(quantiles, plain.at, n, self.exact_moments))

    def _enough(self, parent: Parent, n: int) -> int:
        if n < self.fewest and ends_with_a_jump(parent, n):
            raise ParameterError(
                "n",
                n,
                f"at least {self.fewest} weights of a law that ends with a jump, as {parent} does, for the "
                "statistics that are counted in cells; fewer only of 'uniform' and 'truncated_normal' weights",
            )
        return n

    def product(self, parent: Element) -> Laws:
        return self.law.product(parent)


@dataclass(frozen=True)
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
    given: Callable[[Element, int, int, FloatArray, FloatArray], Distribution]

    def independent(self, parent: Parent) -> Laws:
        return Laws(math.nan, partial(self.make, parent))

    def product(self, parent: Element) -> Laws:
        def at(rows: int, columns: int) -> Distribution:
            return self.given(parent, rows, columns, *ProductMaximum(rows, parent, columns).rule)

        return Laws(math.nan, at)


def _sum(own: Sequence[float] | FloatArray, besides: tuple[float, float]) -> tuple[float, float]:
    return float(own[0]) + besides[0], float(own[1]) + besides[1]


def _at(statistic: DependentStatistic, rows: int, columns: int, own: tuple[float, float] = (0.0, 0.0)) -> Pearson3:
    """Return the law of a statistic of rows × columns elements; ``own`` is n² κ₂ and n³ κ₃ of additional noise."""
    n, (drift, second, third) = rows * columns, statistic.cumulants(rows, columns)
    mean = statistic.statistic.value + (0.0 if math.isnan(drift) else drift) / n
    return Pearson3.from_cumulants(mean, (second + own[0] / n) / n, (third + own[1] / n) / n**2)


@dataclass(frozen=True)
class Cumulants:
    """Cumulants of a smooth statistic of n independent weights, from its expansion about the law of the parent.

    Mean ``limit`` + ``drift``/n, variance ``second``/n + ``second_next``/n², third cumulant likewise from n⁻².
    """

    limit: float
    drift: float
    second: float
    third: float
    second_next: float = 0.0
    third_next: float = 0.0

    @classmethod
    def from_expansion(cls, statistic: Expansion, corrections: tuple[float, float] = (0.0, 0.0)) -> Cumulants:
        """Return the cumulants for independent weights; ``corrections`` are n × the relative ones of κ₂ and κ₃."""
        second, third = statistic.variance, statistic.third
        return cls(
            statistic.value,
            0.0 if math.isnan(statistic.drift) else statistic.drift,
            second,
            third,
            second * corrections[0],
            third * corrections[1],
        )

    @classmethod
    def with_noise(cls, statistic: Expansion) -> Cumulants:
        """Return the cumulants with the noise of the curvature, for a statistic whose influence is small."""
        second_next, third_next = quadratic_noise(statistic)
        return replace(cls.from_expansion(statistic), second_next=second_next, third_next=third_next)

    def at(self, n: float) -> Pearson3:
        """Return the law with these three cumulants at n."""
        second, third = self.second + self.second_next / n, self.third + self.third_next / n
        return Pearson3.from_cumulants(self.limit + self.drift / n, second / n, third / n**2)
