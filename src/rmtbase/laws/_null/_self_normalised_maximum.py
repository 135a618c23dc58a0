"""Largest |w|/s of independent normal numbers or of the elements of W_QK; the largest |w| and s are dependent."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import special

from rmtbase.laws._distribution import FloatArray
from rmtbase.laws._element._arithmetic import FLOAT
from rmtbase.laws._element._normal_sample import gaussian_sample_statistic
from rmtbase.laws._element._product_sum import Element, row_law
from rmtbase.laws._element.parents import VarianceGamma
from rmtbase.laws._null._tail_statistics import beta_rule
from rmtbase.laws._tabulated import Tabulated, log_rule, normal_rule, score_table

_POINTS = 128
_TINY = 1e-300


class SelfNormalisedMaximum(Tabulated):
    """Law of max |w|/s, combined from two laws that are each right in one tail.

    The first gives each |w|/s its exact law and treats them as independent; its upper tail is right. In the lower tail
    it matters that all of them share s. Here max |w|/σ is the product of max |w|/s and the independent s/σ (Basu 1955),
    so the variance of its logarithm is the sum of both. The second law is that of max |w|/σ, contracted in its
    logarithm accordingly. The two are mixed at x with the weights F(x) and 1 − F(x), F the first law.
    """

    @abstractmethod
    def _log_upper(self, x: FloatArray) -> FloatArray:
        """ln P(max |w|/s ≤ x), accurate where it is near 0."""

    @abstractmethod
    def _log_free(self, x: FloatArray) -> FloatArray:
        """ln P(max |w|/σ ≤ x)."""

    @abstractmethod
    def _shared(self, log_x: FloatArray, weight: FloatArray) -> tuple[float, float]:
        """Return Var ln(s/σ), and any other part of Var ln(max |w|/σ) that ln(max |w|/s) lacks.

        Nodes and weights of the law of ln(max |w|/σ) are given.
        """

    @property
    @abstractmethod
    def _range(self) -> tuple[float, float]:
        """Interval that holds max |w|/σ and max |w|/s up to a mass of 1e-14."""

    def _points(self) -> FloatArray:
        return np.geomspace(*self._range, _POINTS)

    @cached_property
    def _contraction(self) -> tuple[float, float, float]:
        """Means of ln(max |w|/σ) and ln(max |w|/s), and the latter's standard deviation over the former's."""
        log_x, weight = log_rule(score_table(self._points(), lambda x: _both(self._log_free(x)), self.furthest))
        mean = float(weight @ log_x)
        of_s, besides = self._shared(log_x, weight)
        ratio = (of_s + besides) / float(weight @ (log_x - mean) ** 2)
        return mean, mean + of_s, math.sqrt(1.0 - ratio)

    def _tails(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        free_mean, mean, contraction = self._contraction
        cdf, sf = _both(self._log_upper(x))
        lower_cdf, lower_sf = _both(self._log_free(np.exp(free_mean + (np.log(x) - mean) / contraction)))
        return cdf * cdf + sf * lower_cdf, sf * (cdf + lower_sf)


def _both(log_cdf: FloatArray) -> tuple[FloatArray, FloatArray]:
    return np.exp(log_cdf), -np.expm1(np.minimum(log_cdf, 0.0))


@dataclass(frozen=True)
class NormalMaximum(SelfNormalisedMaximum):
    """Law of max |w − w̄|/s of n independent normal numbers; each deviation has Thompson's law.

    The common w̄ is independent of the deviations; its variance is also a part of that of max |w|/σ.
    """

    count: int  # n

    @property
    def support(self) -> tuple[float, float]:
        return 0.0, (self.count - 1) / math.sqrt(self.count)

    @property
    def _range(self) -> tuple[float, float]:
        at = -special.ndtri(np.array([min(50.0 / self.count, 0.4), 1e-32 / self.count]))
        return 0.9 * float(at[0]), min(1.1 * float(at[1]), 0.999 * self.support[1])

    def _log_upper(self, x: FloatArray) -> FloatArray:
        law = gaussian_sample_statistic("largest_magnitude", self.count)
        sf = law.sf(x)
        return np.where(sf < 0.5, np.log1p(-np.minimum(sf, 0.5)), np.log(np.maximum(law.cdf(x), _TINY)))

    def _log_free(self, x: FloatArray) -> FloatArray:
        return self.count * np.log1p(-np.minimum(2.0 * special.ndtr(-x), 1.0 - 1e-16))

    def _shared(self, log_x: FloatArray, weight: FloatArray) -> tuple[float, float]:
        return 0.5 / (self.count - 1), float(weight @ np.exp(-2.0 * log_x)) / self.count


@dataclass(frozen=True)
class ProductMaximum(SelfNormalisedMaximum):
    """Law of max |w|/s over the elements of W_QK.

    Let γ be the squared norm of a row or column divided by the mean over rows or columns. The elements of a row are
    normal with variance γ s², and independent except through the norms of the columns. The expected number of elements
    beyond x is Λ = d_query d_key E p(γ), p = 2Φ(−x/√γ), and they cluster in rows and columns of large norm:

        −ln P(max ≤ x) = R C/Λ,    R = −d_query ln E e^(−d_key p(γ)),    C = −d_key ln E e^(−d_query p(γ)).

    This is right to first order in Λ − R and Λ − C. For max |w|/s, γ/d has the law Beta(h/2, (d − 1)h/2); for
    max |w|/σ, γ has the law χ²_h/h. For factors that are not normal, h is the degrees of freedom of their norms
    (:class:`RowLaw`), and p is multiplied by the factor that makes Λ right.

    Attributes:
        d_query, d_key: numbers of rows and columns of W_QK.
    """

    d_query: int
    element: Element  # the law of an element
    d_key: int

    @property
    def support(self) -> tuple[float, float]:
        return 0.0, math.sqrt(self.d_query * self.d_key)

    @property
    def _range(self) -> tuple[float, float]:
        furthest = 1.0 + 9.0 * max(float(root.max()) for root, _ in self._of_mean)
        return 1.0, min(furthest, 0.999 * self.support[1])

    @property
    def _degrees(self) -> float:
        return row_law(self.element).degrees

    @cached_property
    def _of_mean(self) -> list[tuple[FloatArray, FloatArray]]:
        """Nodes √γ and weights for rows and for columns, given that the mean γ is 1."""
        half = 0.5 * self._degrees
        rules = [(beta_rule(half, half * (number - 1)), number) for number in (self.d_query, self.d_key)]
        return [(np.sqrt(share * number), weight) for (share, weight), number in rules]

    @cached_property
    def _free(self) -> list[tuple[FloatArray, FloatArray]]:
        """Nodes √γ and weights for rows and for columns with independent γ."""
        score, weight = normal_rule()
        return [(np.sqrt(special.chdtri(self._degrees, special.ndtr(-score)) / self._degrees), weight)] * 2

    def _log_upper(self, x: FloatArray) -> FloatArray:
        return self._clustered(x, self._of_mean)

    def _log_free(self, x: FloatArray) -> FloatArray:
        return self._clustered(x, self._free)

    def _clustered(self, x: FloatArray, norms: list[tuple[FloatArray, FloatArray]]) -> FloatArray:
        numbers, factor = (self.d_query, self.d_key), self._factor(x)
        expected, together = np.zeros(x.shape), np.ones(x.shape)
        for (root, weight), number, partners in zip(norms, numbers, numbers[::-1], strict=True):
            beyond = factor * special.ndtr(-x[..., None] / root)
            expected += 0.5 * number * partners * (beyond @ weight)
            together *= -number * np.log1p(np.maximum(np.expm1(-partners * beyond) @ weight, 1e-16 - 1.0))
        return -together / np.maximum(expected, _TINY)

    def _factor(self, x: FloatArray) -> FloatArray | float:
        """Return p/Φ(−x/√γ)."""
        if isinstance(self.element, VarianceGamma):
            return 2.0
        root, weight = self._free[0]
        return (self.element.law(x, FLOAT)[2] / np.maximum(special.ndtr(-x[:, None] / root) @ weight, _TINY))[:, None]

    def _shared(self, log_x: FloatArray, weight: FloatArray) -> tuple[float, float]:
        rows, columns = self.d_query, self.d_key
        return 0.5 / self._degrees * (1.0 / rows + 1.0 / columns) + 0.5 / (rows * columns), 0.0
