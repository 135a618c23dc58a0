"""A law of positive eigenvalues given by an analytic map w → ln λ, and the map's inverse on the cut.

Where the S-transform is known, ln λ = ln((1 + ψ)/(ψ S(ψ))) is an explicit function of ψ or of a parameter
w of it, and the physical branch of its inverse is the one that starts at w = w_+, the critical point of the upper edge.
From there it runs in the upper half plane along the curve of real ln λ down to the lower edge. That curve
is followed once, in small steps, and tabulated: no root is ever chosen among several.

A point w is an array whose first axis lists its coordinates: one, or several where the map is known only by equations
between them. The first one lies in the upper half plane.

Everything is in ln lambda: at depth 1000 the eigenvalues span thousands of orders of magnitude.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import cached_property

import numpy as np
from scipy.interpolate import CubicSpline

from rmtbase.laws._cut import Cut
from rmtbase.laws._distribution import ComplexArray, FloatArray

_NEWTON_STEPS = 4
_LONGEST_STEP = 0.04  # in χ, where it runs from 0 to π
_LAST_STEP = 1e-3  # short of the lower edge
_HALVINGS = 40
_PREDICTION = 0.02  # of Im w: by how much the next node may differ from its prediction


class CutMap(Cut):
    """A map w → ln λ with a square-root branch point at the upper edge."""

    upper: ComplexArray
    """w_+, the critical point of the upper edge; real."""

    lower: ComplexArray | None
    """w_-, the critical point of a soft lower edge; None for a hard one, where the eigenvalues reach zero."""

    lowest_log: float
    """Hard edge: the ln λ below which the mass counts as zero. Unused for a soft one."""

    longest_move: float = math.inf
    """The longest step in w between two nodes, where the curve bends on a scale that its derivatives do not show."""

    def start(self) -> ComplexArray:
        """Return a point above w_+, near enough for Newton's method to reach the curve; w_+ is the scale of the map."""
        return self.upper * (1.0 + 1e-3j)

    @abstractmethod
    def log_x(self, w: ComplexArray) -> ComplexArray:
        """Return ln λ at w in the closed upper half plane, on the branch that is real on the curve."""

    @abstractmethod
    def velocity(self, w: ComplexArray) -> ComplexArray:
        """Return dw / d ln λ, one component for each coordinate."""

    @abstractmethod
    def density(self, w: ComplexArray) -> FloatArray:
        """Return the density of ln λ, |Im ψ| / π, at a point of the curve."""

    @abstractmethod
    def cdf(self, w: ComplexArray) -> FloatArray:
        """Return the mass below a point of the curve."""

    @abstractmethod
    def sf(self, w: ComplexArray) -> FloatArray:
        """Return the mass above a point of the curve."""

    def newton_step(self, w: ComplexArray, log_x: FloatArray) -> ComplexArray:
        """Return the step of Newton's method towards ln λ = ``log_x``, to be subtracted."""
        return (self.log_x(w) - log_x) * self.velocity(w)

    @property
    def has_hard_edge(self) -> bool:
        return self.lower is None

    @cached_property
    def log_upper(self) -> float:
        return float(self.log_x(self.upper).real)

    @cached_property
    def log_lower(self) -> float:
        return -math.inf if self.lower is None else float(self.log_x(self.lower).real)

    @property
    def last_angle(self) -> float:
        """The χ of the lower edge, or of :attr:`lowest_log`."""
        return math.sqrt(self.log_upper - self.lowest_log) if self.has_hard_edge else math.pi

    @cached_property
    def curve(self) -> tuple[FloatArray, ComplexArray]:
        """(χ, w) at nodes along the curve, from the upper edge down; the nodes are the last axis of w.

        Each node is predicted from the derivatives dw/dchi at the two before it, exactly for a parabola, and corrected
        by Newton's method; a step whose prediction is off by more than a small part of Im w is repeated at half
        its length, so that the correction cannot reach another branch.
        """
        nodes, points = [0.0], [self.upper]
        w = self.start()
        chi = float(self.angle(self.log_x(w).real))
        w = self._corrected(chi, w)
        last = self.last_angle if self.has_hard_edge else self.last_angle - _LAST_STEP
        longest = math.inf if self.has_hard_edge else _LONGEST_STEP
        step, before, rate_before = chi, 0.0, None
        while True:
            nodes.append(chi)
            points.append(w)
            if chi >= last:
                break
            rate = -self.log_x_slope_at_angle(np.asarray(chi)) * self.velocity(w)
            bend = 0.0 if rate_before is None else (rate - rate_before) / (chi - before)
            step = min(step, longest, last - chi + 0.5 * _LAST_STEP, self.longest_move / abs(complex(rate[0])))
            for _ in range(_HALVINGS):
                predicted = w + step * (rate + 0.5 * step * bend)
                corrected = self._corrected(chi + step, predicted)
                error = abs(complex(corrected[0] - predicted[0])) / (_PREDICTION * abs(complex(predicted[0]).imag))
                if error < 1.0:
                    break
                step *= 0.5
            else:
                raise ArithmeticError(f"{self!r}: the curve of the law is lost at chi = {chi}, of {self.last_angle}")
            before, rate_before = chi, rate
            chi, w = chi + step, corrected
            step *= 1.5 if error < 0.1 else 1.0
        if self.lower is not None:
            nodes.append(math.pi)
            points.append(self.lower)
        return np.array(nodes), np.stack(points, axis=-1)

    def _corrected(self, chi: float, w: ComplexArray) -> ComplexArray:
        return self._newton(w, self.log_x_at_angle(np.asarray(chi)))

    @cached_property
    def _guess(self) -> CubicSpline:
        return CubicSpline(*self.curve, axis=-1)

    def solve(self, log_x: FloatArray) -> ComplexArray:
        """Return w on the curve at each ln λ strictly inside the support. Numerical, to rounding."""
        chi = np.minimum(self.angle(log_x), self.last_angle)
        return self._newton(self._guess(chi), log_x)

    def _newton(self, w: ComplexArray, log_x: FloatArray) -> ComplexArray:
        # Im w vanishes at a soft edge with the slope, and is the natural unit everywhere: a step that is not small
        # in it is rounding over a vanishing slope, where the prediction stands.
        longest = 0.5 * np.abs(w[0].imag)
        with np.errstate(divide="ignore", invalid="ignore"):
            for _ in range(_NEWTON_STEPS):
                step = self.newton_step(w, log_x)
                w = w - np.where(np.abs(step[0]) < longest, step, 0.0)
        return np.where(w[0].imag < 0.0, np.conj(w), w)

    @cached_property
    def curve_masses(self) -> tuple[FloatArray, FloatArray]:
        """(cdf, sf) at the nodes of :attr:`curve`, made monotone against rounding."""
        w = self.curve[1]
        below, above = self.cdf(w), self.sf(w)
        below[0], above[0] = 1.0, 0.0
        if not self.has_hard_edge:
            below[-1], above[-1] = 0.0, 1.0
        return np.minimum.accumulate(below), np.maximum.accumulate(above)
