"""Square Gaussian matrices, d → ∞: one factor, the product of two, and the smallest singular value of one.

In units of d σ² (one factor X, eigenvalues of XᵀX) and of d σ_Q²σ_K² (W_QK at d_head = d, divided by √d) the spectrum
has the moments

    m(s) = E λ^s = Γ((L+1)s + 1) / (Γ(s+1) Γ(Ls + 2)),   s > -1/(L+1),

L = 1 (Catalan; Marchenko & Pastur 1967) and L = 2 (Fuss-Catalan; Penson & Życzkowski 2011). All constants of the bulk
follow from m.

At the hard edge, for an n×n matrix with standard normal entries, t = √n s_min has the limiting law
P(t > x) = exp(-x - x²/2), and κ = s_max/s_min is 2n/t since s_max ~ 2√n (Edelman 1988).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from mpmath import mp

from rmtbase.constants._conditions import Conditions
from rmtbase.constants._constant import NUMERICAL, Constant, constant
from rmtbase.constants._digits import Number

_MOMENT = r"m_s = \frac{{\Gamma({0}s+1)}}{{\Gamma(s+1)\,\Gamma({1}s+2)}}"
_LAWS = {
    1: ("square_factor", "one square Gaussian factor", "marchenko_pastur_1967", "X"),
    2: ("square_product", "W_QK at d_head = d_model", "penson_zyczkowski_2011", "P"),
}

_CONDITIONS = {
    1: Conditions(
        matrix="one d×d matrix X of independent normal entries",
        normalization="in units of √d σ",
        sigma="any σ",
        shape="square",
        convention="λ: eigenvalues of XᵀX, s: singular values of X",
        holds="limit of large d",
    ),
    2: Conditions(
        matrix="W_QK = W_QᵀW_K of independent normal entries",
        normalization="divided by √d and in units of √d σ_Q σ_K",
        sigma="any σ_Q, σ_K",
        shape="d_head = d_model = d",
        convention="λ: eigenvalues of W_QKᵀW_QK, s: singular values of W_QK",
        holds="limit of large d",
    ),
}


def _fuss_catalan(factors: int, s: Number | int) -> Number:
    """Moment m(s) of the product of ``factors`` square factors."""
    return mp.gamma((factors + 1) * s + 1) / (mp.gamma(s + 1) * mp.gamma(factors * s + 2))


def _log_slope(factors: int, s: Number | int) -> Number:
    """(ln m)'(s): E[λ^s ln λ] / E[λ^s]."""
    steps = factors + 1
    return steps * mp.psi(0, steps * s + 1) - mp.psi(0, s + 1) - factors * mp.psi(0, factors * s + 2)


def _bulk(factors: int) -> tuple[Constant, ...]:
    prefix, what, source, index = _LAWS[factors]
    steps = factors + 1
    moment = _MOMENT.format(steps, factors if factors > 1 else "")

    def of(
        name: str,
        symbol: str,
        description: str,
        definition: str,
        references: tuple[str, ...] = (source,),
        **stated: Any,
    ) -> Constant:
        return constant(
            name=f"{prefix}_{name}",
            symbol=symbol,
            description=f"{description} of {what}",
            definition=definition,
            conditions=_CONDITIONS[factors],
            references=references,
            **stated,
        )

    upper_edge = of(
        "upper_edge",
        rf"\lambda_+^{{{index}}}",
        "largest squared singular value",
        rf"\lim_{{k \to \infty}} m_k^{{1/k}} = {steps}^{{{steps}}}" + (r" / 2^2" if factors == 2 else ""),
        compute=lambda: mp.mpf(steps**steps) / factors**factors,
    )
    upper_singular_edge = of(
        "upper_singular_edge",
        rf"s_+^{{{index}}}",
        "largest singular value",
        rf"\sqrt{{\lambda_+^{{{index}}}}}",
        method="square root of the eigenvalue",
        compute=mp.sqrt,
        parents=(upper_edge,),
    )
    moments = [
        of(
            f"moment_{k}",
            rf"m_{k}^{{{index}}}",
            f"mean of λ{'²³⁴'[k - 2]}",
            rf"\frac{{1}}{{{factors * k + 1}}} {{{steps * k} \choose {k}}}",
            compute=partial(_fuss_catalan, factors, k),
        )
        for k in (2, 3, 4)
    ]
    entropy_singular = of(
        "entropy_deficit_singular",
        rf"\Delta S_s^{{{index}}}",
        "spectral entropy deficit, ln d minus the entropy, of the singular values",
        rf"\frac12 (\ln m)'(1/2) - \ln m_{{1/2}}, \quad {moment}",
        references=(source, "roy_vetterli_2007"),
        compute=lambda: _log_slope(factors, mp.mpf(1) / 2) / 2 - mp.log(_fuss_catalan(factors, mp.mpf(1) / 2)),
    )
    return (
        upper_edge,
        upper_singular_edge,
        *moments,
        of(
            "normalized_participation_ratio",
            rf"\mathrm{{NPR}}_\lambda^{{{index}}}",
            "normalized participation ratio of the squared singular values",
            rf"m_1^2 / m_2 = 1 / m_2^{{{index}}}",
            method="from the second moment",
            compute=lambda m2: 1 / m2,
            parents=(moments[0],),
        ),
        of(
            "normalized_participation_ratio_singular",
            rf"\mathrm{{NPR}}_s^{{{index}}}",
            "normalized participation ratio of the singular values",
            rf"m_{{1/2}}^2 / m_1, \quad {moment}",
            compute=lambda: _fuss_catalan(factors, mp.mpf(1) / 2) ** 2,
        ),
        of(
            "entropy_deficit",
            rf"\Delta S_\lambda^{{{index}}}",
            "spectral entropy deficit, ln d minus the entropy, of the squared singular values",
            rf"\frac{{\mathrm{{E}}\,\lambda \ln \lambda}}{{m_1}} - \ln m_1 = (\ln m)'(1), \quad {moment}",
            references=(source, "page_1993"),
            compute=partial(_log_slope, factors, 1),
        ),
        entropy_singular,
        of(
            "effective_rank_fraction",
            rf"\mathrm{{erank}}^{{{index}}}/d",
            "effective rank over d",
            rf"\exp(-\Delta S_s^{{{index}}})",
            method="from the entropy deficit of the singular values",
            references=("roy_vetterli_2007", source),
            compute=lambda deficit: mp.exp(-deficit),
            parents=(entropy_singular,),
        ),
        of(
            "stable_rank_fraction",
            rf"\mathrm{{srank}}^{{{index}}}/d",
            "stable rank over d",
            rf"m_1 / \lambda_+^{{{index}}}",
            method="from the upper edge",
            references=("rudelson_vershynin_2007", source),
            compute=lambda edge: 1 / edge,
            parents=(upper_edge,),
        ),
        of(
            "log_determinant",
            rf"\ell^{{{index}}}",
            "mean of ln λ, the log-determinant per dimension",
            rf"\mathrm{{E}} \ln \lambda = (\ln m)'(0), \quad {moment}",
            references=(source, "muirhead_1982"),
            compute=partial(_log_slope, factors, 0),
        ),
        of(
            "spike_threshold",
            rf"\theta_c^{{{index}}}",
            "strength at which a planted rank-one spike leaves the bulk",
            rf"\sqrt{{\lambda_+^{{{index}}}}} / (1 + \psi_+), \quad \psi_+ = {'1' if factors == 1 else '1/2'}",
            references=("benaych_georges_nadakuditi_2012",),
            compute=lambda edge: edge * factors / steps,
            parents=(upper_singular_edge,),
        ),
    )


BULK = (*_bulk(1), *_bulk(2))


def _mean_log() -> Number:
    """E ln t by tanh-sinh quadrature; the tail beyond the last end is below the working precision."""
    end = mp.sqrt(5 * mp.dps)
    return mp.quad(lambda x: mp.log(x) * (1 + x) * mp.exp(-x - x * x / 2), [0, 1, 3, end])


_TAIL = r"\mathrm{P}(\sqrt{n}\, s_{\min} > x) \to e^{-x - x^2/2}"
_OF_ONE = Conditions(
    matrix="one n×n matrix of independent normal entries",
    normalization="in units of σ",
    sigma="any σ",
    shape="square",
    convention="s: singular values, λ = s², κ = s_max/s_min",
    holds="limit of large n",
)
_edelman = partial(constant, conditions=_OF_ONE, references=("edelman_1988",))
_MEAN = _edelman(
    name="square_smallest_singular_value_mean",
    symbol=r"\mu_{s_{\min}}",
    description="mean of √n s_min of a square Gaussian matrix",
    definition=rf"\sqrt{{\pi e / 2}} \, \mathrm{{erfc}}(1/\sqrt2), \quad {_TAIL}",
    compute=lambda: mp.sqrt(mp.pi * mp.e / 2) * mp.erfc(1 / mp.sqrt(2)),
)
HARD_EDGE = (
    _MEAN,
    _edelman(
        name="square_smallest_singular_value_median",
        symbol=r"m_{s_{\min}}",
        description="median of √n s_min of a square Gaussian matrix",
        definition=rf"\sqrt{{1 + 2 \ln 2}} - 1, \quad {_TAIL}",
        compute=lambda: mp.sqrt(1 + 2 * mp.log(2)) - 1,
    ),
    _edelman(
        name="square_smallest_eigenvalue_mean",
        symbol=r"\mu_{\lambda_{\min}}",
        description="mean of n λ_min = n s_min² of a square Gaussian matrix",
        definition=r"2 (1 - \mu_{s_{\min}})",
        method="from the mean of √n s_min",
        compute=lambda mean: 2 * (1 - mean),
        parents=(_MEAN,),
    ),
    _edelman(
        name="square_log_condition_number",
        symbol=r"c_{\mathrm{R}}",
        description="limit of E ln κ - ln n, κ = s_max/s_min, of a real square Gaussian matrix",
        definition=r"\ln 2 - \int_0^\infty \ln x \,(1 + x)\, e^{-x - x^2/2} \, \mathrm{d}x",
        method="tanh-sinh quadrature",
        compute=lambda: mp.log(2) - _mean_log(),
        **NUMERICAL,
    ),
    _edelman(
        name="square_log_condition_number_complex",
        symbol=r"c_{\mathrm{C}}",
        description="limit of E ln κ - ln n, κ = s_max/s_min, of a complex square Gaussian matrix",
        conditions=replace(_OF_ONE, matrix="one n×n matrix of independent complex normal entries"),
        definition=r"\ln 2 + \gamma_{\mathrm{E}} / 2",
        compute=lambda: mp.log(2) + mp.euler / 2,
    ),
)
