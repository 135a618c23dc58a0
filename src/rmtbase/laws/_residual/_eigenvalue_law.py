"""What the laws of positive eigenvalues that are known by their logarithm have in common."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from rmtbase.laws._arrays import FloatArray
from rmtbase.laws._distribution import Distribution
from rmtbase.laws._residual._log_eigenvalue import LogEigenvalue
from rmtbase.parameters import require_real_numbers


class EigenvalueLaw(Distribution):
    """A law of eigenvalues λ > 0, all of whose functions follow from the law of ln λ.

    What is too large for a double is inf, what is too small is 0; :attr:`log_eigenvalue` knows neither limit.
    """

    @property
    @abstractmethod
    def log_eigenvalue(self) -> LogEigenvalue:
        """The law of ln λ, with the same methods."""

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
        values = require_real_numbers("x", x)
        density = _per_unit(np.asarray(self.log_eigenvalue.pdf(_logarithm(values))), values)
        if self.has_hard_edge:
            density[values == 0.0] = math.inf
        return density[()]

    def pdf_singular_values(self, s: ArrayLike) -> FloatArray:
        """Density 2 s pdf(s²) of the singular value s = √λ, s ≥ 0."""
        values = require_real_numbers("s", s)
        density = _per_unit(np.asarray(2.0 * self.log_eigenvalue.pdf(2.0 * _logarithm(values))), values)
        density[values == 0.0] = self._density_at_zero_singular_value()
        return density[()]

    def cdf(self, x: ArrayLike) -> FloatArray:
        """P(λ ≤ x), in closed form on the curve of the map."""
        return self.log_eigenvalue.cdf(_logarithm(require_real_numbers("x", x)))

    def sf(self, x: ArrayLike) -> FloatArray:
        """P(λ > x) = 1 - cdf(x), without the cancellation."""
        return self.log_eigenvalue.sf(_logarithm(require_real_numbers("x", x)))

    def expect(self, f: Callable[[FloatArray], ArrayLike], rtol: float = 1e-12) -> float:
        """E[f(λ)], as :meth:`LogEigenvalue.expect`, for a function of an array of eigenvalues."""
        return self.log_eigenvalue.expect(lambda y: f(_exponentials(y)), rtol)

    def entropy(self) -> float:
        """Differential entropy of λ, in nats: that of ln λ, plus E[ln λ]. Numerical, to about 1e-10."""
        return self.log_eigenvalue.entropy() + self.log_eigenvalue.mean()

    def _cdf(self, x: FloatArray) -> FloatArray:
        return self.cdf(x)

    def _ppf(self, q: FloatArray) -> FloatArray:
        return _exponentials(self.log_eigenvalue.ppf(q))

    def _isf(self, q: FloatArray) -> FloatArray:
        return _exponentials(self.log_eigenvalue.isf(q))

    def _density_at_zero_singular_value(self) -> float:
        """The limit of the density of s = √λ at 0."""
        return 0.0


def exponential(y: float) -> float:
    """Return exp(y): inf and 0 beyond the range of doubles."""
    return float(_exponentials(np.asarray(y)))


def _exponentials(y: FloatArray) -> FloatArray:
    with np.errstate(over="ignore", under="ignore"):
        return np.exp(y)


def _logarithm(x: FloatArray) -> FloatArray:
    """ln x, -inf for x ≤ 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(x < 0.0, -np.inf, np.log(x))


def _per_unit(density: FloatArray, x: FloatArray) -> FloatArray:
    """The density of what has this one of its logarithm."""
    with np.errstate(over="ignore"):
        return np.divide(density, x, out=density, where=density > 0.0)
