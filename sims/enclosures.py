"""Lower and upper bounds of the constants in ball arithmetic (Arb, by python-flint), only from their definitions.

    ENCLOSURES["rmtbase:constants.v1/square_log_condition_number"]()

is a ball that contains the number, as narrow as the working precision of :func:`flint.ctx` lets it be. Nothing here
uses rmtbase's own values: integrals are cut at ends beyond which the rest is bounded by hand, roots lie between two
signs of a monotone function.
"""

from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from functools import partial

import tracy_widom_enclosures as tracy_widom
import weibull_enclosures as weibull
import weibull_sampling_enclosures as weibull_sampling
from balls import bounded, half_line, integral, log, rational, reach, tiny_end
from flint import acb, arb, arb_poly, arb_series, ctx

Enclosure = Callable[[], arb]

BEYOND = 25
"""Digits that are carried beyond those asked for."""


def decimal_bounds(enclosure: Enclosure, digits: int) -> tuple[str, str]:
    """Two decimals of ``digits`` significant digits, the number between them; one and the same where it is exact.

    Raises:
        ArithmeticError: if the ball is wider than a unit of the last digit.
    """
    before = ctx.dps
    ctx.dps = digits + BEYOND
    try:
        ball = enclosure()
        low, high = (_exactly(end) for end in (ball.lower(), ball.upper()))  # rounds to the working precision
    finally:
        ctx.dps = before
    down, up = (
        Context(prec=digits, rounding=way).plus(end) for way, end in ((ROUND_FLOOR, low), (ROUND_CEILING, high))
    )
    if up - down > 4 * Decimal((0, (1,), low.adjusted() - digits + 1)):
        raise ArithmeticError(f"{digits} digits: found only {ball.str(digits)}")
    return f"{down:f}", f"{up:f}"


def _exactly(end: arb) -> Decimal:
    """Convert a dyadic number to decimal, with all of its digits."""
    mantissa, exponent = (int(part) for part in end.man_exp())
    with_all = Context(prec=20_000)
    power = with_all.power(Decimal(2), Decimal(abs(exponent)))
    return with_all.multiply(mantissa, power) if exponent >= 0 else with_all.divide(Decimal(mantissa), power)


# Square matrices: m(s) = Γ((L+1)s + 1) / (Γ(s+1) Γ(Ls+2)).


def _moment(factors: int, s: arb) -> arb:
    return ((factors + 1) * s + 1).gamma() / ((s + 1).gamma() * (factors * s + 2).gamma())


def _log_slope(factors: int, s: arb) -> arb:
    steps = factors + 1
    return steps * (steps * s + 1).digamma() - (s + 1).digamma() - factors * (factors * s + 2).digamma()


def _edge(factors: int) -> arb:
    return arb((factors + 1) ** (factors + 1)) / factors**factors


def _singular_entropy(factors: int) -> arb:
    half = rational(1, 2)
    return _log_slope(factors, half) / 2 - _moment(factors, half).log()


def _square(factors: int) -> dict[str, Enclosure]:
    return {
        "upper_edge": lambda: _edge(factors),
        "upper_singular_edge": lambda: _edge(factors).sqrt(),
        **{f"moment_{k}": partial(lambda k: _moment(factors, arb(k)), k) for k in (2, 3, 4)},
        "normalized_participation_ratio": lambda: 1 / _moment(factors, arb(2)),
        "normalized_participation_ratio_singular": lambda: _moment(factors, rational(1, 2)) ** 2,
        "entropy_deficit": lambda: _log_slope(factors, arb(1)),
        "entropy_deficit_singular": lambda: _singular_entropy(factors),
        "effective_rank_fraction": lambda: (-_singular_entropy(factors)).exp(),
        "stable_rank_fraction": lambda: 1 / _edge(factors),
        "log_determinant": lambda: _log_slope(factors, arb(0)),
        "spike_threshold": lambda: _edge(factors).sqrt() * factors / (factors + 1),
    }


# The smallest singular value: P(t > x) = exp(-x - x²/2).


def _smallest_mean() -> arb:
    return (arb.pi() * arb.const_e() / 2).sqrt() * (1 / arb(2).sqrt()).erfc()


def _log_condition_number() -> arb:
    """ln 2 - ∫ ln x (1 + x) exp(-x - x²/2); (1 + x) exp(-x) ≤ 1 bounds the ends by ε(1 - ln ε) and exp(-T²/2)."""

    def integrand(x: acb, _: bool) -> acb:
        return x.log() * (1 + x) * (-x - x * x / 2).exp()

    low, high = tiny_end(), arb(int((2 * reach()) ** 0.5) + 1)
    rest = low * (1 - low.log()) + (-high * high / 2).exp()
    return arb(2).log() - half_line(integrand, low, high) + bounded(rest)


# One element of W_QK: p(x) = |x|^ν K_ν(|x|) / (√π Γ(h/2) 2^ν), ν = (h - 1)/2.


def _against_normal(information: arb, h: int) -> arb:
    """D_KL from half of E ln p."""
    return 2 * information + ((2 * arb.pi() * h).log() + 1) / 2


def _element_divergence(h: int) -> arb:
    """p = exp(-x) P(x) for even h, P of degree n = h/2 - 1 with positive coefficients.

    Beyond E p < 1, so 0 ≤ -ln p ≤ x + |ln P(0)|, and P(x) ≤ P(E) (x/E)^n.
    """
    n = h // 2 - 1
    over = arb(h // 2).gamma() * arb(2) ** (n + 1)
    coefficients = [arb(1)]  # of falling powers: (n+j)! / (j! (n-j)! 2^j)
    for j in range(n):
        coefficients.append(coefficients[-1] * (n + j + 1) * (n - j) / (2 * (j + 1)))
    coefficients = [one / over for one in coefficients]

    polynomial = arb_poly(coefficients[::-1])
    slope = polynomial.derivative()

    def integrand(x: acb, analytic: bool) -> acb:
        middle = acb(x.real.mid(), x.imag.mid())
        off = bounded(abs(x - middle) * slope(abs(x).upper()))  # |P'(x)| ≤ P'(|x|)
        value = polynomial(middle) + acb(off, off)
        return (-x).exp() * value * (log(value, analytic) - x)

    high = arb(int(2 * reach()) + 8 * h)
    at_end = polynomial(high)
    least = abs(coefficients[-1].log())
    if not at_end * (-high).exp() < 1:
        raise ArithmeticError("the density at the end is not below 1")
    rest = at_end / high**n * (1 + least / high) * high.gamma_upper(n + 2)
    return _against_normal(integral(integrand, arb(0), high) + bounded(rest), h)


def _product_divergence() -> arb:
    """h = 1: p = K_0/π, on panels x = c + t w, |t| ≤ 1, which double up to a width of 2.

    With |t| ≤ 5/2 still Re x > 0, where |K_0(x)| ≤ K_0(Re x) and K_0 has no zero: with most = K_0(c - 5w/2) Taylor's
    coefficients in t are at most most (2/5)^n (Cauchy), and those of ln K_0 twice ln(most/K_0(c)) (2/5)^n (Borel and
    Carathéodory). Below ε 0 ≤ p ln p ≤ ln² x; beyond T ≥ 10 0 ≤ -p ln p ≤ 2x exp(-x).
    """
    terms = int(0.76 * ctx.prec) + 10
    beyond = rational(5, 3) * rational(2, 5) ** terms  # Σ (2/5)^n over n ≥ N
    low = end = arb(2) ** (-ctx.prec - 30)
    total = bounded(low * (low.log() ** 2 - 2 * low.log() + 2))
    cap = ctx.cap
    ctx.cap = terms
    try:
        while end < reach() + 20:
            width = (end / 2).min(arb(1))
            centre = end + width
            density = _bessel_k0_series(centre, width, terms)
            most, _ = _bessel_k0(centre - 5 * width / 2)
            series = arb_series(density, prec=terms).log()
            log_density = [series[n] for n in range(terms)]
            log_density[0] += bounded(2 * (most / density[0]).log() * beyond) - arb.pi().log()
            density[0] += bounded(most * beyond)
            primitive = (arb_poly(density) * arb_poly(log_density)).integral()
            total += width / arb.pi() * (primitive(1) - primitive(-1))
            end = centre + width
    finally:
        ctx.cap = cap
    return _against_normal(total + bounded(2 * (end + 1) * (-end).exp()), 1)


def _bessel_k0_series(centre: arb, width: arb, terms: int) -> list[arb]:
    """Taylor coefficients of K_0(centre + t width) in t, by x K_0'' + K_0' = x K_0."""
    value, slope = _bessel_k0(centre)
    c, ratio = [value, width * slope], centre / width
    for n in range(terms - 2):
        dividend = width**2 * (ratio * c[n] + (c[n - 1] if n else 0)) - (n + 1) ** 2 * c[n + 1]
        c.append(dividend / (ratio * ((n + 1) * (n + 2))))
    return c


def _bessel_k0(x: arb) -> tuple[arb, arb]:
    """K_0 = Σ (H_k - ln(x/2) - γ) u_k, u_k = (x²/4)^k / k!², and its derivative, at x > 0.

    The sum cancels from exp(x) to exp(-x), which as many bits more make good.
    Once x² < k², Σ_{j>k} j² u_j = (x²/4) Σ_{j≥k} u_j ≤ 4/3 (x²/4) u_k; and 2 j H_j + 1 ≤ 2j² for j ≥ 2.
    """
    with ctx.workprec(ctx.prec + int(3 * float(x)) + 20):
        quarter, least = x * x / 4, arb(2) ** -ctx.prec
        log = (x / 2).log() + arb.const_euler()
        term, harmonic, k = arb(1), -log, 0
        value, slope = harmonic, arb(-1)
        while not (4 * quarter < k * k and quarter * term < least):
            k += 1
            term *= quarter / k**2
            harmonic += rational(1, k)
            value += harmonic * term
            slope += (2 * k * harmonic - 1) * term
        rest = rational(8, 3) * quarter * term * (1 + abs(log))
        return value + bounded(rest), (slope + bounded(rest)) / x


def _residual_edge(side: int) -> arb:
    root = side * arb(3).sqrt()
    return (2 + root) * root.exp()


def _zeta_prime() -> arb:
    """ζ'(-1) = 1/12 - ln A."""
    return rational(1, 12) - arb.const_glaisher().log()


_V1: dict[str, Enclosure] = {
    **tracy_widom.ENCLOSURES,
    "zeta_prime_minus_one": _zeta_prime,
    "tracy_widom_1_left_tail": lambda: (rational(-11, 48) * arb(2).log() + _zeta_prime() / 2).exp(),
    "tracy_widom_2_left_tail": lambda: (arb(2).log() / 24 + _zeta_prime()).exp(),
    **{f"square_factor_{name}": one for name, one in _square(1).items()},
    **{f"square_product_{name}": one for name, one in _square(2).items()},
    "square_smallest_singular_value_mean": _smallest_mean,
    "square_smallest_singular_value_median": lambda: (1 + 2 * arb(2).log()).sqrt() - 1,
    "square_smallest_eigenvalue_mean": lambda: 2 * (1 - _smallest_mean()),
    "square_log_condition_number": _log_condition_number,
    "square_log_condition_number_complex": lambda: arb(2).log() + arb.const_euler() / 2,
    "element_divergence_1": _product_divergence,
    "element_divergence_64": lambda: _element_divergence(64),
    "element_divergence_128": lambda: _element_divergence(128),
    "element_divergence_slope": lambda: rational(36, 48),
    **weibull.ENCLOSURES,
    **weibull_sampling.ENCLOSURES,
    "residual_path_upper_edge": lambda: rational(27, 4),
    "residual_path_continuum_upper_edge": lambda: _residual_edge(+1),
    "residual_path_continuum_lower_edge": lambda: _residual_edge(-1),
    "residual_path_continuum_participation_ratio": lambda: rational(1, 3),
}
ENCLOSURES = {f"rmtbase:constants.v1/{name}": enclosure for name, enclosure in _V1.items()}
"""By identifier, for a later set may define a name anew."""
