r"""Edges of any chain W = X_1 … X_L of Gaussian factors, for one list of dimensions.

With r = min n_l and c_l = r/n_l, the limiting law of the r nonzero eigenvalues λ of WᵀW is given by

    F(ψ) = C Π_{l=0..L} (1 + c_l ψ) / ψ = λ,   C = Π σ_l² Π n_l / r,   F' = 0 where Σ_l c_l ψ / (1 + c_l ψ) = 1

(Burda, Jarosz, Livan, Nowak & Swiech 2010; Dupic & Perez Castillo 2014), with C divided by n_0 for ``sqrt_d``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from mpmath import mp

from rmtbase.constants._conditions import Conditions
from rmtbase.constants._constant import Constant
from rmtbase.constants._digits import Number
from rmtbase.constants._product import EDGE_DIGITS, FLUCTUATIONS, LAW, LIMIT
from rmtbase.constants._typeset import shown_number
from rmtbase.errors import ParameterError
from rmtbase.parameters import DEFAULT_NORMALIZATION, require_dims, require_normalization, require_sigmas

_BISECTIONS = 60
_DEFINITION = (
    r"F(\psi) = C\,\prod_l (1 + c_l\psi)/\psi, \quad F'(\psi_\pm) = 0, \quad c_l = r/n_l, \quad r = \min_l n_l"
)


class _Chain(NamedTuple):
    """Chain with the exact values of its decimals: 0.02 is 1/50."""

    dims: tuple[int, ...]
    sigmas: tuple[Fraction, ...]
    normalization: str

    @property
    def rank(self) -> int:
        return min(self.dims)

    @property
    def has_hard_edge(self) -> bool:
        return self.dims.count(self.rank) > 1

    def critical_point(self, side: int) -> Number:
        """ψ_±, the only root of an increasing function: between the last two poles, or above zero."""
        ratios = [mp.mpf(self.rank) / n for n in self.dims]

        def balance(psi: Number) -> Number:
            return mp.fsum(c * psi / (1 + c * psi) for c in ratios) - 1

        second = sorted(ratios)[-2]
        low, high = (mp.mpf(0), 1 / mp.sqrt(second)) if side > 0 else (-1 / second, mp.mpf(-1))
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            low, high = (low, middle) if balance(middle) > 0 else (middle, high)
        return mp.findroot(balance, (low, high))

    def edge(self, side: int) -> Number:
        """λ_±."""
        if side < 0 and self.has_hard_edge:
            return mp.mpf(0)
        psi = self.critical_point(side)
        scale = math.prod(sigma**2 for sigma in self.sigmas) * Fraction(math.prod(self.dims), self.rank)
        scale /= self.dims[0] if self.normalization == "sqrt_d" else 1
        product = mp.fprod(1 + mp.mpf(self.rank) / n * psi for n in self.dims)
        return mp.mpf(scale.numerator) / scale.denominator * product / psi

    def edge_scale(self, side: int) -> Number:
        """δ_± = (λ_± √(|F''(ψ_±)|/2) / r)^(2/3)."""
        psi, edge = self.critical_point(side), self.edge(side)
        curvature = edge * (psi**-2 - mp.fsum((self.rank / (n + self.rank * psi)) ** 2 for n in self.dims))
        return (edge * mp.sqrt(abs(curvature) / 2) / self.rank) ** (mp.mpf(2) / 3)


def chain_constants(
    dims: Sequence[int], sigmas: float | Sequence[float] | None = None, normalization: str | None = None
) -> dict[str, Constant]:
    """Return the constants of one chain by name: edges of λ and s, Tracy–Widom scales, and mean and sd of λ_max, λ_min.

    They belong to no released set. A scale or a mean that does not exist for the chain is left out.
    """
    sizes = require_dims(dims)
    count = len(sizes) - 1
    given = None if sigmas is None else [sigmas] * count if np.ndim(sigmas) == 0 else list(sigmas)
    if count == 1 and normalization == "sqrt_d":
        raise ParameterError("normalization", normalization, "none for one matrix")
    divisor = "none" if count == 1 else require_normalization(normalization or DEFAULT_NORMALIZATION)
    exact = tuple(Fraction(repr(sigma)) for sigma in require_sigmas(given, count))
    chain = _Chain(sizes, exact, divisor)
    found = [constant for side in (+1, -1) for constant in _of_side(chain, side)]
    return {constant.name: constant for constant in found}


def _of_side(chain: _Chain, side: int) -> list[Constant]:
    sides = {+1: ("upper", "largest", "+", r"\max"), -1: ("lower", "smallest", "-", r"\min")}
    which, extreme, sign, index = sides[side]
    eigenvalue, convention = rf"\lambda_{sign}", f"λ: eigenvalues of WᵀW, the {chain.rank} that are not zero"
    limit = partial(_constant, chain, convention, "limit of large matrices at these ratios", references=LAW)
    made = [
        limit(
            f"chain_{which}_edge",
            eigenvalue,
            f"{which} edge of the squared singular values of W",
            compute=lambda: chain.edge(side),
            definition=rf"F(\psi_{sign}), \quad {_DEFINITION}",
            uncertainty=f"{LIMIT}; one draw's fluctuates about it by the Tracy-Widom scale",
        ),
        limit(
            f"chain_{which}_singular_edge",
            f"s_{sign}",
            f"{which} edge of the singular values of W",
            compute=lambda: mp.sqrt(chain.edge(side)),
            definition=rf"\sqrt{{{eigenvalue}}}",
            uncertainty=f"{LIMIT}; one draw's fluctuates about it by the Tracy-Widom scale",
        ),
    ]
    if side > 0 or not chain.has_hard_edge:
        made.append(
            limit(
                f"chain_{which}_edge_scale",
                rf"\delta_{sign}",
                f"scale of the Tracy-Widom fluctuations at the {which} edge of W",
                compute=lambda: chain.edge_scale(side),
                definition=rf"\Bigl(\frac{{{eigenvalue}}}{{r}} \sqrt{{|F''(\psi_{sign})|/2}}\Bigr)^{{2/3}}",
                uncertainty=LIMIT,
                references=("el_karoui_2007", *LAW),
            )
        )
    from rmtbase.laws import largest_eigenvalue, smallest_eigenvalue

    try:
        law = (largest_eigenvalue if side > 0 else smallest_eigenvalue)(
            dims=chain.dims, sigmas=tuple(map(float, chain.sigmas)), normalization=chain.normalization
        )
    except ParameterError:  # too few eigenvalues for a law of the largest or the smallest
        return made
    ordered = sorted(chain.dims)
    gap = ordered[1] - ordered[0]
    neglected = 1 / (chain.rank if side > 0 or gap < 16 else min(chain.rank, gap))
    drawn = partial(
        _constant,
        chain,
        convention,
        "this size, to second order at the edge",
        uncertainty=f"asymptotic: neglects {neglected:.2g} of the standard deviation",
        method=f"rmtbase.laws.{extreme}_eigenvalue, to second order at the edge",
        most_digits=EDGE_DIGITS,
        references=FLUCTUATIONS,
    )
    mean, std = law.mean(), law.std()
    return [
        *made,
        drawn(
            f"chain_{extreme}_eigenvalue_mean",
            rf"\mathrm{{E}}\,\lambda_{{{index}}}",
            f"mean of the {extreme} squared singular value of W",
            compute=lambda: mp.mpf(mean),
            definition=rf"{eigenvalue} {sign} \delta_{sign}\, \mu_{{\mathrm{{TW}}_1}} + \ldots",
            relative_error=neglected * std / mean,
        ),
        drawn(
            f"chain_{extreme}_eigenvalue_std",
            rf"\sigma_{{\lambda_{{{index}}}}}",
            f"standard deviation of the {extreme} squared singular value of W",
            compute=lambda: mp.mpf(std),
            definition=rf"\delta_{sign}\, \sigma_{{\mathrm{{TW}}_1}} + \ldots",
            relative_error=neglected,
        ),
    ]


def _constant(
    chain: _Chain,
    convention: str,
    holds: str,
    name: str,
    symbol: str,
    description: str,
    method: str = "root of F' at the working precision",
    **stated: Any,
) -> Constant:
    noun = "matrix" if len(chain.sigmas) == 1 else "matrices"
    sigmas = [shown_number(repr(float(sigma)).removesuffix(".0")) for sigma in chain.sigmas]
    conditions = Conditions(
        matrix=f"W, {'a' if len(sigmas) == 1 else f'the product of {len(sigmas)}'} Gaussian {noun}",
        normalization=f"divided by √{chain.dims[0]}" if chain.normalization == "sqrt_d" else "not normalized",
        sigma=f"σ = {sigmas[0] if len(set(sigmas)) == 1 else ', '.join(sigmas)}",
        shape=f"dimensions {' × '.join(map(str, chain.dims))}",
        convention=convention,
        holds=holds,
    )
    arguments = {
        "dims": chain.dims, "sigmas": tuple(map(float, chain.sigmas)),
        "normalization": None if len(sigmas) == 1 else chain.normalization,
    }  # fmt: skip
    return Constant(
        name=name,
        symbol=symbol,
        description=description,
        conditions=conditions,
        method=method,
        arguments=arguments,
        **stated,
    )
