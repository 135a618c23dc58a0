"""What the laws of positive eigenvalues that are known by their logarithm have in common."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from rmtbase.laws._residual._cut_map import FloatArray
from rmtbase.laws._residual._log_eigenvalue import LogEigenvalue


class EigenvalueLaw(ABC):
    """A law of eigenvalues lambda > 0, all of whose functions follow from the law of ln lambda.

    What is too large for a double is inf, what is too small is 0; :attr:`log_eigenvalue` knows neither limit.
    """

    @property
    @abstractmethod
    def log_eigenvalue(self) -> LogEigenvalue:
        """The law of ln lambda, with the same methods."""

    @abstractmethod
    def moment(self, k: int) -> float:
        """E[lambda^k], k = 0, 1, 2, ...; inf if it is too large for a double."""

    @abstractmethod
    def mean(self) -> float:
        """E[lambda]."""

    @abstractmethod
    def var(self) -> float:
        """Variance of lambda."""

    @property
    def has_hard_edge(self) -> bool:
        """Whether the eigenvalues reach down to zero."""
        return self.log_eigenvalue.cut.has_hard_edge

    @property
    def support(self) -> tuple[float, float]:
        """(lower, upper) edge of the eigenvalues."""
        lower, upper = self.log_eigenvalue.support
        return exponential(lower), exponential(upper)

    def pdf(self, x: ArrayLike) -> FloatArray:
        """Density at eigenvalue ``x``, same shape, in 1/eigenvalue; inf at a hard edge, 0 outside the support."""
        values = np.asarray(x, dtype=np.float64)
        density = np.asarray(self.log_eigenvalue.pdf(_logarithm(values)))
        with np.errstate(over="ignore"):
            np.divide(density, values, out=density, where=density > 0.0)
        if self.has_hard_edge:
            density[values == 0.0] = math.inf
        return _unwrapped(density)

    def pdf_singular_values(self, s: ArrayLike) -> FloatArray:
        """Density 2 s pdf(s^2) of the singular value s = sqrt(lambda), s >= 0."""
        values = np.asarray(s, dtype=np.float64)
        density = np.asarray(self.log_eigenvalue.pdf(2.0 * _logarithm(values)))
        with np.errstate(over="ignore"):
            np.divide(2.0 * density, values, out=density, where=density > 0.0)
        density[values == 0.0] = self._density_at_zero_singular_value()
        return _unwrapped(density)

    def cdf(self, x: ArrayLike) -> FloatArray:
        """P(lambda <= x), in closed form on the curve of the map."""
        return self.log_eigenvalue.cdf(_logarithm(x))

    def sf(self, x: ArrayLike) -> FloatArray:
        """P(lambda > x) = 1 - cdf(x), without the cancellation."""
        return self.log_eigenvalue.sf(_logarithm(x))

    def ppf(self, q: ArrayLike) -> FloatArray:
        """Quantile: the lambda with cdf(lambda) = q; the edges at 0 and 1, nan outside [0, 1]."""
        return _exponentials(self.log_eigenvalue.ppf(q))

    def isf(self, q: ArrayLike) -> FloatArray:
        """Upper quantile: the lambda with sf(lambda) = q; the edges at 1 and 0, nan outside [0, 1]."""
        return _exponentials(self.log_eigenvalue.isf(q))

    def std(self) -> float:
        """Standard deviation of lambda."""
        return math.sqrt(self.var())

    def expect(self, f: Callable[[FloatArray], ArrayLike], rtol: float = 1e-12) -> float:
        """E[f(lambda)], as :meth:`LogEigenvalue.expect`, for a function of an array of eigenvalues."""
        return self.log_eigenvalue.expect(lambda y: f(_exponentials(y)), rtol)

    def entropy(self) -> float:
        """Differential entropy of lambda, in nats: that of ln lambda, plus E[ln lambda]. Numerical, to about 1e-10."""
        return self.log_eigenvalue.entropy() + self.log_eigenvalue.mean()

    def _density_at_zero_singular_value(self) -> float:
        """The limit of the density of s = sqrt(lambda) at 0."""
        return 0.0


def exponential(y: float) -> float:
    """Return exp(y): inf and 0 beyond the range of doubles."""
    return float(_exponentials(np.asarray(y)))


def _exponentials(y: FloatArray) -> FloatArray:
    with np.errstate(over="ignore", under="ignore"):
        return np.exp(y)


def _logarithm(x: ArrayLike) -> FloatArray:
    """Ln x, -inf for x <= 0."""
    values = np.asarray(x, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(values < 0.0, -np.inf, np.log(values))


def _unwrapped(values: FloatArray) -> FloatArray:
    """A zero-dimensional array as the scalar it holds."""
    return values if values.ndim else values[()]
