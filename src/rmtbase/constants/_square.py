"""Limits for square shapes, d_head = d_model = d → ∞: one Gaussian factor, and the product of two.

In units of d σ² (one factor X, eigenvalues of XᵀX) and of d σ_Q²σ_K² (W_QK divided by √d) the law has the moments

    m(s) = E λ^s = Γ((L+1)s + 1) / (Γ(s+1) Γ(Ls + 2)),   s > -1/(L+1),

L = 1 (Catalan; Marchenko & Pastur 1967) and L = 2 (Fuss-Catalan; Penson & Życzkowski 2011). All follows from m.
"""

from __future__ import annotations

from mpmath import mp

from rmtbase.constants._constant import Constant
from rmtbase.constants._digits import Number
from rmtbase.constants._published import published

_MOMENT = r"m_s = \frac{{\Gamma({0}s+1)}}{{\Gamma(s+1)\,\Gamma({1}s+2)}}"
_LAWS = {
    1: ("square_factor", "one square Gaussian factor", "marchenko_pastur_1967", "X"),
    2: ("square_product", "W_QK at d_head = d_model", "penson_zyczkowski_2011", "P"),
}


def fuss_catalan(factors: int, s: Number | int) -> Number:
    """The moment m(s) of the product of ``factors`` square factors."""
    return mp.gamma((factors + 1) * s + 1) / (mp.gamma(s + 1) * mp.gamma(factors * s + 2))


def log_slope(factors: int, s: Number | int) -> Number:
    """(ln m)'(s): E[λ^s ln λ] / E[λ^s]."""
    steps = factors + 1
    return steps * mp.psi(0, steps * s + 1) - mp.psi(0, s + 1) - factors * mp.psi(0, factors * s + 2)


def _half() -> Number:
    return mp.mpf(1) / 2


def _law(factors: int) -> tuple[Constant, ...]:
    prefix, what, source, index = _LAWS[factors]
    steps = factors + 1
    moment = _MOMENT.format(steps, factors if factors > 1 else "")

    upper_edge = published(
        name=f"{prefix}_upper_edge",
        symbol=rf"\lambda_+^{{{index}}}",
        description=f"largest eigenvalue, {what}",
        definition=rf"\lim_{{k \to \infty}} m_k^{{1/k}} = {steps}^{{{steps}}}" + (r" / 2^2" if factors == 2 else ""),
        method="closed form",
        references=(source,),
        compute=lambda: mp.mpf(steps**steps) / factors**factors,
    )
    upper_singular_edge = published(
        name=f"{prefix}_upper_singular_edge",
        symbol=rf"s_+^{{{index}}}",
        description=f"largest singular value, {what}",
        definition=rf"\sqrt{{\lambda_+^{{{index}}}}}",
        method="square root of the eigenvalue",
        references=(source,),
        compute=lambda: mp.sqrt(upper_edge.compute()),
        parents=(upper_edge.name,),
    )
    moments = tuple(
        published(
            name=f"{prefix}_moment_{k}",
            symbol=rf"m_{k}^{{{index}}}",
            description=f"mean of λ^{k}, {what}",
            definition=rf"\tfrac{{1}}{{{factors * k + 1}}} \tbinom{{{steps * k}}}{{{k}}}",
            method="closed form",
            references=(source,),
            compute=lambda k=k: fuss_catalan(factors, k),
        )
        for k in (2, 3, 4)
    )
    ratio = published(
        name=f"{prefix}_normalized_participation_ratio",
        symbol=rf"\mathrm{{NPR}}_\lambda^{{{index}}}",
        description=f"normalized participation ratio of the eigenvalues, {what}",
        definition=rf"m_1^2 / m_2 = 1 / m_2^{{{index}}}",
        method="from the second moment",
        references=(source,),
        compute=lambda: 1 / moments[0].compute(),
        parents=(moments[0].name,),
    )
    ratio_singular = published(
        name=f"{prefix}_normalized_participation_ratio_singular",
        symbol=rf"\mathrm{{NPR}}_s^{{{index}}}",
        description=f"normalized participation ratio of the singular values, {what}",
        definition=rf"m_{{1/2}}^2 / m_1, \quad {moment}",
        method="closed form",
        references=(source,),
        compute=lambda: fuss_catalan(factors, _half()) ** 2,
    )
    entropy = published(
        name=f"{prefix}_entropy_deficit",
        symbol=rf"\Delta S_\lambda^{{{index}}}",
        description=f"ln d minus the spectral entropy of the eigenvalues, {what}",
        definition=rf"\frac{{\mathrm{{E}}\,\lambda \ln \lambda}}{{m_1}} - \ln m_1 = (\ln m)'(1), \quad {moment}",
        method="closed form",
        references=(source, "page_1993"),
        compute=lambda: log_slope(factors, 1),
    )
    entropy_singular = published(
        name=f"{prefix}_entropy_deficit_singular",
        symbol=rf"\Delta S_s^{{{index}}}",
        description=f"ln d minus the spectral entropy of the singular values, {what}",
        definition=rf"\tfrac12 (\ln m)'(\tfrac12) - \ln m_{{1/2}}, \quad {moment}",
        method="closed form",
        references=(source, "roy_vetterli_2007"),
        compute=lambda: log_slope(factors, _half()) / 2 - mp.log(fuss_catalan(factors, _half())),
    )
    effective_rank = published(
        name=f"{prefix}_effective_rank_fraction",
        symbol=rf"\mathrm{{erank}}^{{{index}}}/d",
        description=f"effective rank over d, {what}",
        definition=rf"\exp(-\Delta S_s^{{{index}}})",
        method="from the entropy deficit of the singular values",
        references=("roy_vetterli_2007", source),
        compute=lambda: mp.exp(-entropy_singular.compute()),
        parents=(entropy_singular.name,),
    )
    stable_rank = published(
        name=f"{prefix}_stable_rank_fraction",
        symbol=rf"\mathrm{{srank}}^{{{index}}}/d",
        description=f"stable rank over d, {what}",
        definition=rf"m_1 / \lambda_+^{{{index}}}",
        method="from the upper edge",
        references=("rudelson_vershynin_2007", source),
        compute=lambda: 1 / upper_edge.compute(),
        parents=(upper_edge.name,),
    )
    log_determinant = published(
        name=f"{prefix}_log_determinant",
        symbol=rf"\ell^{{{index}}}",
        description=f"mean of ln λ, the log-determinant per dimension, {what}",
        definition=rf"\mathrm{{E}} \ln \lambda = (\ln m)'(0), \quad {moment}",
        method="closed form",
        references=(source, "muirhead_1982"),
        compute=lambda: log_slope(factors, 0),
    )
    spike = published(
        name=f"{prefix}_spike_threshold",
        symbol=rf"\theta_c^{{{index}}}",
        description=f"strength at which a planted rank-one spike leaves the bulk, {what}",
        definition=rf"\sqrt{{\lambda_+^{{{index}}}}} / (1 + \psi_+), \quad \psi_+ = {'1' if factors == 1 else '1/2'}",
        method="closed form",
        references=("benaych_georges_nadakuditi_2012",),
        compute=lambda: upper_singular_edge.compute() * factors / steps,
        parents=(upper_singular_edge.name,),
    )
    return (
        upper_edge, upper_singular_edge, *moments, ratio, ratio_singular, entropy, entropy_singular, effective_rank,
        stable_rank, log_determinant, spike,
    )  # fmt: skip


CONSTANTS = (*_law(1), *_law(2))
