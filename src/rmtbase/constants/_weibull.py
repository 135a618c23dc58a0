"""Constants of the Weibull fit of untrained weights: the anchors, and numbers derived from them.

An anchor regresses Y = ln(-ln(1 - F)) on X = ln x(F), x(F) the quantile function of |w|, over F uniform on [t, 1 - t].
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from mpmath import mp

from rmtbase.constants._digits import Number
from rmtbase.constants._weibull_sampling import sampling_moments

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


def _closure_ratio(k: Number, scale: Number) -> Number:
    return scale * mp.sqrt((_moment(k, 2) - _moment(k, 1) ** 2) / (1 - 2 / mp.pi))


def _likelihood_shape() -> Number:
    def slope(k: Number) -> Number:
        return mp.psi(0, (k + 1) / 2) + mp.euler + 2 * mp.log(2) - 2 / k

    return mp.findroot(slope, (mp.mpf("1.2"), mp.mpf("1.3")))


def _moment_shape() -> Number:
    def excess(k: Number) -> Number:
        return _moment(k, 2) / _moment(k, 1) ** 2 - mp.pi / 2

    return mp.findroot(excess, (mp.mpf("1.3"), mp.mpf("1.4")))


CONSTANTS: dict[str, Callable[..., Number]] = {
    **{
        f"{name}_{field}": partial(_anchor, law, trim, field)
        for name, (law, trim) in _ANCHORS.items()
        for field in ("shape", "scale", "r_squared")
    },
    "half_normal_anchor_shape_std": lambda *_: sampling_moments()[0],
    "half_normal_anchor_scale_std": lambda *_: sampling_moments()[1],
    "half_normal_anchor_correlation": lambda *_: sampling_moments()[2],
    "body_tail_gap": lambda trimmed, untrimmed: trimmed - untrimmed,
    "gamma_closure_ratio": _closure_ratio,
    "gamma_closure_ratio_root_mean_square": lambda k, scale: scale * mp.sqrt(_moment(k, 2)),
    "noise_optimal_probability": lambda: 1 + mp.lambertw(-2 * mp.exp(-2)).real / 2,
    "noise_optimal_variance": lambda p: 1 / (4 * p * (1 - p)),
    "noise_ratio_at_trim": lambda least_variance: 1 / (9 * mp.log(mp.mpf(9) / 10) ** 2) / least_variance,
    "half_normal_likelihood_shape": _likelihood_shape,
    "half_normal_likelihood_scale": lambda k: (2 ** (k / 2) * mp.gamma((k + 1) / 2) / mp.sqrt(mp.pi)) ** (1 / k),
    "half_normal_moment_shape": _moment_shape,
    "half_normal_moment_scale": lambda k: mp.sqrt(2 / mp.pi) / _moment(k, 1),
}
