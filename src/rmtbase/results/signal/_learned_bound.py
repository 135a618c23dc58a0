"""A bound on the learned share of one matrix of a head, from two of its moments and without draws.

X is the matrix with each row scaled to the norm 1, E = X∘X. Independent entries of any laws symmetric about 0 keep
their law when their signs are drawn at random; |X|, and with it E, then stays. Sums over cycles of different elements,

    T₂[X] = Σ X_ia X_ja X_jb X_ib,    T₃[X] = Σ X_ia X_ja X_jb X_kb X_kc X_ic    (i, j, k different; a, b, c different)

have under random signs exactly the means 0 and 0, the variances 4 T₂[E] and 6 T₃[E], and no correlation: a cycle of
four elements comes 4 times in T₂, one of six comes 6 times in T₃, and two cycles share no term. With h rows,

    c₂ = T₂[X]/h = tr G²/h - 1 - s₂,    G = XXᵀ,    s₂ = Σ_(i≠j) (EEᵀ)_ij/h;    c₃ = T₃[X]/h.

If X is noise plus directions that are spread over rows and columns, c₂ and c₃ are in the mean the second and the third
rectangular free cumulant of the directions: with s_n the mean n-th power of their eigenvalues, p = s₁ their share of
‖X‖²_F/h = 1, and λ_n the n-th moments of the columns' squared norms (h/d and (h/d)² where these are equal),

    s₂ = c₂ + (1 + λ₂) p²,    s₃ = c₃ + 3 (1 + λ₂) p c₂ + (1 + 3 λ₂ + λ₃) p³.

Cauchy and Schwarz's s₂² ≤ p s₃ bounds p from below by the root of

    (λ₂ + λ₃ - λ₂²) p⁴ + (1 + λ₂) c₂ p² + c₃ p - c₂² = 0,

of which there is one for p > 0 (one change of sign). It is p itself if all directions are equally strong.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Shaped

from rmtbase.heads.factors import holds_product
from rmtbase.models import Difference, WeightMatrices
from rmtbase.results.signal.schema import WITHIN_CHANCE
from rmtbase.tables import Circuit, Factor

# standard deviations under random signs by which c₂ must exceed 0; at most 1 % of matrices without structure do
BEYOND_CHANCE = 4.0
_LOWERED = 2.0  # standard deviations by which c₂ is lowered, and c₃ raised, before the share is computed
_LEAST = 8  # rows, the fewest for which the bound was measured
_ROUNDING = 1e-12
_HALVINGS = 50


class ShareBound(NamedTuple):
    """Bound on a learned share."""

    share: float = np.nan  # the share is at least this; NaN where there is no bound
    reason: str = ""  # why there is none, a code of ``schema.NO_BOUND``


def share_bound(matrix: Shaped[np.ndarray, "row column"]) -> ShareBound:
    """Bound the learned share of a matrix's squared norm, its rows scaled to one norm; rows of zeros are left out.

    There is a bound if c₂ is beyond chance. It is the share at c₂ - 2 and c₃ + 2 standard deviations, since those
    matrices are singled out whose c₂ is large by chance. At most 5 % of the bounds of a shape and law of entries exceed
    the share by more than 5 percentage points, for directions that are spread over rows and columns: see
    studies/how_much for the shapes, laws and directions that were tried.
    """
    wide = np.asarray(matrix, dtype=np.float64)
    wide = wide / (float(np.abs(wide).max(initial=0.0)) or 1.0)
    norms = np.linalg.norm(wide, axis=1)
    unit = wide[norms > 0.0] / norms[norms > 0.0, None]
    h, d = unit.shape
    if not _LEAST <= h <= d:
        return ShareBound(reason="too_few_axes")
    square = unit**2
    c_2, std = cycles_of_four(unit) / h, 2.0 * np.sqrt(max(cycles_of_four(square), 0.0)) / h
    if not c_2 > BEYOND_CHANCE * std + _ROUNDING:
        return ShareBound(reason=WITHIN_CHANCE)
    c_3, std_3 = cycles_of_six(unit) / h, np.sqrt(6.0 * max(cycles_of_six(square), 0.0)) / h
    c_2, c_3 = c_2 - _LOWERED * std, c_3 + _LOWERED * std_3
    lambda_2 = _of_two_rows(square) / (h - 1)
    lambda_3 = _of_three_rows(square) * h / ((h - 1) * (h - 2))

    def surplus(p: float) -> float:
        return (lambda_2 + lambda_3 - lambda_2**2) * p**4 + (1.0 + lambda_2) * c_2 * p**2 + c_3 * p - c_2**2

    if surplus(1.0) < 0.0:
        return ShareBound(reason="contradiction")
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if surplus(middle) < 0.0 else (low, middle)
    return ShareBound(low)


def cycles_of_four(x: Float64[np.ndarray, "row column"]) -> float:
    gram = _between_rows(x)
    return float(np.vdot(gram, gram)) - _of_two_rows(x**2)


def cycles_of_six(x: Float64[np.ndarray, "row column"]) -> float:
    """T₃[x], over all different rows i, j, k and columns a, b, c: all columns, less those with a = b, and so on."""
    gram, square = _between_rows(x), x**2
    read = gram @ x
    every = float(np.vdot(gram @ gram, gram))
    two_alike = float(np.vdot(read * square.sum(axis=0), x)) - 2.0 * float(np.vdot(read, x**3))
    return every - 3.0 * two_alike + 2.0 * _of_three_rows(square)


def _between_rows(x: Float64[np.ndarray, "row column"]) -> Float64[np.ndarray, "row row"]:
    gram = x @ x.T
    np.fill_diagonal(gram, 0.0)
    return gram


def _of_two_rows(square: Float64[np.ndarray, "row column"]) -> float:
    """Σ_a Σ_(i≠j) E_ia E_ja."""
    return float((square.sum(axis=0) ** 2 - (square**2).sum(axis=0)).sum())


def _of_three_rows(square: Float64[np.ndarray, "row column"]) -> float:
    """Σ_a Σ E_ia E_ja E_ka over different i, j, k."""
    first, second, third = (np.sum(square**n, axis=0) for n in (1, 2, 3))
    return float((first**3 - 3.0 * first * second + 2.0 * third).sum())


class HeadBounds:
    """Collector of the bounds of all heads by circuits of one matrix, while the matrices are read."""

    def __init__(self, circuits: Sequence[Circuit]) -> None:
        self.circuits = [circuit for circuit in circuits if len(circuit.factors) == 1]
        self._bounds: dict[tuple[int, Circuit], Sequence[ShareBound]] = {}

    def submit(
        self, site: int, factors: Mapping[Factor, Shaped[np.ndarray, "factor_head rank width"]], pool: Executor
    ) -> dict[Circuit, list[Future[list[ShareBound]]]]:
        return {
            circuit: [pool.submit(lambda heads: [share_bound(head) for head in heads], factors[circuit.factors[0]])]
            for circuit in self.circuits
            if circuit.factors[0] in factors
        }

    def keep(self, site: int, submitted: Mapping[Circuit, Sequence[Future[list[ShareBound]]]]) -> None:
        for circuit, futures in submitted.items():
            self._bounds[site, circuit] = [bound for future in futures for bound in future.result()]

    def of_site(self, model: WeightMatrices, site: int, circuit: Circuit, n_heads: int) -> Sequence[ShareBound]:
        factor, *second = circuit.factors
        at, reason = model.sites[site], ""
        if second:
            reason = "product"
        elif holds_product(getattr(at, factor.name)):
            reason = "dependent_entries"
        elif isinstance(model, Difference):
            one_way = model.rounds_one_way(model.layers.index(at.place), f"attention_{factor.name}")
            reason = "signs_not_random" if one_way else ""
        return [ShareBound(reason=reason)] * n_heads if reason else self._bounds[site, circuit]
