r"""Edges of any chain W = X_1 … X_L of Gaussian factors, for one list of dimensions.

With r = min n_l and c_l = r/n_l, the limiting law of the r nonzero eigenvalues λ of WᵀW is given by

    F(ψ) = C Π_{l=0..L} (1 + c_l ψ) / ψ = λ,   C = Π σ_l² Π n_l / r,   F' = 0 where Σ_l c_l ψ / (1 + c_l ψ) = 1

(Burda, Jarosz, Livan, Nowak & Swiech 2010; Dupic & Perez Castillo 2014), with C divided by n_0 for ``sqrt_d``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from mpmath import mp

from rmtbase.constants._constant import Constant
from rmtbase.constants._digits import Computation, Number
from rmtbase.constants._typeset import Conditions, Phrase, shown_sigma
from rmtbase.errors import ParameterError
from rmtbase.parameters import DEFAULT_NORMALIZATION, require_dims, require_normalization, require_sigmas

_BISECTIONS = 60
_EDGE_DIGITS = 12
_LAW = ("burda_2010_rectangular", "dupic_perez_castillo_2014")
_FLUCTUATIONS = ("johnstone_2001", "ma_2012", "tracy_widom_1996")
_DEFINITION = (
    r"F(\psi) = C\,\prod_l (1 + c_l\psi)/\psi, \quad F'(\psi_\pm) = 0, \quad c_l = r/n_l, \quad r = \min_l n_l"
)
_LIMIT = "exact for the limiting law"
_OF_ONE_DRAW = f"{_LIMIT}; one draw's fluctuates about it by the Tracy-Widom scale"


@dataclass(frozen=True)
class Chain:
    """Chain with the exact values of its decimals: 0.02 is 1/50. ``side`` is +1 at the upper edge, -1 at the lower."""

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
        if len(self.dims) == 3 and self.dims[0] == self.dims[2] >= self.dims[1]:
            return (-1 + side * mp.sqrt(1 + mp.mpf(8 * self.dims[0]) / self.rank)) / 4
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
        if side < 0 and self.has_hard_edge:
            expected = f"less than d_model = {self.dims[0]}: there the lower edge is hard, not Tracy-Widom's"
            raise ParameterError("d_head", self.rank, expected)
        psi, edge = self.critical_point(side), self.edge(side)
        curvature = edge * (psi**-2 - mp.fsum((self.rank / (n + self.rank * psi)) ** 2 for n in self.dims))
        return (edge * mp.sqrt(abs(curvature) / 2) / self.rank) ** (mp.mpf(2) / 3)

    def extreme_eigenvalue(self, side: int):
        from rmtbase.laws import largest_eigenvalue, smallest_eigenvalue

        return (largest_eigenvalue if side > 0 else smallest_eigenvalue)(
            dims=self.dims, sigmas=tuple(map(float, self.sigmas)), normalization=self.normalization
        )

    def neglected(self, side: int) -> float:
        """Terms that this law neglects, in its standard deviations; a soft lower edge turns hard in a small gap."""
        smallest, second, *_ = sorted(self.dims)
        gap = second - smallest
        return 1 / (smallest if side > 0 or gap < 16 else min(smallest, gap))

    def mean_error(self, side: int) -> float:
        law = self.extreme_eigenvalue(side)
        return law.std() / law.mean() * self.neglected(side)


def chain_constants(
    dims: Sequence[int], sigmas: float | Sequence[float] | None = None, normalization: str | None = None
) -> dict[str, Constant]:
    """Return the constants of one chain by name: edges of λ and s, Tracy–Widom scales, and mean and sd of λ_max, λ_min.

    They belong to no released set. A scale or a mean that does not exist for the chain is left out.
    """
    import numpy as np  # not above: constants are looked up without it

    sizes = require_dims(dims)
    count = len(sizes) - 1
    listed = None if sigmas is None else [sigmas] * count if np.ndim(sigmas) == 0 else list(sigmas)  # type: ignore[arg-type]
    if count == 1 and normalization == "sqrt_d":
        raise ParameterError("normalization", normalization, "none for one matrix")
    divisor = "none" if count == 1 else require_normalization(normalization or DEFAULT_NORMALIZATION)
    exact = tuple(Fraction(repr(sigma)) for sigma in require_sigmas(listed, count))
    chain = Chain(sizes, exact, divisor)
    return {constant.name: constant for side in (+1, -1) for constant in _constants_of_side(chain, side)}


def _constants_of_side(chain: Chain, side: int) -> list[Constant]:
    name, extreme, sign, index = ("upper", "largest", "+", "max") if side > 0 else ("lower", "smallest", "-", "min")
    eigenvalue, subscript = rf"\lambda_{sign}", "₊" if side > 0 else "₋"
    arguments = {
        "dims": chain.dims,
        "sigmas": tuple(map(float, chain.sigmas)),
        "normalization": None if len(chain.sigmas) == 1 else chain.normalization,
    }

    def constant(part: str, symbol: Phrase, quantity: str, compute: Computation, formula: str, **words: Any):
        return Constant(
            name=f"chain_{part}",
            symbol=symbol.latex,
            symbol_text=symbol,
            description=Phrase(f"{quantity} of W", f"{quantity} of $W$"),
            compute=compute,
            definition=formula,
            arguments=arguments,
            **words,
        )

    limit: dict[str, Any] = {
        "conditions": _conditions(chain, "limit of large matrices at these ratios"),
        "method": "root of F' at the working precision",
        "uncertainty": _OF_ONE_DRAW,
        "references": _LAW,
    }
    constants = [
        constant(
            f"{name}_edge",
            Phrase(f"λ{subscript}", eigenvalue),
            f"{name} edge of the squared singular values",
            lambda: chain.edge(side),
            rf"F(\psi_{sign}), \quad {_DEFINITION}",
            **limit,
        ),
        constant(
            f"{name}_singular_edge",
            Phrase(f"s{subscript}", f"s_{sign}"),
            f"{name} edge of the singular values",
            lambda: mp.sqrt(chain.edge(side)),
            rf"\sqrt{{{eigenvalue}}}",
            **limit,
        ),
    ]
    if side > 0 or not chain.has_hard_edge:
        scale = constant(
            f"{name}_edge_scale",
            Phrase(f"δ{subscript}", rf"\delta_{sign}"),
            f"scale of the Tracy-Widom fluctuations at the {name} edge",
            lambda: chain.edge_scale(side),
            rf"\Bigl(\frac{{{eigenvalue}}}{{r}} \sqrt{{|F''(\psi_{sign})|/2}}\Bigr)^{{2/3}}",
            **limit | {"uncertainty": _LIMIT, "references": ("el_karoui_2007", *_LAW)},
        )
        constants.append(scale)
    try:
        law = chain.extreme_eigenvalue(side)
    except ParameterError:  # too few eigenvalues for a law of the largest or the smallest
        return constants
    neglected, mean, std = chain.neglected(side), law.mean(), law.std()
    drawn = {
        "conditions": _conditions(chain, "this size, to second order at the edge"),
        "uncertainty": f"asymptotic: neglects {neglected:.2g} of the standard deviation",
        "error_kind": "asymptotic",
        "method": f"rmtbase.laws.{extreme}_eigenvalue, to second order at the edge",
        "most_digits": _EDGE_DIGITS,
        "references": _FLUCTUATIONS,
    }
    return [
        *constants,
        constant(
            f"{extreme}_eigenvalue_mean",
            Phrase(f"E λ_{index}", rf"\mathrm{{E}}\,\lambda_{{\{index}}}"),
            f"mean of the {extreme} squared singular value",
            lambda: mp.mpf(mean),
            rf"{eigenvalue} {sign} \delta_{sign}\, \mu_{{\mathrm{{TW}}_1}} + \ldots",
            relative_error=neglected * std / mean,
            **drawn,
        ),
        constant(
            f"{extreme}_eigenvalue_std",
            Phrase(f"σ_{{λ_{index}}}", rf"\sigma_{{\lambda_{{\{index}}}}}"),
            f"standard deviation of the {extreme} squared singular value",
            lambda: mp.mpf(std),
            rf"\delta_{sign}\, \sigma_{{\mathrm{{TW}}_1}} + \ldots",
            relative_error=neglected,
            **drawn,
        ),
    ]


def _conditions(chain: Chain, holds: str) -> Conditions:
    sigmas, dims = [shown_sigma(float(sigma)) for sigma in chain.sigmas], list(map(str, chain.dims))
    count, rank, sizes = len(sigmas), chain.rank, r" \times ".join(dims)
    sigmas = sigmas[:1] if len(set(sigmas)) == 1 else sigmas
    divided = Phrase(f"divided by √{dims[0]}", rf"divided by $\sqrt{{{dims[0]}}}$")
    return Conditions(
        matrix=Phrase("W, a Gaussian matrix", "$W$, a Gaussian matrix")
        if count == 1
        else Phrase(f"W, the product of {count} Gaussian matrices", f"$W$, the product of ${count}$ Gaussian matrices"),
        normalization=divided if chain.normalization == "sqrt_d" else "not normalized",
        sigma=Phrase(f"σ = {', '.join(sigmas)}", rf"$\sigma = {'$, $'.join(sigma.latex for sigma in sigmas)}$"),
        shape=Phrase(f"dimensions {' × '.join(dims)}", f"dimensions ${sizes}$"),
        convention=Phrase(
            f"λ: eigenvalues of WᵀW, the {rank} that are not zero",
            rf"$\lambda$: eigenvalues of $W^{{\top}}W$, the ${rank}$ that are not zero",
        ),
        holds=holds,
    )
