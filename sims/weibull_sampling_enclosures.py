"""The sampling law of the half-normal Weibull fit, trim 0.1, in ball arithmetic.

N Cov of two fitted numbers tends to the covariance of their influences A/(1 - 2t), A = ∫ a dX from the lower trim, with
a_k = (Y - mean Y - 2k (X - mean X)) / Var X and a_{ln λ} = 1 + (mean Y / k²) a_k; beyond the trims A is constant.

X from trim to trim is cut into pieces. On each a function is a polynomial with balls as coefficients, which contains
it at every point: Taylor's, and in the constant one what is left of the series, at most M Σ_{n ≥ N} 4^-n with M the
modulus on a disc of four times the piece.
"""

from collections.abc import Callable
from functools import lru_cache

from balls import bounded, rational
from flint import acb, arb, arb_poly, arb_series, ctx

_PIECES = 128  # a power of two, so that the width is exact
_WIDTH = arb(1) / _PIECES


def _log_minus_log(upper: acb) -> acb:
    """ln(-ln(1 - F)) where it is analytic.

    Raises:
        ArithmeticError: where a logarithm may be cut.
    """
    if not upper.real > 0:
        raise ArithmeticError(f"1 - F = {upper}: the piece is too wide")
    logarithm = -upper.log()
    if not logarithm.real > 0:
        raise ArithmeticError(f"-ln(1 - F) = {logarithm}: the piece is too wide")
    return logarithm.log()


def _sampling() -> tuple[arb, arb, arb]:
    trim, root = rational(1, 10), arb(2).sqrt()
    low, high = ((root * end.erfinv()).log() for end in (trim, 1 - trim))
    length, inside = high - low, 1 - 2 * trim
    terms = int(1.7 * ctx.dps) + 12

    def polynomial(series: arb_series, most: arb) -> arb_poly:
        coefficients = [series[n] for n in range(terms)]
        coefficients[0] += bounded(most * 4 / 3 / arb(4) ** terms)
        return arb_poly(coefficients)

    def piece(index: int) -> tuple[arb_poly, arb_poly, arb_poly]:
        """X, Y and dF, of 0 ≤ v ≤ 1/128 from the left end of the piece."""
        left = low + length * index * _WIDTH
        line = arb_series([left, length])
        disc = acb(left + length * bounded(4 * _WIDTH), length * bounded(4 * _WIDTH))
        y = _log_minus_log((disc.exp() / root).erfc())
        density = (disc - (2 * disc).exp() / 2).exp()
        factor = length * (2 / arb.pi()).sqrt()
        series_y = (-((line.exp() / root).erfc().log())).log()
        series_density = (line - (line + line).exp() / 2).exp() * factor
        return (
            arb_poly([left, length]),
            polynomial(series_y, y.abs_upper()),
            polynomial(series_density, density.abs_upper() * factor),
        )

    cap = ctx.cap
    ctx.cap = terms
    try:
        pieces = [piece(index) for index in range(_PIECES)]
    finally:
        ctx.cap = cap

    def over(product: Callable[[arb_poly, arb_poly], arb_poly]) -> arb:
        return sum(((product(x, y) * d).integral()(_WIDTH) for x, y, d in pieces), arb(0)) / inside

    x_mean, y_mean = over(lambda x, y: x), over(lambda x, y: y)
    x_variance = over(lambda x, y: (x - x_mean) * (x - x_mean))
    k = over(lambda x, y: (x - x_mean) * (y - y_mean)) / x_variance
    a_shape = [(y - y_mean - 2 * k * (x - x_mean)) * (1 / x_variance) for x, y, _ in pieces]
    a_log_scale = [1 + y_mean / k**2 * a for a in a_shape]

    def influence(values: list[arb_poly]) -> tuple[list[arb_poly], arb]:
        """A/(1 - 2t) on each piece, and at the upper trim."""
        total, found = arb(0), []
        for value in values:
            found.append((value * (length / inside)).integral() + total)
            total = found[-1](_WIDTH)
        return found, total

    first, second = influence(a_shape), influence(a_log_scale)

    def mean(parts: list[arb_poly], end: arb) -> arb:
        """Over all weights: 0 below the lower trim, ``end`` above the upper."""
        total = sum(((a * d).integral()(_WIDTH) for a, (_, _, d) in zip(parts, pieces, strict=True)), arb(0))
        return total + trim * end

    def covariance(f: tuple[list[arb_poly], arb], g: tuple[list[arb_poly], arb]) -> arb:
        product = [a * b for a, b in zip(f[0], g[0], strict=True)]
        return mean(product, f[1] * g[1]) - mean(*f) * mean(*g)

    shape_std, log_scale_std = covariance(first, first).sqrt(), covariance(second, second).sqrt()
    scale = (x_mean - y_mean / k).exp()
    return shape_std, scale * log_scale_std, covariance(first, second) / (shape_std * log_scale_std)


@lru_cache(maxsize=4)
def _at(precision: int) -> tuple[arb, arb, arb]:
    """Compute the sampling constants at a working precision."""
    return _sampling()


ENCLOSURES: dict[str, Callable[[], arb]] = {
    "half_normal_anchor_shape_std": lambda: _at(ctx.prec)[0],
    "half_normal_anchor_scale_std": lambda: _at(ctx.prec)[1],
    "half_normal_anchor_correlation": lambda: _at(ctx.prec)[2],
}
