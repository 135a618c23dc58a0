"""Law of an element of W_QK: w = Σ_{i≤h} a_i b_i with standard normal a_i, b_i, which is variance-gamma."""

from collections.abc import Callable
from functools import partial
from typing import Any

from mpmath import mp

from rmtbase.constants._digits import Number


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
FUNCTIONS: dict[str, dict[str, Any]] = {"element_excess_kurtosis": {"compute": lambda h: mp.mpf(6) / h}}
