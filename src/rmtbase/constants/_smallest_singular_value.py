"""The smallest singular value and the condition number of a square Gaussian matrix, after Edelman (1988).

For the n×n matrix with standard normal entries, t = √n s_min has the limit P(t > x) = exp(-x - x²/2), and
κ = s_max/s_min is 2n/t since s_max ~ 2√n.
"""

from __future__ import annotations

from mpmath import mp

from rmtbase.constants._digits import Number
from rmtbase.constants._published import PUBLISHED_DIGITS, published


def _mean_log() -> Number:
    """E ln t by tanh-sinh quadrature; the tail beyond the last end is below the working precision."""
    end = mp.sqrt(5 * mp.dps)
    return mp.quad(lambda x: mp.log(x) * (1 + x) * mp.exp(-x - x * x / 2), [0, 1, 3, end])


_TAIL = r"\mathrm{P}(\sqrt{n}\, s_{\min} > x) \to e^{-x - x^2/2}"
_EDELMAN = ("edelman_1988",)

MEAN = published(
    name="square_smallest_singular_value_mean",
    symbol=r"\mu_{s_{\min}}",
    description="mean of √n s_min, square Gaussian matrix",
    definition=rf"\sqrt{{\pi e / 2}} \, \mathrm{{erfc}}(1/\sqrt2), \quad {_TAIL}",
    method="closed form",
    references=_EDELMAN,
    compute=lambda: mp.sqrt(mp.pi * mp.e / 2) * mp.erfc(1 / mp.sqrt(2)),
)
CONSTANTS = (
    MEAN,
    published(
        name="square_smallest_singular_value_median",
        symbol=r"m_{s_{\min}}",
        description="median of √n s_min, square Gaussian matrix",
        definition=rf"\sqrt{{1 + 2 \ln 2}} - 1, \quad {_TAIL}",
        method="closed form",
        references=_EDELMAN,
        compute=lambda: mp.sqrt(1 + 2 * mp.log(2)) - 1,
    ),
    published(
        name="square_smallest_eigenvalue_mean",
        symbol=r"\mu_{\lambda_{\min}}",
        description="mean of n λ_min = n s_min², square Gaussian matrix",
        definition=r"2 (1 - \mu_{s_{\min}})",
        method="from the mean of √n s_min",
        references=_EDELMAN,
        compute=lambda: 2 * (1 - MEAN.compute()),
        parents=(MEAN.name,),
    ),
    published(
        name="square_log_condition_number",
        symbol=r"c_{\mathbb{R}}",
        description="limit of E ln κ - ln n, κ = s_max/s_min, real square Gaussian matrix",
        definition=r"\ln 2 - \int_0^\infty \ln x \,(1 + x)\, e^{-x - x^2/2} \, \mathrm{d}x",
        method="tanh-sinh quadrature",
        references=_EDELMAN,
        compute=lambda: mp.log(2) - _mean_log(),
        uncertainty="numerical: relative error below 1e-100",
        most_digits=PUBLISHED_DIGITS,
    ),
    published(
        name="square_log_condition_number_complex",
        symbol=r"c_{\mathbb{C}}",
        description="limit of E ln κ - ln n, κ = s_max/s_min, complex square Gaussian matrix",
        definition=r"\ln 2 + \gamma_{\mathrm{E}} / 2",
        method="closed form",
        references=_EDELMAN,
        compute=lambda: mp.log(2) + mp.euler / 2,
    ),
)
