"""Lower and upper bounds of the constants of the Weibull fit of untrained weights, in ball arithmetic."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

from balls import bounded, integral, log, nan, rational, reach, root, tiny_end
from flint import acb, arb, ctx

# The line through the Weibull plot: X = ln x(F), Y = ln(-ln(1 - F)), F uniform on [t, 1 - t].


@dataclass(frozen=True)
class _Plot:
    """Means of X and Y and their products over the trimmed range."""

    x: arb
    y: arb
    xx: arb
    xy: arb
    yy: arb

    def fit(self) -> dict[str, arb]:
        """Shape, scale and R²."""
        variance_x, variance_y = self.xx - self.x**2, self.yy - self.y**2
        covariance = self.xy - self.x * self.y
        shape = covariance / variance_x
        return {
            "shape": shape,
            "scale": (self.x - self.y / shape).exp(),
            "r_squared": covariance**2 / (variance_x * variance_y),
        }


def _over(low: arb, high: arb, mass: arb, coordinates: Callable[[acb, bool], tuple[acb, acb, acb]]) -> _Plot:
    """Means over a variable of which (X, Y, density) are analytic functions."""

    def mean(product: Callable[[acb, acb], acb]) -> arb:
        def integrand(z: acb, analytic: bool) -> acb:
            x, y, density = coordinates(z, analytic)
            return product(x, y) * density

        return integral(integrand, low, high) / mass

    return _Plot(
        x=mean(lambda x, y: x),
        y=mean(lambda x, y: y),
        xx=mean(lambda x, y: x * x),
        xy=mean(lambda x, y: x * y),
        yy=mean(lambda x, y: y * y),
    )


def _half_normal(z: acb, analytic: bool) -> tuple[acb, acb, acb]:
    """Coordinates and density of half-normal weights on z = |w|/σ: 1 - F = erfc(z/√2)."""
    upper = (z / arb(2).sqrt()).erfc()
    return log(z, analytic), log(-log(upper, analytic), analytic), (-z * z / 2).exp() * (2 / arb.pi()).sqrt()


def _uniform(f: acb, analytic: bool) -> tuple[acb, acb, acb]:
    """Coordinates and density of uniform weights on F: x = √3 F."""
    return log(f * arb(3).sqrt(), analytic), log(-log(1 - f, analytic), analytic), acb(1)


def _logistic(f: acb, analytic: bool) -> tuple[acb, acb, acb]:
    """Coordinates and density of logistic weights on F: x = (√3/π) ln((1 + F)/(1 - F))."""
    quantile = (log(1 + f, analytic) - log(1 - f, analytic)) * arb(3).sqrt() / arb.pi()
    return log(quantile, analytic), log(-log(1 - f, analytic), analytic), acb(1)


@lru_cache(maxsize=16)
def _anchor(parent: str, per_cent: int, precision: int) -> dict[str, arb]:
    """Fit of one law, trimmed at either end; ``precision`` is the working precision."""
    if parent == "half_normal" and not per_cent:
        return _untrimmed()
    trim = rational(per_cent, 100)
    low, high, mass = trim, 1 - trim, 1 - 2 * trim
    if parent == "half_normal":
        low, high = (arb(2).sqrt() * end.erfinv() for end in (low, high))
    return _over(
        low, high, mass, {"half_normal": _half_normal, "uniform": _uniform, "logistic": _logistic}[parent]
    ).fit()


def _untrimmed() -> dict[str, arb]:
    """-ln(1 - F) is exponential and |w| half normal, so that all is known but E XY.

    Below ε |Y| ≤ 2 |ln x|, and beyond T ≥ 20 0 ≤ Y ≤ 2 ln x and 2 ln² x ≤ 2 x; the density is below 1.
    """
    gamma, pi = arb.const_euler(), arb.pi()
    low, high = tiny_end(), arb(int((2 * reach()) ** 0.5) + 20)

    def product(z: acb, analytic: bool) -> acb:
        x, y, density = _half_normal(z, analytic)
        return x * y * density

    def below_one(u: acb, analytic: bool) -> acb:
        z = u.exp()
        lower = (z / arb(2).sqrt()).erf()
        if not abs(lower) < 1:  # ln(1 - F) is analytic there
            return nan()
        y = log(-(-lower).log1p(), analytic)
        return z * u * y * (-z * z / 2).exp() * (2 / pi).sqrt()

    log_low = low.log()
    rest = 2 * low * (log_low**2 - 2 * log_low + 2) + 2 * (-high * high / 2).exp()
    cross = integral(below_one, log_low, arb(0)) + integral(product, arb(1), high) + bounded(rest)
    x = -(gamma + arb(2).log()) / 2
    return _Plot(x=x, y=-gamma, xx=pi**2 / 8 + x**2, xy=cross, yy=pi**2 / 6 + gamma**2).fit()


def _fit(parent: str, per_cent: int, field: str) -> arb:
    return _anchor(parent, per_cent, ctx.prec)[field]


_ANCHORS = {
    f"{parent}_anchor{suffix}_{field}": partial(_fit, parent, per_cent, field)
    for parent, per_cent, suffix in (
        ("half_normal", 10, ""),
        ("half_normal", 5, "_trim_05"),
        ("half_normal", 0, "_untrimmed"),
        ("uniform", 10, ""),
        ("logistic", 10, ""),
    )
    for field in ("shape", "scale", "r_squared")
}

_shape, _scale = (partial(_fit, "half_normal", 10, field) for field in ("shape", "scale"))


def _moment(shape: arb, order: int) -> arb:
    """E x^order of the Weibull law of scale 1."""
    return (1 + order / shape).gamma()


def _closure_ratio() -> arb:
    k = _shape()
    return _scale() * ((_moment(k, 2) - _moment(k, 1) ** 2) / (1 - 2 / arb.pi())).sqrt()


# The least noisy point, and the laws nearest in likelihood and in moments.


def _optimum() -> arb:
    return 1 + (-2 * arb(-2).exp()).lambertw() / 2


def _least_variance() -> arb:
    p = _optimum()
    return 1 / (4 * p * (1 - p))


def _likelihood_shape() -> arb:
    """ψ((k+1)/2) + γ + 2 ln 2 - 2/k increases."""
    rest = arb.const_euler() + 2 * arb(2).log()
    return root(lambda k: ((k + 1) / 2).digamma() + rest - 2 / k, arb(1.25), arb(1.3125))


def _likelihood_scale() -> arb:
    k = _likelihood_shape()
    return (arb(2) ** (k / 2) * ((k + 1) / 2).gamma() / arb.pi().sqrt()) ** (1 / k)


def _moment_shape() -> arb:
    """Γ(1+2/k)/Γ²(1+1/k), the second moment over the squared mean, falls as k grows."""
    return root(lambda k: arb.pi() / 2 - _moment(k, 2) / _moment(k, 1) ** 2, arb(1.25), arb(1.375))


ENCLOSURES: dict[str, Callable[[], arb]] = {
    **_ANCHORS,
    "laplace_anchor_shape": lambda: arb(1),  # |w| is exponential, itself a Weibull law
    "laplace_anchor_scale": lambda: 1 / arb(2).sqrt(),
    "laplace_anchor_r_squared": lambda: arb(1),
    "body_tail_gap": lambda: _shape() - _fit("half_normal", 0, "shape"),
    "gamma_closure_ratio": _closure_ratio,
    "gamma_closure_ratio_root_mean_square": lambda: _scale() * _moment(_shape(), 2).sqrt(),
    "noise_optimal_probability": _optimum,
    "noise_optimal_variance": _least_variance,
    "noise_ratio_at_trim": lambda: 1 / (9 * rational(9, 10).log() ** 2) / _least_variance(),
    "half_normal_likelihood_shape": _likelihood_shape,
    "half_normal_likelihood_scale": _likelihood_scale,
    "half_normal_moment_shape": _moment_shape,
    "half_normal_moment_scale": lambda: (2 / arb.pi()).sqrt() / _moment(_moment_shape(), 1),
}
