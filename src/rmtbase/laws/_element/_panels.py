"""Quadrature over the law of |w| in double precision: Gauss–Legendre panels in ln x, with running integrals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from rmtbase.laws._distribution import FloatArray
from rmtbase.laws._element._arithmetic import FLOAT
from rmtbase.laws._element.parents import Parent

_ORDER = 16
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(_ORDER)
_LEGENDRE = np.polynomial.legendre.legvander(_NODES, _ORDER - 1)
_SPREAD = 1.0  # logits per panel, so that the nearest singularity is farther from a panel than its width
_TINY = 1e-300
_FAR = 42.0  # logit of the outermost panels; the probability beyond is 1e-18


def _running_integral_matrix() -> FloatArray:
    """Return the matrix whose row i integrates the polynomial through the nodes from −1 to node i."""
    values_to_coefficients = (np.arange(_ORDER)[:, None] + 0.5) * (_LEGENDRE * _WEIGHTS[:, None]).T
    coefficients = np.polynomial.legendre.legint(values_to_coefficients, lbnd=-1)
    return np.polynomial.legendre.legvander(_NODES, _ORDER) @ coefficients


_RUNNING = _running_integral_matrix()


@dataclass(frozen=True)
class Panels:
    """Gauss–Legendre panels in ln x between quantiles of a parent one logit apart, with running integrals."""

    edges: Float[np.ndarray, " end"]  # ln x at the ends of the panels, ascending
    parent: Parent  # the law that is integrated over

    @cached_property
    def log_x(self) -> FloatArray:
        half = np.diff(self.edges) / 2
        return ((self.edges[:-1] + half)[:, None] + half[:, None] * _NODES).ravel()

    @cached_property
    def _law(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        return self.parent.law(np.exp(self.log_x), FLOAT)

    @cached_property
    def cdf(self) -> FloatArray:
        return self._law[1]

    @cached_property
    def sf(self) -> FloatArray:
        return self._law[2]

    @cached_property
    def log_hazard(self) -> FloatArray:
        """Y = ln(−ln S) at the nodes, the ordinate of the Weibull plot."""
        _, cdf, sf = self._law
        with np.errstate(divide="ignore"):
            return np.log(np.where(cdf < 0.5, -np.log1p(-np.minimum(cdf, 0.5)), -np.log(np.clip(sf, _TINY, 0.5))))

    @cached_property
    def density(self) -> FloatArray:
        """dF/d ln x at the nodes."""
        return self._law[0] * np.exp(self.log_x)

    @cached_property
    def width(self) -> FloatArray:
        """Quadrature weights d ln x of the nodes."""
        return (np.diff(self.edges)[:, None] / 2 * _WEIGHTS).ravel()

    @cached_property
    def probability(self) -> FloatArray:
        """Quadrature weights dF of the nodes."""
        return self.density * self.width

    def running_integral(self, values: FloatArray) -> FloatArray:
        """∫ values d ln x from the first edge to each node."""
        half = np.diff(self.edges)[:, None] / 2
        panel = values.reshape(-1, _ORDER) * half
        before = np.concatenate([[0.0], np.cumsum(panel @ _WEIGHTS)[:-1]])
        return (before[:, None] + panel @ _RUNNING.T).ravel()


def panels(parent: Parent, breaks: Sequence[float] = ()) -> Panels:
    """Return panels with ends also at ``breaks`` and kinks, as far as the moments of |w| have converged."""
    order = parent.moment_order()
    far = _FAR if math.isinf(order) else max(_FAR, min(650.0, 230.0 * order))
    ends = parent.landmarks(np.arange(-_FAR, far + _SPREAD / 2, _SPREAD))
    inner = [x for x in (*breaks, *parent.kinks(FLOAT)) if 0.0 < x < parent.upper(FLOAT)]
    return Panels(np.log(np.unique(np.concatenate([ends, inner]))), parent)
