"""How the elements of one W_QK = W_Qᵀ W_K depend on each other, and what that does to statistics of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from rmtbase.laws._distribution import FloatArray
from rmtbase.laws._element._product_element import chi_square_rule
from rmtbase.laws._weibull._expansion import Expansion
from rmtbase.laws._weibull._panels import Panels
from rmtbase.laws._weibull.parents import VarianceGamma

_LIGHT = 1e-12  # a norm of less weight changes no cumulant


class DependentCumulants(NamedTuple):
    """Of a statistic T of the N elements: N times its bias, N Var T and N² κ₃(T), which depend on N too."""

    drift: float
    second: float
    third: float


@dataclass(frozen=True)
class DependentStatistic:
    """A statistic of the elements of W_QK, with the averages of :class:`SharedNorms` that its cumulants need.

    Attributes:
        statistic: about the law of an element.
        curved: E curvature(φ_g).
        a2, a3, abc, ac2, c3: E a², E a³, E abc, E ac², E c³.
        along: E a φ_g at the nodes.
    """

    statistic: Expansion
    curved: float
    a2: float
    a3: float
    abc: float
    ac2: float
    c3: float
    along: FloatArray

    def cumulants(self, d_query: int, d_key: int) -> DependentCumulants:
        """Of d_query × d_key elements."""
        one, partners = self.statistic, d_query + d_key - 2
        linear = self.c3 + 3.0 * (d_query + d_key) * self.ac2
        linear += 6.0 * d_query * d_key * self.abc + (d_query**2 + d_key**2) * self.a3
        return DependentCumulants(
            one.drift + 0.5 * partners * self.curved,
            one.variance + partners * self.a2,
            linear + 3.0 * one.curvature(one.influence + partners * self.along),
        )


@dataclass(frozen=True)
class SharedNorms:
    """The d_query × d_key elements w_ij = q_i · k_j of W_QK: given |q_i|², those of row i are independent and normal.

    Elements that share a row or a column share its norm, others nothing. With a = E(IF | |q|²) of an influence function
    (b for columns, the same function), IF = a + b + c, and φ_g the relative change from the law of an element to that
    in a row of norm g, a statistic has

        N × bias = drift + (d_key + d_query − 2) E curvature(φ_g)/2,
        N Var = E IF² + (d_key + d_query − 2) E a²,
        N² κ₃ = E c³ + 3 (d_key + d_query) E ac² + 6 N E abc + (d_key² + d_query²) E a³ + 3 curvature(C),

    C = IF + (d_key + d_query − 2) E a φ_g, N times the covariance of the empirical law with the linear part (Hoeffding
    1948). Neglected: O(1/d_head) of drift and third cumulant.

    Attributes:
        grid: of a :class:`VarianceGamma` parent.
    """

    grid: Panels

    @cached_property
    def _parent(self) -> VarianceGamma:
        parent = self.grid.parent
        assert isinstance(parent, VarianceGamma)
        return parent

    @cached_property
    def _rule(self) -> tuple[FloatArray, FloatArray]:
        """ln(|q|²/h) and weights."""
        return chi_square_rule(self._parent.h)

    @cached_property
    def _relative(self) -> Float[np.ndarray, "norm node"]:
        """The density of |w| in a row of given norm, over that of |w|."""
        log_variance, weights = self._rule
        u = np.exp(self.grid.log_x - 0.5 * log_variance[:, None]) / float(self._parent.sigma)
        density = np.exp(-0.5 * u * u - 0.5 * log_variance[:, None])
        return density / (weights @ density)

    def given_norm(self, values: FloatArray) -> FloatArray:
        """E(values | norm), (norm,)."""
        return self._relative @ (self.grid.probability * values)

    def shared(self, first: FloatArray, second: FloatArray) -> float:
        """Cov(E(first | norm), E(second | norm))."""
        a, b, weights = self.given_norm(first), self.given_norm(second), self._rule[1]
        return float(weights @ ((a - weights @ a) * (b - weights @ b)))

    def __call__(self, statistic: Expansion) -> DependentStatistic:
        """A statistic of all elements, whatever their number."""
        weights, influence = self._rule[1], statistic.influence
        a = self.given_norm(influence)
        a = a - weights @ a
        heavy = np.flatnonzero(weights > _LIGHT)
        changes = self._relative - 1.0
        curved = float(weights[heavy] @ [statistic.curvature(changes[index]) for index in heavy])
        a3, abc = float(weights @ a**3), self._all_three(influence, a)
        ac2 = float(weights @ (a * self.given_norm(influence**2))) - a3 - 2.0 * abc
        c3 = float(self.grid.probability @ influence**3) - 2.0 * a3 - 6.0 * abc - 6.0 * ac2
        along = (weights * a) @ changes
        return DependentStatistic(statistic, curved, float(weights @ a**2), a3, abc, ac2, c3, along)

    def _all_three(self, influence: FloatArray, a: FloatArray) -> float:
        """E abc = E[a(|q|²) b(|k|²) IF(w)]: along q, k has the component w/|q|, and across it h − 1 more."""
        log_variance, weights = self._rule
        h = self._parent.h
        along = np.exp(2.0 * self.grid.log_x - log_variance[:, None]) / float(self._parent.sigma) ** 2
        points = np.geomspace(1e-8, max(60.0, 8.0 * h), 160)
        if h > 1:
            rest, share = chi_square_rule(h - 1)
            across = np.interp(np.log((points[:, None] + (h - 1) * np.exp(rest)) / h), log_variance, a) @ share
        else:
            across = np.interp(np.log(points / h), log_variance, a)
        of_column = np.interp(np.log(np.maximum(along, 1e-8)), np.log(points), across)
        joint: NDArray[np.float64] = (self._relative * of_column) @ (self.grid.probability * influence)
        return float(weights @ (a * joint))
