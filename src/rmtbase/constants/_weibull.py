"""Constants of the Weibull fit of untrained weights: the anchors, and numbers derived from them.

An anchor regresses Y = ln(-ln(1 - F)) on X = ln x(F), x(F) the quantile function of |w|, over F uniform on [t, 1 - t].

The sampling law of the half-normal fit, trim 0.1:

the line Y = k (X - ln λ) through the middle 80 % of the Weibull plot is a functional of the quantile function X(F),
and a weight at x changes X(F) by (F - 1{x ≤ x(F)}) dX/dF. So N Cov of two fitted numbers tends to the covariance of
their influences A(w)/(1 - 2t), A = ∫ a dX from the lower trim to w (constant beyond either trim), with

    a_k = (Y - mean Y - 2k (X - mean X)) / Var X,    a_{ln λ} = 1 + (mean Y / k²) a_k.

On the trimmed range all functions are analytic in X, so Chebyshev series are integrated term by term.
"""

from collections.abc import Callable
from functools import lru_cache, partial

from mpmath import mp

from rmtbase.constants._digits import Number

_TRIM = 10  # 1/t
_TERMS_PER_DIGIT = 2
_ANCHORS = {  # law of w and trim t
    "half_normal_anchor": ("normal", "0.1"),
    "half_normal_anchor_trim_05": ("normal", "0.05"),
    "half_normal_anchor_untrimmed": ("normal", "0"),
    "uniform_anchor": ("uniform", "0.1"),
    "laplace_anchor": ("laplace", "0.1"),
    "logistic_anchor": ("logistic", "0.1"),
}


def _anchor(law: str, trim: str, field: str) -> Number:
    from rmtbase.laws import weibull_anchor

    return mp.mpf(getattr(weibull_anchor(float(trim), law, digits=mp.dps).decimals, field))


def _moment(k: Number, order: int) -> Number:
    """E x^order of the Weibull law of shape k and scale 1."""
    return mp.gamma(1 + order / k)


@lru_cache(maxsize=4)
def _sampling_moments(digits: int) -> tuple[Number, Number, Number]:
    """√N sd of shape and of scale over σ, and their correlation, at a working precision."""
    with mp.workdps(digits + 15):
        t = mp.mpf(1) / _TRIM
        low, high = (mp.log(mp.sqrt(2) * mp.erfinv(p)) for p in (t, 1 - t))
        nodes = _Nodes(_TERMS_PER_DIGIT * mp.dps, low, high)
        x = nodes.x
        sf = [mp.erfc(mp.exp(u) / mp.sqrt(2)) for u in x]
        y = [mp.log(-mp.log(s)) for s in sf]
        # dF/dX = x f(x) of |w|; the mass between the trims is 1 - 2t.
        density = [mp.sqrt(2 / mp.pi) * mp.exp(u - mp.exp(2 * u) / 2) for u in x]

        def mean(values: list[Number]) -> Number:
            """Average over the whole law a function that is constant beyond the trims."""
            inside = nodes.integral([v * d for v, d in zip(values, density, strict=True)])
            return inside + t * (values[0] + values[-1])

        def trimmed_mean(values: list[Number]) -> Number:
            return (mean(values) - t * (values[0] + values[-1])) / (1 - 2 * t)

        x_mean, y_mean = trimmed_mean(x), trimmed_mean(y)
        x_variance = trimmed_mean([(u - x_mean) ** 2 for u in x])
        k = trimmed_mean([(u - x_mean) * (v - y_mean) for u, v in zip(x, y, strict=True)]) / x_variance
        scale = mp.exp(x_mean - y_mean / k)
        a_shape = [(v - y_mean - 2 * k * (u - x_mean)) / x_variance for u, v in zip(x, y, strict=True)]
        a_log_scale = [1 + y_mean / k**2 * a for a in a_shape]

        first, second = ([value / (1 - 2 * t) for value in nodes.antiderivative(a)] for a in (a_shape, a_log_scale))

        def covariance(f: list[Number], g: list[Number]) -> Number:
            return mean([a * b for a, b in zip(f, g, strict=True)]) - mean(f) * mean(g)

        shape_std, log_scale_std = mp.sqrt(covariance(first, first)), mp.sqrt(covariance(second, second))
        return shape_std, scale * log_scale_std, covariance(first, second) / (shape_std * log_scale_std)


class _Nodes:
    """Chebyshev extreme points on [low, high], ascending, and the Chebyshev series through values there."""

    def __init__(self, degree: int, low: Number, high: Number) -> None:
        self._degree, self._half = degree, (high - low) / 2
        self._cosines = [mp.cos(mp.pi * j / degree) for j in range(2 * degree)]
        self.x = [(low + high) / 2 - self._half * self._cosines[j] for j in range(degree + 1)]

    def _primitive(self, values: list[Number]) -> list[Number]:
        """Coefficients of the primitive of the Chebyshev series, up to its constant."""
        n, ends = self._degree, [values[0] / 2, *values[1:-1], values[-1] / 2]
        c = [
            mp.mpf(2) / n * (-1) ** k * mp.fdot((self._cosines[j * k % (2 * n)], v) for j, v in enumerate(ends))
            for k in range(n + 1)
        ]
        c = [*c[:-1], c[-1] / 2, mp.mpf(0), mp.mpf(0)]
        return [mp.mpf(0), *(self._half * (c[k - 1] - c[k + 1]) / (2 * k) for k in range(1, len(c) - 1))]

    def integral(self, values: list[Number]) -> Number:
        return 2 * mp.fsum(self._primitive(values)[1::2])

    def antiderivative(self, values: list[Number]) -> list[Number]:
        """Return the primitive that vanishes at ``low``, at the points."""
        primitive, n = self._primitive(values), self._degree
        at_points = [
            mp.fdot((self._cosines[j * k % (2 * n)] * (-1) ** k, b) for k, b in enumerate(primitive))
            for j in range(n + 1)
        ]
        return [value - at_points[0] for value in at_points]


CONSTANTS: dict[str, Callable[..., Number]] = {
    **{
        f"{name}_{field}": partial(_anchor, law, trim, field)
        for name, (law, trim) in _ANCHORS.items()
        for field in ("shape", "scale", "r_squared")
    },
    "half_normal_anchor_shape_std": lambda *_: _sampling_moments(mp.dps)[0],
    "half_normal_anchor_scale_std": lambda *_: _sampling_moments(mp.dps)[1],
    "half_normal_anchor_correlation": lambda *_: _sampling_moments(mp.dps)[2],
    "body_tail_gap": lambda trimmed, untrimmed: trimmed - untrimmed,
    "gamma_closure_ratio": lambda k, scale: scale * mp.sqrt((_moment(k, 2) - _moment(k, 1) ** 2) / (1 - 2 / mp.pi)),
    "gamma_closure_ratio_root_mean_square": lambda k, scale: scale * mp.sqrt(_moment(k, 2)),
    "noise_optimal_probability": lambda: 1 + mp.lambertw(-2 * mp.exp(-2)).real / 2,
    "noise_optimal_variance": lambda p: 1 / (4 * p * (1 - p)),
    "noise_ratio_at_trim": lambda least_variance: 1 / (9 * mp.log(mp.mpf(9) / 10) ** 2) / least_variance,
    "half_normal_likelihood_shape": lambda: mp.findroot(
        lambda k: mp.psi(0, (k + 1) / 2) + mp.euler + 2 * mp.log(2) - 2 / k, (mp.mpf("1.2"), mp.mpf("1.3"))
    ),
    "half_normal_likelihood_scale": lambda k: (2 ** (k / 2) * mp.gamma((k + 1) / 2) / mp.sqrt(mp.pi)) ** (1 / k),
    "half_normal_moment_shape": lambda: mp.findroot(
        lambda k: _moment(k, 2) / _moment(k, 1) ** 2 - mp.pi / 2, (mp.mpf("1.3"), mp.mpf("1.4"))
    ),
    "half_normal_moment_scale": lambda k: mp.sqrt(2 / mp.pi) / _moment(k, 1),
}
