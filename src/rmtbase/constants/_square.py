"""Square Gaussian matrices, d → ∞: one factor, a product of two, the smallest singular value, residual paths.

In units of d σ² (one factor X, eigenvalues of XᵀX) and of d σ_Q²σ_K² (W_QK at d_head = d, divided by √d) the spectrum
has the moments

    m(s) = E λ^s = Γ((L+1)s + 1) / (Γ(s+1) Γ(Ls + 2)),   s > -1/(L+1),

L = 1 (Catalan; Marchenko & Pastur 1967) and L = 2 (Fuss-Catalan; Penson & Życzkowski 2011). All constants of the bulk
follow from m.

At the hard edge, for an n×n matrix with standard normal entries, t = √n s_min has the limiting law
P(t > x) = exp(-x - x²/2), and κ = s_max/s_min is 2n/t since s_max ~ 2√n (Edelman 1988).

A residual path is P_L = Π_{l≤L} (I + (σ/√d) G_l), with the eigenvalues of PPᵀ.
"""

from collections.abc import Callable
from functools import partial

from mpmath import mp

from rmtbase.constants._digits import Number


def _moment(factors: int, s: Number | int) -> Number:
    """m(s) of the product of ``factors`` square factors."""
    return mp.gamma((factors + 1) * s + 1) / (mp.gamma(s + 1) * mp.gamma(factors * s + 2))


def _log_slope(factors: int, s: Number | int) -> Number:
    """(ln m)'(s): E[λ^s ln λ] / E[λ^s]."""
    steps = factors + 1
    return steps * mp.psi(0, steps * s + 1) - mp.psi(0, s + 1) - factors * mp.psi(0, factors * s + 2)


def _bulk(factors: int) -> dict[str, Callable[..., Number]]:
    steps = factors + 1

    def half() -> Number:
        return mp.mpf(1) / 2

    return {
        "upper_edge": lambda: mp.mpf(steps**steps) / factors**factors,  # lim m(k)^(1/k)
        "upper_singular_edge": mp.sqrt,
        **{f"moment_{k}": partial(_moment, factors, k) for k in (2, 3, 4)},
        "normalized_participation_ratio": lambda second_moment: 1 / second_moment,
        "normalized_participation_ratio_singular": lambda: _moment(factors, half()) ** 2,
        "entropy_deficit": partial(_log_slope, factors, 1),
        "entropy_deficit_singular": lambda: _log_slope(factors, half()) / 2 - mp.log(_moment(factors, half())),
        "effective_rank_fraction": lambda entropy_deficit_singular: mp.exp(-entropy_deficit_singular),
        "stable_rank_fraction": lambda upper_edge: 1 / upper_edge,
        "log_determinant": partial(_log_slope, factors, 0),
        "spike_threshold": lambda upper_singular_edge: upper_singular_edge * factors / steps,
    }


def _continuum_edge(side: int) -> Number:
    """(1 + t ± √(t² + 2t)) exp(± √(t² + 2t)) at t = 1, for σ² = t/L and L → ∞ (free Brownian motion)."""
    root = side * mp.sqrt(3)
    return (2 + root) * mp.exp(root)


CONSTANTS: dict[str, Callable[..., Number]] = {
    **{f"square_factor_{name}": compute for name, compute in _bulk(1).items()},
    **{f"square_product_{name}": compute for name, compute in _bulk(2).items()},
    "square_smallest_singular_value_mean": lambda: mp.sqrt(mp.pi * mp.e / 2) * mp.erfc(1 / mp.sqrt(2)),
    "square_smallest_singular_value_median": lambda: mp.sqrt(1 + 2 * mp.log(2)) - 1,
    "square_smallest_eigenvalue_mean": lambda singular_value_mean: 2 * (1 - singular_value_mean),
    # ln 2 - E ln t by tanh-sinh quadrature; the tail beyond the last end is below the working precision.
    "square_log_condition_number": lambda: (
        mp.log(2) - mp.quad(lambda x: mp.log(x) * (1 + x) * mp.exp(-x - x * x / 2), [0, 1, 3, mp.sqrt(5 * mp.dps)])
    ),
    "square_log_condition_number_complex": lambda: mp.log(2) + mp.euler / 2,
    "residual_path_upper_edge": lambda: mp.mpf(27) / 4,
    "residual_path_continuum_upper_edge": partial(_continuum_edge, +1),
    "residual_path_continuum_lower_edge": partial(_continuum_edge, -1),
    "residual_path_continuum_participation_ratio": lambda: mp.mpf(1) / 3,  # m_1²/m_2 = 1/(1 + 2t)
}
