"""Constants of the Weibull fit of weights that have learned nothing: the anchors, and what is read off them.

The anchor regresses Y = ln(-ln(1 - F)) on X = ln x(F), x(F) the quantile function of |w|, over F uniform on [t, 1 - t].
"""

from __future__ import annotations

from mpmath import mp

from rmtbase.constants._constant import Constant
from rmtbase.constants._digits import Number
from rmtbase.constants._published import PUBLISHED_DIGITS, published
from rmtbase.constants._weibull_sampling import sampling_moments

_NUMERICAL = {"uncertainty": "numerical: relative error below 1e-100", "most_digits": PUBLISHED_DIGITS}
_REFERENCES = ("weibull_1951", "ding_2026")
_LAWS = {
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


def _anchor(law: str, trim: str, suffix: str = "") -> tuple[Constant, ...]:
    """Shape, scale and R² of one anchor."""
    distribution, what = _LAWS[law]
    index = rf"{{\text{{{law.replace('_', '-')}}}, {trim}}}"

    def entry(field: str) -> Constant:
        symbol, formula, words = _FIELDS[field]

        def compute() -> Number:
            from rmtbase.laws import weibull_anchor

            return mp.mpf(getattr(weibull_anchor(float(trim), distribution, digits=mp.dps).decimals, field))

        return published(
            name=f"{law}_anchor{suffix}_{field}",
            symbol=f"{symbol}_{index}",
            description=f"{words} of the Weibull anchor of {what}, trim {trim}",
            definition=rf"{formula}, \quad {_FIT}{trim}",
            method="double exponential quadrature",
            references=_REFERENCES,
            compute=compute,
            **_NUMERICAL,
        )

    return tuple(entry(field) for field in _FIELDS)


ANCHOR = _anchor("half_normal", "0.1")
UNTRIMMED = _anchor("half_normal", "0", "_untrimmed")
_SHAPE, _SCALE, _ = ANCHOR

GAP = published(
    name="body_tail_gap",
    symbol=r"\Delta k",
    description="body-tail gap k(80 %) - k(100 %) of w ~ N(0, σ²), before any training",
    definition=rf"{_SHAPE.symbol} - {UNTRIMMED[0].symbol}",
    method="difference of two anchors",
    references=_REFERENCES,
    compute=lambda: _SHAPE.compute() - UNTRIMMED[0].compute(),
    parents=(_SHAPE.name, UNTRIMMED[0].name),
    **_NUMERICAL,
)


def _weibull_moment(k: Number, order: int) -> Number:
    """E x^order of the Weibull law of shape k and scale 1."""
    return mp.gamma(1 + order / k)


def _closure_ratio() -> Number:
    k, scale = _SHAPE.compute(), _SCALE.compute()
    return scale * mp.sqrt((_weibull_moment(k, 2) - _weibull_moment(k, 1) ** 2) / (1 - 2 / mp.pi))


CLOSURES = (
    published(
        name="gamma_closure_ratio",
        symbol=r"r_\Gamma",
        description="standard deviation of the anchor's Weibull law over that of |w|, w ~ N(0, σ²)",
        definition=r"\lambda_0 \sqrt{\Gamma(1 + 2/k_0) - \Gamma^2(1 + 1/k_0)} \Big/ \sqrt{1 - 2/\pi}",
        method="from the anchor",
        references=_REFERENCES,
        compute=_closure_ratio,
        parents=(_SHAPE.name, _SCALE.name),
        **_NUMERICAL,
    ),
    published(
        name="gamma_closure_ratio_root_mean_square",
        symbol=r"r_\Gamma^{\mathrm{rms}}",
        description="root mean square of the anchor's Weibull law over that of w ~ N(0, σ²)",
        definition=r"\lambda_0 \sqrt{\Gamma(1 + 2/k_0)}",
        method="from the anchor",
        references=_REFERENCES,
        compute=lambda: _SCALE.compute() * mp.sqrt(_weibull_moment(_SHAPE.compute(), 2)),
        parents=(_SHAPE.name, _SCALE.name),
        **_NUMERICAL,
    ),
)


def _sampling(name: str, symbol: str, description: str, definition: str, place: int) -> Constant:
    return published(
        name=f"half_normal_anchor_{name}",
        symbol=symbol,
        description=description,
        definition=definition,
        method="influence functions, Chebyshev series",
        references=_REFERENCES,
        compute=lambda: sampling_moments()[place],
        parents=(_SHAPE.name, _SCALE.name),
        **_NUMERICAL,
    )


SAMPLING = (
    _sampling(
        "shape_std",
        r"\sigma_k",
        "√N times the standard deviation of the fitted shape of N weights, trim 0.1",
        r"\lim_{N \to \infty} \sqrt{N}\, \mathrm{sd}(\hat k)",
        0,
    ),
    _sampling(
        "scale_std",
        r"\sigma_\lambda",
        "√N times the standard deviation of the fitted scale over σ of N weights, trim 0.1",
        r"\lim_{N \to \infty} \sqrt{N}\, \mathrm{sd}(\hat\lambda) / \sigma",
        1,
    ),
    _sampling(
        "correlation",
        r"\rho_{k\lambda}",
        "correlation of the fitted shape and scale, trim 0.1",
        r"\lim_{N \to \infty} \mathrm{corr}(\hat k, \hat\lambda)",
        2,
    ),
)

NOISE_OPTIMUM = published(
    name="noise_optimal_probability",
    symbol="p^*",
    description="probability at which a point of the Weibull plot is least noisy",
    definition=r"\arg\min_p \frac{p}{(1-p) \ln^2(1-p)} = 1 + \tfrac12 W_0(-2 e^{-2})",
    method="Lambert's W function",
    references=("corless_1996", "mosteller_1946"),
    compute=lambda: 1 + mp.lambertw(-2 * mp.exp(-2)).real / 2,
)
NOISE_MINIMUM = published(
    name="noise_optimal_variance",
    symbol="v^*",
    description="N times the variance of Y at the least noisy point of the Weibull plot",
    definition=r"\min_p \frac{p}{(1-p) \ln^2(1-p)} = \frac{1}{4 p^* (1 - p^*)}",
    method="from the noise-optimal probability",
    references=("corless_1996", "mosteller_1946"),
    compute=lambda: 1 / (4 * NOISE_OPTIMUM.compute() * (1 - NOISE_OPTIMUM.compute())),
    parents=(NOISE_OPTIMUM.name,),
)
NOISE = (
    NOISE_OPTIMUM,
    NOISE_MINIMUM,
    published(
        name="noise_ratio_at_trim",
        symbol=r"v(0.1)/v^*",
        description="variance of Y at p = 0.1 over that at the least noisy point",
        definition=r"\frac{0.1}{0.9 \ln^2 0.9} \Big/ v^*",
        method="from the noise-optimal variance",
        references=("mosteller_1946",),
        compute=lambda: 1 / (9 * mp.log(mp.mpf(9) / 10) ** 2) / NOISE_MINIMUM.compute(),
        parents=(NOISE_MINIMUM.name,),
    ),
)

LIKELIHOOD_SHAPE = published(
    name="half_normal_likelihood_shape",
    symbol=r"k_{\mathrm{ML}}",
    description="shape of the Weibull law nearest to |w|, w ~ N(0, σ²), in maximum likelihood",
    definition=r"\frac{\mathrm{E}\,|w|^k \ln |w|}{\mathrm{E}\,|w|^k} - \frac1k = \mathrm{E} \ln |w|",
    method="root of ψ((k+1)/2) + γ + 2 ln 2 = 2/k",
    references=("weibull_1951",),
    compute=lambda: mp.findroot(
        lambda k: mp.psi(0, (k + 1) / 2) + mp.euler + 2 * mp.log(2) - 2 / k, (mp.mpf("1.2"), mp.mpf("1.3"))
    ),
)
MOMENT_SHAPE = published(
    name="half_normal_moment_shape",
    symbol=r"k_{\mathrm{M}}",
    description="shape of the Weibull law with the mean and variance of |w|, w ~ N(0, σ²)",
    definition=r"\frac{\Gamma(1 + 2/k)}{\Gamma^2(1 + 1/k)} = \frac{\pi}{2}",
    method="root of the definition",
    references=("weibull_1951",),
    compute=lambda: mp.findroot(
        lambda k: _weibull_moment(k, 2) / _weibull_moment(k, 1) ** 2 - mp.pi / 2, (mp.mpf("1.3"), mp.mpf("1.4"))
    ),
)


def _likelihood_scale() -> Number:
    k = LIKELIHOOD_SHAPE.compute()
    return (2 ** (k / 2) * mp.gamma((k + 1) / 2) / mp.sqrt(mp.pi)) ** (1 / k)


PROJECTIONS = (
    LIKELIHOOD_SHAPE,
    published(
        name="half_normal_likelihood_scale",
        symbol=r"\lambda_{\mathrm{ML}}",
        description="its scale over σ",
        definition=r"(\mathrm{E}\,|w|^{k})^{1/k} / \sigma, \quad k = k_{\mathrm{ML}}",
        method="closed form in the shape",
        references=("weibull_1951",),
        compute=_likelihood_scale,
        parents=(LIKELIHOOD_SHAPE.name,),
    ),
    MOMENT_SHAPE,
    published(
        name="half_normal_moment_scale",
        symbol=r"\lambda_{\mathrm{M}}",
        description="its scale over σ",
        definition=r"\sqrt{2/\pi} / \Gamma(1 + 1/k_{\mathrm{M}})",
        method="closed form in the shape",
        references=("weibull_1951",),
        compute=lambda: mp.sqrt(2 / mp.pi) / _weibull_moment(MOMENT_SHAPE.compute(), 1),
        parents=(MOMENT_SHAPE.name,),
    ),
)

CONSTANTS = (
    *ANCHOR,
    *_anchor("half_normal", "0.05", "_trim_05"),
    *UNTRIMMED,
    *SAMPLING,
    GAP,
    *CLOSURES,
    *NOISE,
    *PROJECTIONS,
    *_anchor("uniform", "0.1"),
    *_anchor("laplace", "0.1"),
    *_anchor("logistic", "0.1"),
)
