"""Law of an element of W_QK: w = Σ_{i≤h} a_i b_i with standard normal a_i, b_i, which is variance-gamma."""

from __future__ import annotations

from mpmath import mp

from rmtbase.constants._conditions import Conditions
from rmtbase.constants._constant import NUMERICAL, Constant, ConstantFunction, constant
from rmtbase.constants._digits import Number

_SUM_OF_PRODUCTS = ("pearson_jeffery_elderton_1929", "wishart_bartlett_1932")  # Craig treats the single product


def _conditions(shape: str, holds: str) -> Conditions:
    return Conditions(
        matrix="one element w of W_QK = W_QᵀW_K of independent normal entries",
        normalization="at any normalization",
        sigma="any σ_Q, σ_K",
        shape=shape,
        convention="w: element of W_QK",
        holds=holds,
    )


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
        term = i0 = one = 1 << bits
        harmonic = rest = k = 0
        while term:
            k += 1
            term = (term * quarter // k**2) >> bits
            harmonic += one // k
            i0 += term
            rest += (term * harmonic) >> bits
        found = mp.ldexp(rest, -bits) - (mp.log(x / 2) + mp.euler) * mp.ldexp(i0, -bits)
    return +found


def _divergence(h: int) -> Constant:
    return constant(
        name=f"element_divergence_{h}",
        symbol=rf"D_{{{h}}}",
        description=f"D_KL of an element of W_QK at d_head = {h} from its matched normal, in nats",
        definition=(
            rf"\int p \ln \frac{{p}}{{\varphi_h}} \, \mathrm{{d}}x, \quad"
            rf" p(x) = \frac{{|x|^\nu K_\nu(|x|)}}{{\sqrt{{\pi}}\, \Gamma(h/2)\, 2^\nu}}, \quad"
            rf" \nu = \frac{{h-1}}{{2}}, \quad h = {h}"
        ),
        conditions=_conditions(f"d_head = {h}, any d_model", "exact at this size"),
        method="tanh-sinh quadrature",
        references=(*(_SUM_OF_PRODUCTS if h > 1 else ("craig_1936",)), "kullback_leibler_1951"),
        compute=lambda: _normal_divergence(h),
        **NUMERICAL,
    )


CONSTANTS = (
    *(_divergence(h) for h in (1, 64, 128)),
    constant(
        name="element_divergence_slope",
        symbol=r"\lim_{h \to \infty} h^2 D_h",
        description="leading coefficient of D_KL of an element of W_QK from its matched normal, in d_head^-2",
        definition=r"\frac{1}{48} (h \gamma_2)^2, \quad \gamma_2 = 6/h",
        conditions=_conditions("large d_head, any d_model", "limit of large d_head"),
        method="Edgeworth expansion",
        references=("kullback_leibler_1951",),
        compute=lambda: mp.mpf(36) / 48,
    ),
)
FUNCTIONS = (
    ConstantFunction(
        name="element_excess_kurtosis",
        symbol=r"\gamma_2(h)",
        description="excess kurtosis of an element of W_QK",
        definition=r"6 / h",
        conditions=_conditions("any d_head and d_model", "exact at this size"),
        method="closed form",
        references=(*_SUM_OF_PRODUCTS, "craig_1936"),
        parameters=("d_head",),
        compute=lambda h: mp.mpf(6) / h,
    ),
)
