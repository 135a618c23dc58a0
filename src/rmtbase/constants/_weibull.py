"""Constants of the Weibull fit of untrained weights: the anchors, and numbers derived from them.

An anchor regresses Y = ln(-ln(1 - F)) on X = ln x(F), x(F) the quantile function of |w|, over F uniform on [t, 1 - t].
"""

from __future__ import annotations

from functools import partial

from mpmath import mp

from rmtbase.constants._conditions import Conditions
from rmtbase.constants._constant import NUMERICAL, Constant, constant
from rmtbase.constants._digits import Number
from rmtbase.constants._weibull_sampling import sampling_moments

_PARENTS = {
    "half_normal": ("normal", "w ~ N(0, σ²)"),
    "uniform": ("uniform", "uniform w"),
    "laplace": ("laplace", "Laplace w"),
    "logistic": ("logistic", "logistic w"),
}
_FIT = r"Y = \ln(-\ln(1-F)),\ X = \ln x(F),\ F \in [t, 1-t],\ t = "
_FIELDS = {
    "shape": ("k", r"\mathrm{Cov}(X,Y) / \mathrm{Var}\,X", "shape"),
    "scale": (r"\lambda", r"\exp(\overline{X} - \overline{Y}/k)", "scale over σ"),
    "r_squared": ("R^2", r"\mathrm{Cov}(X,Y)^2 / (\mathrm{Var}\,X\, \mathrm{Var}\,Y)", "R²"),
}


def _conditions(weights: str, shape: str) -> Conditions:
    return Conditions(
        matrix=f"independent weights, {weights}",
        normalization="scales in units of σ",
        sigma="any standard deviation σ of w",
        shape=shape,
        convention="Weibull law of |w| with scale λ and shape k",
        holds="limit of many weights",
    )


_of_normal = partial(_conditions, _PARENTS["half_normal"][1])
_of_fit = partial(constant, references=("weibull_1951", "ding_2026"), **NUMERICAL)


def _anchor(parent: str, trim: str, suffix: str = "") -> tuple[Constant, ...]:
    """Shape, scale and R² of one anchor."""
    distribution, what = _PARENTS[parent]

    def value(field: str) -> Number:
        from rmtbase.laws import weibull_anchor

        return mp.mpf(getattr(weibull_anchor(float(trim), distribution, digits=mp.dps).decimals, field))

    return tuple(
        _of_fit(
            name=f"{parent}_anchor{suffix}_{field}",
            symbol=rf"{symbol}_{{\mathrm{{{distribution}}}, {trim}}}",
            description=f"{words} of the Weibull anchor of {what}, trim {trim}",
            definition=rf"{formula}, \quad {_FIT}{trim}",
            conditions=_conditions(what, f"trimmed by {trim} at either end" if float(trim) else "untrimmed"),
            method="double exponential quadrature",
            compute=partial(value, field),
        )
        for field, (symbol, formula, words) in _FIELDS.items()
    )


_ANCHOR, _UNTRIMMED = _anchor("half_normal", "0.1"), _anchor("half_normal", "0", "_untrimmed")
_SHAPE, _SCALE, _ = _ANCHOR
_of_anchor = partial(_of_fit, conditions=_of_normal("trimmed by 0.1 at either end"), parents=(_SHAPE, _SCALE))
_of_sampling = partial(
    _of_anchor,
    conditions=_of_normal("N weights, trimmed by 0.1 at either end"),
    method="influence functions, Chebyshev series",
)
_SAMPLING = (
    _of_sampling(
        name="half_normal_anchor_shape_std",
        symbol=r"\sigma_k",
        description="√N times the standard deviation of the fitted shape of N weights, trim 0.1",
        definition=r"\lim_{N \to \infty} \sqrt{N}\, \mathrm{sd}(\hat k)",
        compute=lambda *_: sampling_moments()[0],
    ),
    _of_sampling(
        name="half_normal_anchor_scale_std",
        symbol=r"\sigma_\lambda",
        description="√N times the standard deviation of the fitted scale over σ of N weights, trim 0.1",
        definition=r"\lim_{N \to \infty} \sqrt{N}\, \mathrm{sd}(\hat\lambda) / \sigma",
        compute=lambda *_: sampling_moments()[1],
    ),
    _of_sampling(
        name="half_normal_anchor_correlation",
        symbol=r"\rho_{k\lambda}",
        description="correlation of the fitted shape and scale, trim 0.1",
        definition=r"\lim_{N \to \infty} \mathrm{corr}(\hat k, \hat\lambda)",
        compute=lambda *_: sampling_moments()[2],
    ),
)


def _weibull_moment(k: Number, order: int) -> Number:
    """E x^order of the Weibull law of shape k and scale 1."""
    return mp.gamma(1 + order / k)


_READ_OFF = (
    _of_fit(
        name="body_tail_gap",
        symbol=r"\Delta k",
        conditions=_of_normal("untrimmed, and trimmed by 0.1 at either end"),
        description="body-tail gap k(80 %) - k(100 %) of w ~ N(0, σ²), before any training",
        definition=rf"{_SHAPE.symbol} - {_UNTRIMMED[0].symbol}",
        method="difference of two anchors",
        compute=lambda trimmed, untrimmed: trimmed - untrimmed,
        parents=(_SHAPE, _UNTRIMMED[0]),
    ),
    _of_anchor(
        name="gamma_closure_ratio",
        symbol=r"r_\Gamma",
        description="standard deviation of the anchor's Weibull law over that of |w|, w ~ N(0, σ²)",
        definition=r"\lambda_0 \sqrt{\Gamma(1 + 2/k_0) - \Gamma^2(1 + 1/k_0)} \Big/ \sqrt{1 - 2/\pi}",
        method="from the anchor",
        compute=lambda k, scale: (
            scale * mp.sqrt((_weibull_moment(k, 2) - _weibull_moment(k, 1) ** 2) / (1 - 2 / mp.pi))
        ),
    ),
    _of_anchor(
        name="gamma_closure_ratio_root_mean_square",
        symbol=r"r_\Gamma^{\mathrm{rms}}",
        description="root mean square of the anchor's Weibull law over that of w ~ N(0, σ²)",
        definition=r"\lambda_0 \sqrt{\Gamma(1 + 2/k_0)}",
        method="from the anchor",
        compute=lambda k, scale: scale * mp.sqrt(_weibull_moment(k, 2)),
    ),
)

_POINT = Conditions(
    matrix="independent weights w of any continuous law",
    normalization="without a unit",
    sigma="any σ",
    shape="N weights",
    convention="Y = ln(−ln(1−F)) of the empirical F at probability p",
    holds="limit of large N",
)
_OPTIMUM = constant(
    name="noise_optimal_probability",
    symbol="p^*",
    description="probability at which a point of the Weibull plot is least noisy",
    definition=r"\arg\min_p \frac{p}{(1-p) \ln^2(1-p)} = 1 + \frac12 W_0(-2 e^{-2})",
    conditions=_POINT,
    method="Lambert's W function",
    references=("corless_1996", "mosteller_1946"),
    compute=lambda: 1 + mp.lambertw(-2 * mp.exp(-2)).real / 2,
)
_LEAST_VARIANCE = constant(
    name="noise_optimal_variance",
    symbol="v^*",
    description="N times the variance of Y at the least noisy point of the Weibull plot",
    definition=r"\min_p \frac{p}{(1-p) \ln^2(1-p)} = \frac{1}{4 p^* (1 - p^*)}",
    conditions=_POINT,
    method="from the noise-optimal probability",
    references=("corless_1996", "mosteller_1946"),
    compute=lambda p: 1 / (4 * p * (1 - p)),
    parents=(_OPTIMUM,),
)
_NOISE = (
    _OPTIMUM,
    _LEAST_VARIANCE,
    constant(
        name="noise_ratio_at_trim",
        symbol=r"v(0.1)/v^*",
        description="variance of Y at p = 0.1 over that at the least noisy point",
        definition=r"\frac{0.1}{0.9 \ln^2 0.9} \Big/ v^*",
        conditions=_POINT,
        method="from the noise-optimal variance",
        references=("mosteller_1946",),
        compute=lambda least: 1 / (9 * mp.log(mp.mpf(9) / 10) ** 2) / least,
        parents=(_LEAST_VARIANCE,),
    ),
)

_of_projection = partial(constant, conditions=_of_normal("untrimmed"), references=("weibull_1951",))
_LIKELIHOOD_SHAPE = _of_projection(
    name="half_normal_likelihood_shape",
    symbol=r"k_{\mathrm{ML}}",
    description="shape of the Weibull law nearest to |w|, w ~ N(0, σ²), in maximum likelihood",
    definition=r"\frac{\mathrm{E}\,|w|^k \ln |w|}{\mathrm{E}\,|w|^k} - \frac1k = \mathrm{E} \ln |w|",
    method="root of ψ((k+1)/2) + γ + 2 ln 2 = 2/k",
    compute=lambda: mp.findroot(
        lambda k: mp.psi(0, (k + 1) / 2) + mp.euler + 2 * mp.log(2) - 2 / k, (mp.mpf("1.2"), mp.mpf("1.3"))
    ),
)
_MOMENT_SHAPE = _of_projection(
    name="half_normal_moment_shape",
    symbol=r"k_{\mathrm{M}}",
    description="shape of the Weibull law with the mean and variance of |w|, w ~ N(0, σ²)",
    definition=r"\frac{\Gamma(1 + 2/k)}{\Gamma^2(1 + 1/k)} = \frac{\pi}{2}",
    method="root of the definition",
    compute=lambda: mp.findroot(
        lambda k: _weibull_moment(k, 2) / _weibull_moment(k, 1) ** 2 - mp.pi / 2, (mp.mpf("1.3"), mp.mpf("1.4"))
    ),
)
_PROJECTIONS = (
    _LIKELIHOOD_SHAPE,
    _of_projection(
        name="half_normal_likelihood_scale",
        symbol=r"\lambda_{\mathrm{ML}}",
        description="scale over σ of the Weibull law nearest to |w|, w ~ N(0, σ²), in maximum likelihood",
        definition=r"(\mathrm{E}\,|w|^{k})^{1/k} / \sigma, \quad k = k_{\mathrm{ML}}",
        method="closed form in the shape",
        compute=lambda k: (2 ** (k / 2) * mp.gamma((k + 1) / 2) / mp.sqrt(mp.pi)) ** (1 / k),
        parents=(_LIKELIHOOD_SHAPE,),
    ),
    _MOMENT_SHAPE,
    _of_projection(
        name="half_normal_moment_scale",
        symbol=r"\lambda_{\mathrm{M}}",
        description="scale over σ of the Weibull law with the mean and variance of |w|, w ~ N(0, σ²)",
        definition=r"\sqrt{2/\pi} / \Gamma(1 + 1/k_{\mathrm{M}})",
        method="closed form in the shape",
        compute=lambda k: mp.sqrt(2 / mp.pi) / _weibull_moment(k, 1),
        parents=(_MOMENT_SHAPE,),
    ),
)

CONSTANTS = (
    *_ANCHOR,
    *_anchor("half_normal", "0.05", "_trim_05"),
    *_UNTRIMMED,
    *_SAMPLING,
    *_READ_OFF,
    *_NOISE,
    *_PROJECTIONS,
    *_anchor("uniform", "0.1"),
    *_anchor("laplace", "0.1"),
    *_anchor("logistic", "0.1"),
)
