"""Constants of the Tracy–Widom laws."""

from __future__ import annotations

from typing import Any

from mpmath import mp

from rmtbase.constants._conditions import Conditions
from rmtbase.constants._constant import NUMERICAL, Constant, constant
from rmtbase.constants._painleve import tracy_widom_moments, tracy_widom_quantile

_METHOD = "Taylor series of the Hastings-McLeod solution of Painlevé II in integer arithmetic"
_LAW = {1: "tracy_widom_1996", 2: "tracy_widom_1994"}
_ENCLOSED = ("hastings_mcleod_1980", "ferrari_spohn_2005")  # sources of the proved bounds
_LEFT_TAIL = "baik_buckingham_difranco_2008"
_CONDITIONS = {
    beta: Conditions(
        matrix=f"the largest eigenvalue of {square} of a {field} Gaussian matrix X (β = {beta})",
        normalization="centred and scaled at the edge",
        sigma="any σ",
        shape="large dimensions",
        convention=f"s = (λ_max − λ_+)/δ_+ with λ: eigenvalues of {square}",
        holds="limit of large matrices",
    )
    for beta, field, square in ((1, "real", "XᵀX"), (2, "complex", "X†X"))
}


def _law(beta: int) -> tuple[Constant, ...]:
    """Moments and quantiles of TW_β."""

    def of(name: str, symbol: str, description: str, definition: str, **stated: Any) -> Constant:
        return constant(
            name=f"tracy_widom_{beta}_{name}",
            symbol=symbol,
            description=f"{description} of the Tracy-Widom law TW_{beta}",
            definition=definition,
            conditions=_CONDITIONS[beta],
            **{"method": _METHOD, "references": (_LAW[beta], "bornemann_2010", *_ENCLOSED)} | stated,
            **NUMERICAL,
        )

    def moment(place: int, kind: str, symbol: str, definition: str) -> Constant:
        return of(
            kind.replace(" ", "_"),
            symbol,
            kind,
            definition,
            references=(_LAW[beta], "bornemann_2010", "praehofer_spohn_2004", *_ENCLOSED),
            compute=lambda: tracy_widom_moments(beta)[place],
        )

    def quantile(percent: str) -> Constant:
        return of(
            f"quantile_{percent.replace('.', '_')}",
            rf"F_{beta}^{{-1}}({percent}\,\%)",
            f"{percent} % quantile",
            rf"F_{beta}(s) = {percent} / 100",
            method=f"{_METHOD}, Newton's iteration",
            compute=lambda: tracy_widom_quantile(beta, mp.mpf(percent) / 100),
        )

    law = rf"{{\mathrm{{TW}}_{beta}}}"
    about_mean, measure = rf"(s - \mu_{law})", rf"\, \mathrm{{d}}F_{beta}(s)"
    variance = moment(1, "variance", rf"\sigma^2_{law}", rf"\int {about_mean}^2 {measure}")
    return (
        moment(0, "mean", rf"\mu_{law}", rf"\int s {measure}"),
        variance,
        of(
            "std",
            rf"\sigma_{law}",
            "standard deviation",
            rf"\sqrt{{\sigma^2_{law}}}",
            method="square root of the variance",
            compute=mp.sqrt,
            parents=(variance,),
        ),
        moment(
            2, "skewness", rf"\gamma_{{1,\mathrm{{TW}}_{beta}}}", rf"\sigma_{law}^{{-3}} \int {about_mean}^3 {measure}"
        ),
        moment(
            3,
            "excess kurtosis",
            rf"\gamma_{{2,\mathrm{{TW}}_{beta}}}",
            rf"\sigma_{law}^{{-4}} \int {about_mean}^4 {measure} - 3",
        ),
        *map(quantile, ("50", "95", "99", "99.9")),
    )


_ZETA_PRIME = constant(
    name="zeta_prime_minus_one",
    symbol=r"\zeta'(-1)",
    description="derivative of Riemann's zeta function at -1",
    definition=r"\zeta'(-1) = \frac{1}{12} - \ln A, \quad A \mbox{ Glaisher's constant}",
    conditions=Conditions(holds="exact: a number of analysis, of no matrix"),
    method="mpmath's zeta function",
    references=("deift_its_krasovsky_2008", _LEFT_TAIL),
    compute=lambda: mp.zeta(-1, derivative=1),
)
CONSTANTS = (
    *_law(1),
    *_law(2),
    _ZETA_PRIME,
    constant(
        name="tracy_widom_1_left_tail",
        symbol=r"\tau_1",
        description="constant of the left tail of TW_1",
        definition=(
            r"\lim_{x \to \infty} F_1(-x) \, x^{1/16} \, e^{x^3/24 + x^{3/2}/(3\sqrt2)}"
            r" = 2^{-11/48} e^{\zeta'(-1)/2}"
        ),
        conditions=_CONDITIONS[1],
        references=(_LEFT_TAIL,),
        compute=lambda zeta: mp.mpf(2) ** (mp.mpf(-11) / 48) * mp.exp(zeta / 2),
        parents=(_ZETA_PRIME,),
    ),
    constant(
        name="tracy_widom_2_left_tail",
        symbol=r"\tau_2",
        description="constant of the left tail of TW_2",
        definition=r"\lim_{x \to \infty} F_2(-x) \, x^{1/8} \, e^{x^3/12} = 2^{1/24} e^{\zeta'(-1)}",
        conditions=_CONDITIONS[2],
        references=("deift_its_krasovsky_2008", _LEFT_TAIL),
        compute=lambda zeta: mp.mpf(2) ** (mp.mpf(1) / 24) * mp.exp(zeta),
        parents=(_ZETA_PRIME,),
    ),
)
