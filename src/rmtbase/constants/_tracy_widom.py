"""Constants of the Tracy–Widom laws."""

from __future__ import annotations

from mpmath import mp

from rmtbase.constants._constant import Constant
from rmtbase.constants._painleve import tracy_widom_moments, tracy_widom_quantile
from rmtbase.constants._published import PUBLISHED_DIGITS, published

_NUMERICAL = {"uncertainty": "numerical: relative error below 1e-100", "most_digits": PUBLISHED_DIGITS}
_METHOD = "Taylor series of the Hastings-McLeod solution of Painlevé II in integer arithmetic"
_LAW = {1: "tracy_widom_1996", 2: "tracy_widom_1994"}
_MOMENTS = (
    ("mean", r"\mu_{{\mathrm{{TW}}_{0}}}", r"\int s \, \mathrm{{d}}F_{0}(s)"),
    ("variance", r"\sigma^2_{{\mathrm{{TW}}_{0}}}", r"\int (s - \mu_{{\mathrm{{TW}}_{0}}})^2 \, \mathrm{{d}}F_{0}(s)"),
    (
        "skewness",
        r"\gamma_{{1,\mathrm{{TW}}_{0}}}",
        r"\sigma_{{\mathrm{{TW}}_{0}}}^{{-3}} \int (s - \mu_{{\mathrm{{TW}}_{0}}})^3 \, \mathrm{{d}}F_{0}(s)",
    ),
    (
        "excess kurtosis",
        r"\gamma_{{2,\mathrm{{TW}}_{0}}}",
        r"\sigma_{{\mathrm{{TW}}_{0}}}^{{-4}} \int (s - \mu_{{\mathrm{{TW}}_{0}}})^4 \, \mathrm{{d}}F_{0}(s) - 3",
    ),
)


def _moment(beta: int, place: int) -> Constant:
    kind, symbol, definition = _MOMENTS[place]
    return published(
        name=f"tracy_widom_{beta}_{kind.replace(' ', '_')}",
        symbol=symbol.format(beta),
        description=f"{kind} of the Tracy-Widom law TW_{beta}",
        definition=definition.format(beta),
        method=_METHOD,
        references=(_LAW[beta], "bornemann_2010", "praehofer_spohn_2004"),
        compute=lambda: tracy_widom_moments(beta)[place],
        **_NUMERICAL,
    )


def _std(variance: Constant, beta: int) -> Constant:
    return published(
        name=f"tracy_widom_{beta}_std",
        symbol=rf"\sigma_{{\mathrm{{TW}}_{beta}}}",
        description=f"standard deviation of the Tracy-Widom law TW_{beta}",
        definition=rf"\sqrt{{\sigma^2_{{\mathrm{{TW}}_{beta}}}}}",
        method="square root of the variance",
        references=(_LAW[beta], "bornemann_2010"),
        compute=lambda: mp.sqrt(variance.compute()),
        parents=(variance.name,),
        **_NUMERICAL,
    )


def _quantile(beta: int, percent: str) -> Constant:
    return published(
        name=f"tracy_widom_{beta}_quantile_{percent.replace('.', '_')}",
        symbol=rf"F_{beta}^{{-1}}({percent}\,\%)",
        description=f"{percent} % quantile of the Tracy-Widom law TW_{beta}",
        definition=rf"F_{beta}(s) = {percent} / 100",
        method=f"{_METHOD}, Newton's iteration",
        references=(_LAW[beta], "bornemann_2010"),
        compute=lambda: tracy_widom_quantile(beta, mp.mpf(percent) / 100),
        **_NUMERICAL,
    )


def _law(beta: int) -> tuple[Constant, ...]:
    mean, variance, skewness, kurtosis = (_moment(beta, place) for place in range(4))
    quantiles = (_quantile(beta, percent) for percent in ("50", "95", "99", "99.9"))
    return mean, variance, _std(variance, beta), skewness, kurtosis, *quantiles


ZETA_PRIME = published(
    name="zeta_prime_minus_one",
    symbol=r"\zeta'(-1)",
    description="derivative of Riemann's zeta function at -1",
    definition=r"\zeta'(-1) = \tfrac{1}{12} - \ln A, \quad A \text{ Glaisher's constant}",
    method="mpmath's zeta function",
    references=("deift_its_krasovsky_2008", "baik_buckingham_difranco_2008"),
    compute=lambda: mp.zeta(-1, derivative=1),
)
_LEFT_TAIL = "baik_buckingham_difranco_2008"
LEFT_TAILS = (
    published(
        name="tracy_widom_1_left_tail",
        symbol=r"\tau_1",
        description="constant of the left tail of TW_1",
        definition=(
            r"\lim_{x \to \infty} F_1(-x) \, x^{1/16} \, e^{x^3/24 + x^{3/2}/(3\sqrt2)}"
            r" = 2^{-11/48} e^{\zeta'(-1)/2}"
        ),
        method="closed form",
        references=(_LEFT_TAIL,),
        compute=lambda: mp.mpf(2) ** (mp.mpf(-11) / 48) * mp.exp(ZETA_PRIME.compute() / 2),
        parents=(ZETA_PRIME.name,),
    ),
    published(
        name="tracy_widom_2_left_tail",
        symbol=r"\tau_2",
        description="constant of the left tail of TW_2",
        definition=r"\lim_{x \to \infty} F_2(-x) \, x^{1/8} \, e^{x^3/12} = 2^{1/24} e^{\zeta'(-1)}",
        method="closed form",
        references=("deift_its_krasovsky_2008", _LEFT_TAIL),
        compute=lambda: mp.mpf(2) ** (mp.mpf(1) / 24) * mp.exp(ZETA_PRIME.compute()),
        parents=(ZETA_PRIME.name,),
    ),
)
TRACY_WIDOM_1, TRACY_WIDOM_2 = _law(1), _law(2)
CONSTANTS = (*TRACY_WIDOM_1, *TRACY_WIDOM_2, ZETA_PRIME, *LEFT_TAILS)
