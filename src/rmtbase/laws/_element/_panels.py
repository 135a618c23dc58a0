"""Quadrature over the law of |w| in double precision: Gauss–Legendre panels in ln x, with running integrals."""

from __future__ import annotations

import math
from collections.abc import Sequence
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


# Row i integrates the polynomial through the nodes from −1 to node i.
_TO_COEFFICIENTS = (np.arange(_ORDER)[:, None] + 0.5) * (_LEGENDRE * _WEIGHTS[:, None]).T
_INTEGRATED = np.polynomial.legendre.legint(_TO_COEFFICIENTS, lbnd=-1)
_RUNNING = np.polynomial.legendre.legvander(_NODES, _ORDER) @ _INTEGRATED


class Panels:
    """Gauss–Legendre panels in ln x between quantiles of a parent one logit apart, with running integrals."""

    def __init__(self, edges: Float[np.ndarray, " end"], parent: Parent) -> None:
        self.edges = edges  # ln x at the ends of the panels, ascending
        self.parent = parent  # the law that is integrated over
        self._half = np.diff(edges)[:, None] / 2
        self.log_x = (edges[:-1, None] + self._half + self._half * _NODES).ravel()
        density, self.cdf, self.sf = parent.law(np.exp(self.log_x), FLOAT)
        self.density = density * np.exp(self.log_x)  # dF/d ln x at the nodes
        self.width = (self._half * _WEIGHTS).ravel()  # quadrature weights d ln x of the nodes
        self.probability = self.density * self.width  # quadrature weights dF

    @cached_property
    def log_hazard(self) -> FloatArray:
        """Y = ln(−ln S) at the nodes, the ordinate of the Weibull plot."""
        with np.errstate(divide="ignore"):
            upper = -np.log(np.clip(self.sf, _TINY, 0.5))
            return np.log(np.where(self.cdf < 0.5, -np.log1p(-np.minimum(self.cdf, 0.5)), upper))

    def running_integral(self, values: FloatArray) -> FloatArray:
        """∫ values d ln x from the first edge to each node."""
        panel = values.reshape(-1, _ORDER) * self._half
        before = np.concatenate([[0.0], np.cumsum(panel @ _WEIGHTS)[:-1]])
        return (before[:, None] + panel @ _RUNNING.T).ravel()


def panels(parent: Parent, breaks: Sequence[float] = ()) -> Panels:
    """Return panels with ends also at ``breaks`` and kinks, as far as the moments of |w| have converged."""
    order = parent.moment_order()
    far = _FAR if math.isinf(order) else max(_FAR, min(650.0, 230.0 * order))
    ends = parent.landmarks(np.arange(-_FAR, far + _SPREAD / 2, _SPREAD))
    inner = [x for x in (*breaks, *parent.kinks(FLOAT)) if 0.0 < x < parent.upper(FLOAT)]
    return Panels(np.log(np.unique(np.concatenate([ends, inner]))), parent)
