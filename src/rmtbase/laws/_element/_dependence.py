"""Dependence between the elements of one W_QK = W_Qᵀ W_K, and its effect on their statistics."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float
from scipy.interpolate import PchipInterpolator

from rmtbase.laws._distribution import FloatArray
from rmtbase.laws._element._arithmetic import FLOAT
from rmtbase.laws._element._expansion import Expansion, Panels, curvature_form, even_directions, quadratic_cumulants
from rmtbase.laws._element._product_element import chi_square_rule
from rmtbase.laws._element._product_sum import Element, row_law

_LIGHT = 1e-12  # norms of smaller weight do not change a cumulant
_MOST = 2.0  # largest exponent that the fourth cumulant of a row adds in the tails
_ROUNDS = 4


@dataclass(frozen=True)
class DependentStatistic:
    """Statistic of the elements of W_QK, with the averages of :class:`SharedNorms` that its cumulants need."""

    statistic: Expansion  # expansion about the law of an element
    curved: float  # E curvature(φ_g)
    # a2, a3, abc, ac2, c3: E a², E a³, E abc, E ac², E c³
    a2: float
    a3: float
    abc: float
    ac2: float
    c3: float
    along: FloatArray  # E a φ_g at the nodes

    def cumulants(self, d_query: int, d_key: int) -> tuple[float, float, float]:
        """Return N times the bias, N Var T and N² κ₃(T) for N = d_query × d_key elements."""
        statistic, partners = self.statistic, d_query + d_key - 2
        linear = self.c3 + 3.0 * (d_query + d_key) * self.ac2
        linear += 6.0 * d_query * d_key * self.abc + (d_query**2 + d_key**2) * self.a3
        return (
            statistic.drift + 0.5 * partners * self.curved,
            statistic.variance + partners * self.a2,
            linear + 3.0 * statistic.curvature(statistic.influence + partners * self.along),
        )


class SharedNorms:
    """Elements w_ij = q_i · k_j of a d_query × d_key W_QK; given q_i, row i is independent (:class:`RowLaw`).

    Elements in one row or column share its norm, others nothing. Let a = E(IF | |q|²) for an influence function IF, b
    the same for columns, IF = a + b + c, φ_g the relative change of the law in a row of norm g, M = d_key + d_query:

        N × bias = drift + (M − 2) E curvature(φ_g)/2,    N Var = E IF² + (M − 2) E a²,
        N² κ₃ = E c³ + 3 M E ac² + 6 N E abc + (d_key² + d_query²) E a³ + 3 curvature(IF + (M − 2) E a φ_g)

    (Hoeffding 1948). Neglected: terms of relative order 1/d_head in the drift and the third cumulant.
    """

    def __init__(self, grid: Panels) -> None:
        assert isinstance(grid.parent, Element)
        self.grid = grid  # quadrature over the law of an element
        self._row = row_law(grid.parent)

    @cached_property
    def _relative(self) -> Float[np.ndarray, "norm node"]:
        """Density of |w| in a row of given norm, divided by the density of |w|."""
        log_variance, weights = self._row.log_variance[:, None], self._row.weight
        u = self._in_deviations(log_variance)
        density = np.exp(-0.5 * u * u - 0.5 * log_variance)
        if not self._row.excess.any():
            return density / (weights @ density)
        density *= np.exp(np.minimum(self._row.excess[:, None] * _fourth_cumulant(u), _MOST))
        for _ in range(_ROUNDS):  # until each row has mass 1 and the mean over the rows is the law of |w|
            density /= weights @ density
            density /= (density @ self.grid.probability)[:, None]
        return density

    def _in_deviations(self, log_variance: FloatArray | float) -> FloatArray:
        return np.exp(self.grid.log_x - 0.5 * log_variance) / float(self.grid.parent.unit(FLOAT))

    @cached_property
    def _shape(self) -> FloatArray:
        """Relative change of the density of |w| with the excess kurtosis of a row, at fixed mass and variance."""
        probability, square = self.grid.probability, self._in_deviations(0.0) ** 2
        change = _fourth_cumulant(np.sqrt(square))
        change = change - probability @ change
        square = square - probability @ square
        return change - square * (probability @ (change * square)) / (probability @ square**2)

    def given_norm(self, values: FloatArray) -> FloatArray:
        return self._relative @ (self.grid.probability * values)

    def shared(self, first: FloatArray, second: FloatArray) -> float:
        a, b, weights = self.given_norm(first), self.given_norm(second), self._row.weight
        return float(weights @ ((a - weights @ a) * (b - weights @ b)))

    def __call__(self, statistic: Expansion) -> DependentStatistic:
        weights, influence = self._row.weight, statistic.influence
        a = self.given_norm(influence)
        a = a - weights @ a
        heavy = np.flatnonzero(weights > _LIGHT)
        changes = self._relative - 1.0
        curved = float(weights[heavy] @ [statistic.curvature(changes[index]) for index in heavy])
        a2 = float(weights @ a**2)
        if self._row.excess_variance:  # rows of the same norm differ in shape
            curved += self._row.excess_variance * statistic.curvature(self._shape)
            a2 += self._row.excess_variance * statistic.along(self._shape) ** 2
        # abc = E[a(|q|²) b(|k|²) IF(w)], where k has the component w/|q| along q, and h − 1 others.
        h, log_variance = self._row.degrees, self._row.log_variance
        points = np.geomspace(1e-8, max(60.0, 8.0 * h), 160)
        squares, share = points[:, None] / h, np.ones(1)
        if h > 1.0:
            others, share = chi_square_rule(h - 1.0)
            squares = (points[:, None] + (h - 1.0) * np.exp(others)) / h
        of_norm = PchipInterpolator(log_variance, a)
        across = of_norm(np.clip(np.log(squares), log_variance[0], log_variance[-1])) @ share
        along_q = self._in_deviations(log_variance[:, None]) ** 2
        of_column = np.interp(np.log(np.maximum(along_q, 1e-8)), np.log(points), across)
        joint = (self._relative * of_column) @ (self.grid.probability * influence)
        a3, abc = float(weights @ a**3), float(weights @ (a * joint))
        ac2 = float(weights @ (a * self.given_norm(influence**2))) - a3 - 2.0 * abc
        c3 = float(self.grid.probability @ influence**3) - 2.0 * a3 - 6.0 * abc - 6.0 * ac2
        along = (weights * a) @ changes
        return DependentStatistic(statistic, curved, a2, a3, abc, ac2, c3, along)

    def noise(self, statistic: Expansion, d_query: int, d_key: int) -> tuple[float, float]:
        """Return what the covariance (1 + (M − 2) E φ_g φ_g)/N adds to n² κ₂ and n³ κ₃ of the quadratic term."""
        directions = even_directions(self.grid)
        form = curvature_form(statistic.curvature, directions)
        rows = (self._relative - 1.0) @ (self.grid.probability * directions).T
        shared = (d_query + d_key - 2) * (rows.T * self._row.weight) @ rows
        second, third = quadratic_cumulants(form + form @ shared) - quadratic_cumulants(form)
        return float(second), float(third)


def _fourth_cumulant(u: FloatArray) -> FloatArray:
    """He₄/24, the relative change of a normal density per unit of the fourth cumulant."""
    return (u**2 * (u**2 - 6.0) + 3.0) / 24.0
