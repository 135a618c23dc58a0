"""Functions of (d_model, d_head): the null of W_QK = W_QᵀW_K, computed at σ = 1 and divided by √d_model.

With d = d_model, h = d_head and γ = h/d, the limiting law of the eigenvalues is given by

    F(ψ) = d (1 + ψ) (1 + γψ)² / ψ = λ,   F' = 0 at ψ_± = (-1 ± √(1 + 8/γ)) / 4

(Burda, Jarosz, Livan, Nowak & Swiech 2010). For other σ, and for the raw W_QK, the eigenvalues are multiplied by g²,
with g = σ_Q σ_K, times √d for the raw product.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

from mpmath import mp

from rmtbase.constants._conditions import Conditions
from rmtbase.constants._constant import GAIN, ConstantFunction, power
from rmtbase.constants._digits import Number
from rmtbase.errors import ParameterError

_DOUBLE_DIGITS = 15
EDGE_DIGITS = 12
LAW = ("burda_2010_rectangular", "dupic_perez_castillo_2014")
FLUCTUATIONS = ("johnstone_2001", "ma_2012", "tracy_widom_1996")
_EDGES = (
    r"F(\psi) = g^2 d\,\frac{(1+\psi)(1+\gamma\psi)^2}{\psi}, \quad"
    r" \psi_\pm = \frac14\bigl(-1 \pm \sqrt{1 + 8/\gamma}\bigr), \quad " + GAIN
)
LIMIT = "exact for the limiting law"


def _conditions(convention: str, holds: str) -> Conditions:
    return Conditions(
        matrix="W_QK = W_QᵀW_K of independent normal entries",
        normalization="divided by √d_model",
        sigma="σ_Q = σ_K = 1",
        shape="any d_model and d_head",
        convention=convention,
        holds=holds,
    )


def _without_scale(convention: str, holds: str) -> Conditions:
    return replace(_conditions(convention, holds), normalization="at any normalization", sigma="any σ_Q, σ_K")


_EIGENVALUES = "λ: eigenvalues of W_QKᵀW_QK, the d_head that are not zero"
_SINGULAR_VALUES = "s: singular values of W_QK, the d_head that are not zero"
_LARGE = "limit of large matrices at this d_head/d_model"
_HERE = "exact at this size"


def _critical_point(d: int, h: int, side: int) -> Number:
    """ψ_±."""
    return (-1 + side * mp.sqrt(1 + mp.mpf(8 * d) / h)) / 4


def _edge(d: int, h: int, side: int) -> Number:
    """λ_±."""
    if side < 0 and d == h:
        return mp.mpf(0)
    psi, gamma = _critical_point(d, h, side), mp.mpf(h) / d
    return d * (1 + psi) * (1 + gamma * psi) ** 2 / psi


def _edge_scale(d: int, h: int, side: int) -> Number:
    """δ_± = (λ_± √(|F''(ψ_±)|/2) / h)^(2/3)."""
    _require_soft_edge(d, h, side)
    psi, gamma, edge = _critical_point(d, h, side), mp.mpf(h) / d, _edge(d, h, side)
    curvature = edge * (psi**-2 - (1 + psi) ** -2 - 2 * (gamma / (1 + gamma * psi)) ** 2)
    return (edge * mp.sqrt(abs(curvature) / 2) / h) ** (mp.mpf(2) / 3)


def _require_soft_edge(d: int, h: int, side: int) -> None:
    if side < 0 and d == h:
        raise ParameterError("d_head", h, f"less than d_model = {d}: there the lower edge is hard, not Tracy-Widom's")


def _extreme_eigenvalue(d: int, h: int, side: int):
    from rmtbase.laws import largest_eigenvalue, smallest_eigenvalue

    return (largest_eigenvalue if side > 0 else smallest_eigenvalue)(dims=(d, h, d), normalization="sqrt_d")


def _neglected(d: int, h: int, side: int) -> float:
    """Neglected terms in standard deviations of the extreme eigenvalue; near h = d a soft lower edge turns hard."""
    return 1 / (h if side > 0 or d - h < 16 else min(h, d - h))


def _mean_error(d: int, h: int, side: int) -> float:
    law = _extreme_eigenvalue(d, h, side)
    return law.std() / law.mean() * _neglected(d, h, side)


def _sides(side: int) -> tuple[ConstantFunction, ...]:
    """Edge, singular edge, Tracy–Widom scale, and mean and standard deviation of the extreme eigenvalue."""
    which, extreme, sign, index, neglected = (
        ("upper", "largest", "+", r"\max", "1/d_head")
        if side > 0
        else (
            "lower",
            "smallest",
            "-",
            r"\min",
            "1/min(d_head, d_model - d_head), or 1/d_head where they differ by < 16,",
        )
    )
    edge = partial(
        ConstantFunction,
        method="closed form",
        references=LAW,
        conditions=_conditions(_EIGENVALUES, _LARGE),
        rescaled=power(2),
        uncertainty=f"{LIMIT}; one draw's fluctuates about it by the Tracy-Widom scale",
    )
    eigenvalue = partial(
        ConstantFunction,
        method=f"rmtbase.laws.{extreme}_eigenvalue, to second order at the edge",
        references=FLUCTUATIONS,
        conditions=_conditions(_EIGENVALUES, "this size, to second order at the edge"),
        rescaled=power(2),
        uncertainty=f"asymptotic: neglects {neglected} of the standard deviation",
        most_digits=EDGE_DIGITS,
    )
    return (
        edge(
            name=f"product_{which}_edge",
            symbol=rf"\lambda_{sign}",
            description=f"{which} edge of the squared singular values of W_QK",
            definition=rf"F(\psi_{sign}), \quad {_EDGES}",
            references=(*LAW, *FLUCTUATIONS),
            one_draw=(f"{extreme}_eigenvalue_mean", f"{extreme}_eigenvalue_std"),
            compute=lambda d, h: _edge(d, h, side),
        ),
        edge(
            name=f"product_{which}_singular_edge",
            symbol=rf"s_{sign}",
            description=f"{which} edge of the singular values of W_QK",
            definition=rf"\sqrt{{\lambda_{sign}}}",
            conditions=_conditions(_SINGULAR_VALUES, _LARGE),
            method="square root of the eigenvalue",
            rescaled=power(1),
            compute=lambda d, h: mp.sqrt(_edge(d, h, side)),
        ),
        edge(
            name=f"product_{which}_edge_scale",
            symbol=rf"\delta_{sign}",
            description=f"scale of the Tracy-Widom fluctuations at the {which} edge of W_QK",
            definition=rf"\Bigl(\frac{{\lambda_{sign}}}{{h}} \sqrt{{|F''(\psi_{sign})|/2}}\Bigr)^{{2/3}}",
            references=("el_karoui_2007", *LAW),
            compute=lambda d, h: _edge_scale(d, h, side),
            uncertainty=LIMIT,
        ),
        eigenvalue(
            name=f"{extreme}_eigenvalue_mean",
            symbol=rf"\mathrm{{E}}\,\lambda_{{{index}}}",
            description=f"mean of the {extreme} squared singular value of W_QK",
            definition=rf"\lambda_{sign} {sign} \delta_{sign}\, \mu_{{\mathrm{{TW}}_1}} + \ldots",
            compute=lambda d, h: _extreme_eigenvalue(d, h, side).mean(),
            relative_error=lambda d, h: _mean_error(d, h, side),
        ),
        eigenvalue(
            name=f"{extreme}_eigenvalue_std",
            symbol=rf"\sigma_{{\lambda_{{{index}}}}}",
            description=f"standard deviation of the {extreme} squared singular value of W_QK",
            definition=rf"\delta_{sign}\, \sigma_{{\mathrm{{TW}}_1}} + \ldots",
            compute=lambda d, h: _extreme_eigenvalue(d, h, side).std(),
            relative_error=lambda d, h: _neglected(d, h, side),
        ),
    )


def _mpf(value: Fraction) -> Number:
    return mp.mpf(value.numerator) / value.denominator


def _trace(partition: tuple[int, ...], d: int, h: int) -> Fraction:
    """E Π tr M^(μ_i) of W_QK divided by √d."""
    from rmtbase.laws import trace_moment

    return trace_moment(partition, (d, h, d), normalization="none") / d ** sum(partition)


def _trace_std(d: int, h: int, k: int) -> Number:
    return mp.sqrt(_mpf(_trace((k, k), d, h) - _trace((k,), d, h) ** 2))


def _participation_ratio(d: int, h: int):
    from rmtbase.laws import normalized_participation_ratio

    return normalized_participation_ratio(d, h)


def _sum_down(primitive: Callable[[Any], Any], d: int, h: int) -> Number:
    """Σ_{i<h} f((d - i)/2) for f(x) = primitive(x + 1) - primitive(x); even and odd i form chains of step one."""
    total = mp.mpf(0)
    for top, count in ((d, (h + 1) // 2), (d - 1, h // 2)):
        end = mp.mpf(top) / 2 + 1
        total += primitive(end) - primitive(end - count)
    return total


def _log_determinant_mean(d: int, h: int) -> Number:
    # (x - 1) ψ(x) - x is a primitive of the digamma function for steps of one.
    digammas = _sum_down(lambda x: (x - 1) * mp.psi(0, x) - x, d, h)
    return 2 * (h * mp.log(2) + digammas) - h * mp.log(d)


def _log_determinant_std(d: int, h: int) -> Number:
    # Likewise, (x - 1) ψ₁(x) + ψ(x) is one of the trigamma function.
    return mp.sqrt(2 * _sum_down(lambda x: (x - 1) * mp.psi(1, x) + mp.psi(0, x), d, h))


_exact = partial(
    ConstantFunction,
    conditions=_conditions(_EIGENVALUES, _HERE),
    method="exact rational arithmetic",
    references=("muirhead_1982",),
)
_limiting = partial(ConstantFunction, method="closed form", rescaled=power(1), uncertainty=LIMIT)
_ratio = partial(
    ConstantFunction,
    conditions=_without_scale(_EIGENVALUES, "this size, to fifth order"),
    method="exact moments weighted by powers of the trace, extrapolated",
    references=("muirhead_1982",),
    most_digits=_DOUBLE_DIGITS,
)
FUNCTIONS = (
    ConstantFunction(
        name="aspect_ratio",
        symbol=r"\gamma",
        description="aspect ratio d_head/d_model, mean squared cosine between the row spaces of W_Q and W_K",
        definition=r"h / d",
        conditions=_without_scale("neither λ nor s", _HERE),
        method="closed form",
        references=("burda_2010_rectangular",),
        compute=lambda d, h: mp.mpf(h) / d,
    ),
    *_sides(+1),
    *_sides(-1),
    _exact(
        name="trace_mean",
        symbol=r"\mathrm{E} \textstyle\sum \lambda",
        description="mean of the sum of the squared singular values of W_QK, its squared Frobenius norm",
        definition=rf"g^2 d h, \quad {GAIN}",
        rescaled=power(2),
        compute=lambda d, h: _mpf(_trace((1,), d, h)),
    ),
    _exact(
        name="trace_std",
        symbol=r"\sigma_{\sum \lambda}",
        description="standard deviation of the sum of the squared singular values of W_QK",
        definition=r"\sqrt{\mathrm{E}\,(\mathrm{tr}\,M)^2 - (\mathrm{E}\,\mathrm{tr}\,M)^2}, "
        r"\quad M = W_{QK}^\top W_{QK}",
        rescaled=power(2),
        method="zonal polynomials in exact rational arithmetic",
        compute=lambda d, h: _trace_std(d, h, 1),
    ),
    _exact(
        name="trace_of_square_mean",
        symbol=r"\mathrm{E} \textstyle\sum \lambda^2",
        description="mean of the sum of the fourth powers of the singular values of W_QK",
        definition=rf"g^4 h\,(d^2 + 2dh + 2d + h + 3), \quad {GAIN}",
        rescaled=power(4),
        method="zonal polynomials in exact rational arithmetic",
        compute=lambda d, h: _mpf(_trace((2,), d, h)),
    ),
    _exact(
        name="trace_of_square_std",
        symbol=r"\sigma_{\sum \lambda^2}",
        description="standard deviation of the sum of the fourth powers of the singular values of W_QK",
        definition=r"\sqrt{\mathrm{E}\,(\mathrm{tr}\,M^2)^2 - (\mathrm{E}\,\mathrm{tr}\,M^2)^2}, "
        r"\quad M = W_{QK}^\top W_{QK}",
        rescaled=power(4),
        method="zonal polynomials in exact rational arithmetic",
        compute=lambda d, h: _trace_std(d, h, 2),
    ),
    _exact(
        name="normalized_participation_ratio_of_means",
        symbol=r"\frac{(\mathrm{E} \sum \lambda)^2}{h\, \mathrm{E} \sum \lambda^2}",
        description="ratio of the expectations in NPR (not its mean, which is larger)",
        definition=r"\frac{d^2}{d^2 + 2dh + 2d + h + 3}",
        conditions=_without_scale(_EIGENVALUES, _HERE),
        compute=lambda d, h: _mpf(_trace((1,), d, h) ** 2 / (h * _trace((2,), d, h))),
    ),
    _ratio(
        name="normalized_participation_ratio_mean",
        symbol=r"\mathrm{E}\,\mathrm{NPR}",
        description="mean of the normalized participation ratio of W_QK",
        definition=r"\mathrm{E}\,\frac{(\sum \lambda)^2}{h \sum \lambda^2}",
        compute=lambda d, h: _participation_ratio(d, h).mean,
        uncertainty=lambda d, h: f"asymptotic: the last order is {_participation_ratio(d, h).error:.1e}",
        relative_error=lambda d, h: _participation_ratio(d, h).error / _participation_ratio(d, h).mean,
    ),
    _ratio(
        name="normalized_participation_ratio_std",
        symbol=r"\sigma_{\mathrm{NPR}}",
        description="standard deviation of the normalized participation ratio of W_QK",
        definition=r"\sqrt{\mathrm{Var}\,\frac{(\sum \lambda)^2}{h \sum \lambda^2}}",
        compute=lambda d, h: _participation_ratio(d, h).std,
        uncertainty=lambda d, h: f"asymptotic: the last order is {_participation_ratio(d, h).std_error:.1e}",
        relative_error=lambda d, h: _participation_ratio(d, h).std_error / (_participation_ratio(d, h).std or 1.0),
    ),
    _exact(
        name="log_determinant_mean",
        symbol=r"\mathrm{E} \textstyle\sum \ln \lambda",
        description="mean of the log-determinant of W_QK on its row space",
        definition=r"2 \sum_{i<h} \bigl[\ln 2 + \psi\bigl(\frac{d-i}{2}\bigr)\bigr] - h \ln d + 2 h \ln g, \quad "
        + GAIN,
        rescaled=lambda value, square, h: value + h * mp.log(square),
        method="closed form, the sums of digamma functions telescoped",
        compute=_log_determinant_mean,
    ),
    _exact(
        name="log_determinant_std",
        symbol=r"\sigma_{\sum \ln \lambda}",
        description="standard deviation of the log-determinant of W_QK on its row space",
        conditions=_without_scale(_EIGENVALUES, _HERE),
        definition=r"\sqrt{2 \sum_{i<h} \psi_1\bigl(\frac{d-i}{2}\bigr)}",
        method="closed form, the sums of trigamma functions telescoped",
        compute=_log_determinant_std,
    ),
    _limiting(
        name="spectral_radius",
        symbol=r"\rho",
        description="largest modulus of the complex eigenvalues of W_QK",
        definition=rf"g \sqrt{{h}}, \quad {GAIN}",
        conditions=_conditions("complex eigenvalues of W_QK itself, neither λ nor s", _LARGE),
        references=("burda_2010_product",),
        parameters=("d_head",),
        compute=mp.sqrt,
    ),
    _limiting(
        name="spike_threshold",
        symbol=r"\theta_c",
        description="strength at which a planted rank-one spike θuvᵀ leaves the bulk of W_QK",
        definition=rf"\frac{{\sqrt{{\lambda_+}}}}{{1 + \gamma\psi_+}} = g \sqrt{{d\,(1 + 1/\psi_+)}}, \quad {GAIN}",
        conditions=_conditions(_SINGULAR_VALUES, _LARGE),
        references=("benaych_georges_nadakuditi_2012", *LAW),
        compute=lambda d, h: mp.sqrt(d * (1 + 1 / _critical_point(d, h, +1))),
    ),
)
