"""Null of W_QK = W_QᵀW_K and of its elements, as functions of (d_model, d_head), at σ = 1 and divided by √d_model.

W_QK is the chain (d_model, d_head, d_model), whose edges are those of :mod:`rmtbase.constants._chain`. For other σ, and
for the raw W_QK, the eigenvalues are multiplied by g², with g = σ_Q σ_K, times √d_model for the raw product. An element
is w = Σ_{i≤h} a_i b_i with standard normal a_i, b_i, whose law is variance-gamma.
"""

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

from mpmath import mp

from rmtbase.constants._chain import Chain
from rmtbase.constants._constant import power
from rmtbase.constants._digits import Number


def _chain(d: int, h: int) -> Chain:
    return Chain((d, h, d), (Fraction(1), Fraction(1)), "sqrt_d")


def _sides(side: int) -> dict[str, dict[str, Any]]:
    edge, eigenvalue = ("product_upper", "largest_eigenvalue") if side > 0 else ("product_lower", "smallest_eigenvalue")
    return {
        f"{edge}_edge": {"compute": lambda d, h: _chain(d, h).edge(side), "rescaled": power(2)},
        f"{edge}_singular_edge": {"compute": lambda d, h: mp.sqrt(_chain(d, h).edge(side)), "rescaled": power(1)},
        f"{edge}_edge_scale": {"compute": lambda d, h: _chain(d, h).edge_scale(side), "rescaled": power(2)},
        f"{eigenvalue}_mean": {
            "compute": lambda d, h: _chain(d, h).extreme_eigenvalue(side).mean(),
            "relative_error": lambda d, h: _chain(d, h).mean_error(side),
            "rescaled": power(2),
        },
        f"{eigenvalue}_std": {
            "compute": lambda d, h: _chain(d, h).extreme_eigenvalue(side).std(),
            "relative_error": lambda d, h: _chain(d, h).neglected(side),
            "rescaled": power(2),
        },
    }


def _mpf(value: Fraction) -> Number:
    return mp.mpf(value.numerator) / value.denominator


def _trace(partition: tuple[int, ...], d: int, h: int) -> Fraction:
    """E Π tr M^(μ_i) of W_QK divided by √d."""
    from rmtbase.laws import trace_moment

    return trace_moment(partition, (d, h, d), normalization="none") / d ** sum(partition)


def _trace_std(d: int, h: int, k: int) -> Number:
    return mp.sqrt(_mpf(_trace((k, k), d, h) - _trace((k,), d, h) ** 2))


def _participation_ratio(d: int, h: int):
    from rmtbase.laws import normalized_participation_ratio

    return normalized_participation_ratio(d, h)


def _last_order(error: float) -> str:
    return f"asymptotic: the last order is {error:.1e}"


def _sum_down(primitive: Callable[[Any], Any], d: int, h: int) -> Number:
    """Σ_{i<h} f((d - i)/2) for f(x) = primitive(x + 1) - primitive(x); even and odd i form chains of step one."""
    total = mp.mpf(0)
    for top, count in ((d, (h + 1) // 2), (d - 1, h // 2)):
        end = mp.mpf(top) / 2 + 1
        total += primitive(end) - primitive(end - count)
    return total


def _log_determinant_mean(d: int, h: int) -> Number:
    # (x - 1) ψ(x) - x is a primitive of the digamma function for steps of one.
    digammas = _sum_down(lambda x: (x - 1) * mp.psi(0, x) - x, d, h)
    return 2 * (h * mp.log(2) + digammas) - h * mp.log(d)


def _log_determinant_std(d: int, h: int) -> Number:
    # Likewise, (x - 1) ψ₁(x) + ψ(x) is one of the trigamma function.
    return mp.sqrt(2 * _sum_down(lambda x: (x - 1) * mp.psi(1, x) + mp.psi(0, x), d, h))


def _normal_divergence(h: int) -> Number:
    """D_KL of the law of w from N(0, h), in nats: E ln p(w) + ln(2πe h)/2, by tanh-sinh quadrature."""
    nu = mp.mpf(h - 1) / 2
    log_constant = mp.log(mp.pi) / 2 + mp.loggamma(mp.mpf(h) / 2) + nu * mp.log(2)

    def information(x: Number) -> Number:
        bessel = mp.besselk(nu, x) if nu else _bessel_k0(x)
        log_density = nu * mp.log(x) + mp.log(bessel) - log_constant
        return mp.exp(log_density) * log_density

    width = mp.sqrt(h)
    end = 2.4 * mp.dps + 8 * width  # p falls as exp(-x)
    return 2 * mp.quad(information, [0, width, 4 * width, end]) + (mp.log(2 * mp.pi * h) + 1) / 2


def _bessel_k0(x: Number) -> Number:
    """K_0 by its power series (DLMF 10.31.2), in integers: many times faster than mpmath's K_0."""
    bits = mp.prec + int(3 * x) + 32  # the two parts cancel from exp(x) to exp(-x)
    with mp.workprec(bits):
        quarter = int(mp.ldexp(x * x / 4, bits))
        term = i0 = unit = 1 << bits
        harmonic = series = k = 0
        while term:
            k += 1
            term = (term * quarter // k**2) >> bits
            harmonic += unit // k
            i0 += term
            series += (term * harmonic) >> bits
        k0 = mp.ldexp(series, -bits) - (mp.log(x / 2) + mp.euler) * mp.ldexp(i0, -bits)
    return +k0


CONSTANTS: dict[str, Callable[[], Number]] = {
    **{f"element_divergence_{h}": partial(_normal_divergence, h) for h in (1, 64, 128)},
    "element_divergence_slope": lambda: mp.mpf(36) / 48,  # (h γ₂)²/48 with γ₂ = 6/h
}
_NPR = "normalized_participation_ratio"
FUNCTIONS: dict[str, dict[str, Any]] = {
    "element_excess_kurtosis": {"compute": lambda h: mp.mpf(6) / h},
    "aspect_ratio": {"compute": lambda d, h: mp.mpf(h) / d},
    **_sides(+1),
    **_sides(-1),
    "trace_mean": {"compute": lambda d, h: _mpf(_trace((1,), d, h)), "rescaled": power(2)},
    "trace_std": {"compute": lambda d, h: _trace_std(d, h, 1), "rescaled": power(2)},
    "trace_of_square_mean": {"compute": lambda d, h: _mpf(_trace((2,), d, h)), "rescaled": power(4)},
    "trace_of_square_std": {"compute": lambda d, h: _trace_std(d, h, 2), "rescaled": power(4)},
    f"{_NPR}_of_means": {"compute": lambda d, h: _mpf(_trace((1,), d, h) ** 2 / (h * _trace((2,), d, h)))},
    f"{_NPR}_mean": {
        "compute": lambda d, h: _participation_ratio(d, h).mean,
        "uncertainty": lambda d, h: _last_order(_participation_ratio(d, h).error),
        "relative_error": lambda d, h: _participation_ratio(d, h).error / _participation_ratio(d, h).mean,
    },
    f"{_NPR}_std": {
        "compute": lambda d, h: _participation_ratio(d, h).std,
        "uncertainty": lambda d, h: _last_order(_participation_ratio(d, h).std_error),
        "relative_error": lambda d, h: _participation_ratio(d, h).std_error / (_participation_ratio(d, h).std or 1.0),
    },
    "log_determinant_mean": {
        "compute": _log_determinant_mean,
        "rescaled": lambda value, square, h: value + h * mp.log(square),
    },
    "log_determinant_std": {"compute": _log_determinant_std},
    "spectral_radius": {"compute": mp.sqrt, "rescaled": power(1)},
    "spike_threshold": {
        "compute": lambda d, h: mp.sqrt(d * (1 + 1 / _chain(d, h).critical_point(+1))),
        "rescaled": power(1),
    },
}
