"""Free multiplicative Brownian motion: the limit of a residual path of infinitely many, infinitely weak blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import log1p

from rmtbase.errors import ParameterError
from rmtbase.laws._distribution import ComplexArray, FloatArray
from rmtbase.laws._residual._eigenvalue_law import CutMap, EigenvalueLaw, exponential
from rmtbase.parameters import require_order, require_positive_number


@dataclass(frozen=True)
class FreeMultiplicativeBrownian(EigenvalueLaw):
    """Limiting law of the eigenvalues λ of P Pᵀ with σ² = t/L, for d → infinity and then depth L → infinity.

    With ψ(λ) = Σ_k m_k λ^{-k} the moment generating function,

        λ = (1 + 1/ψ) e^(t (1 + 2 ψ)),    S(ψ) = e^(-t (1 + 2 ψ)),    support (1 + t ± r) e^(±r),
        r = √(t² + 2 t),    density(λ) = |Im ψ(λ)| / (π λ)

    (Biane 1997; Tarnowski et al. 2018). ln λ is symmetric about 0. The law of :class:`ResidualPath` with σ² = t/L
    differs from it by O(1/L): its cdf by at most 0.09/L at t = 0.5 and 0.24/L at t = 2. Numerical, to rounding in ln λ.

    Attributes:
        t: the time, L σ², in [1e-200, 1e6], else a ParameterError.
    """

    t: float

    def __post_init__(self) -> None:
        t = require_positive_number("t", self.t)
        if not 1e-200 <= t <= 1e6:
            raise ParameterError("t", self.t, "a number in [1e-200, 1e6]")
        object.__setattr__(self, "t", t)

    @property
    def _map(self) -> _BrownianMap:
        return _brownian_map(self.t)

    def moment(self, k: int) -> float:
        """E[λ^k] = e^(kt)/k Σ_{j<k} binom(k, j+1) (2kt)^j / j! (Biane 1997), to rounding; inf if too large.

        The sum is the Laguerre polynomial L^(1)_{k-1}(-2kt): 1, e^t, e^(2t) (1 + 2t), e^(3t) (1 + 6t + 6t²), ...
        """
        order = require_order(k)
        if order == 0:
            return 1.0
        x = 2.0 * order * self.t
        log_terms = [math.log(math.comb(order, j + 1)) + j * math.log(x) - math.lgamma(j + 1.0) for j in range(order)]
        largest = max(log_terms)
        total = math.fsum(math.exp(term - largest) for term in log_terms)
        return exponential(order * self.t - math.log(order) + largest + math.log(total))

    def mean(self) -> float:
        """E[λ] = e^t."""
        return exponential(self.t)

    def var(self) -> float:
        """Variance of λ: 2 t e^(2t)."""
        return 2.0 * self.t * exponential(2.0 * self.t)

    def log_mean(self) -> float:
        """E[ln λ] = 0."""
        return 0.0


class _BrownianMap(CutMap):
    """Map in the coordinate w = ψ; see :class:`FreeMultiplicativeBrownian`."""

    lowest_log = -math.inf

    def __init__(self, t: float) -> None:
        self.t = t
        # 2 t ψ (1 + ψ) = 1 at both edges.
        self.upper = np.array([1.0 / (t + math.sqrt(t) * math.sqrt(t + 2.0))], dtype=np.complex128)
        self.lower = -1.0 - self.upper

    def log_x(self, w: ComplexArray) -> ComplexArray:
        return self.t * (1.0 + 2.0 * w[0]) + log1p(1.0 / w[0])

    def velocity(self, w: ComplexArray) -> ComplexArray:
        return 1.0 / (2.0 * self.t - 1.0 / (w * (1.0 + w)))

    def density(self, w: ComplexArray) -> FloatArray:
        return w[0].imag / np.pi

    def cdf(self, w: ComplexArray) -> FloatArray:
        """Return the mass below λ, which equals the mass above 1/λ."""
        return self.sf(np.asarray(-1.0 - np.conj(w), dtype=np.complex128))

    def sf(self, w: ComplexArray) -> FloatArray:
        """Return the mass above λ, from the primitive t ψ² - ln(1 + ψ) of ψ d ln λ."""
        return np.clip((np.angle(1.0 + w[0]) - 2.0 * self.t * w[0].real * w[0].imag) / np.pi, 0.0, 1.0)


_brownian_map = lru_cache(maxsize=256)(_BrownianMap)
