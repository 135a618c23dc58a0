"""Conditions under which a constant holds; without them a number should not be cited."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from fractions import Fraction

from mpmath import mp

from rmtbase.constants._digits import Number
from rmtbase.constants._typeset import shown_number
from rmtbase.errors import ParameterError
from rmtbase.parameters import require_normalization, require_positive_number


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """Conditions of a constant, each a phrase of plain text that also fits in a sentence.

    Attributes:
        matrix: the random matrix or weights, or "" for a number of analysis.
        normalization: the divisor or the unit.
        sigma: standard deviations of the entries.
        shape: dimensions.
        convention: meaning of λ, s, κ or w.
        holds: the limit, or exact at this size.
    """

    matrix: str = ""
    normalization: str = ""
    sigma: str = ""
    shape: str = ""
    convention: str = ""
    holds: str

    def stated(self) -> dict[str, str]:
        """Return the conditions that apply, by name."""
        return {name: text for name, text in asdict(self).items() if text}

    def __str__(self) -> str:
        return "; ".join(self.stated().values())


@dataclass(frozen=True)
class Scale:
    """Scale g of W_QK relative to W_QK / √d_model at σ_Q = σ_K = 1: g = σ_Q σ_K, times √d_model for the raw product."""

    # sigma_q, sigma_k: exact values of the decimals as written: 0.02 is 1/50
    sigma_q: Fraction
    sigma_k: Fraction
    normalization: str  # "sqrt_d" or "none"

    @classmethod
    def checked(cls, sigma: object, sigma_q: object, sigma_k: object, normalization: object) -> Scale:
        """Make the scale from ``sigma`` for both, or from ``sigma_q`` and ``sigma_k``; None stands for 1."""
        if sigma is not None and not (sigma_q is None and sigma_k is None):
            raise ParameterError("sigma", sigma, "either sigma, for both W_Q and W_K, or sigma_q and sigma_k")
        stated = {"sigma_q": sigma_q, "sigma_k": sigma_k} if sigma is None else {"sigma": sigma}
        exact = [
            Fraction(repr(require_positive_number(name, 1 if value is None else value)))
            for name, value in stated.items()
        ]
        return cls(exact[0], exact[-1], require_normalization(normalization))

    def square(self, d_model: int | None) -> Number:
        """g²; ``d_model`` matters only for the raw product."""
        square = (self.sigma_q * self.sigma_k) ** 2
        if self.normalization == "none" and d_model is not None:
            square *= d_model
        return mp.mpf(square.numerator) / square.denominator

    def phrases(self) -> dict[str, str]:
        """Return the phrases for :class:`Conditions`."""
        q, k = (shown_number(repr(float(sigma)).removesuffix(".0")) for sigma in (self.sigma_q, self.sigma_k))
        return {
            "sigma": f"σ_Q = σ_K = {q}" if q == k else f"σ_Q = {q}, σ_K = {k}",
            "normalization": {"sqrt_d": "divided by √d_model", "none": "not normalized"}[self.normalization],
        }
