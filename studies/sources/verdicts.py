"""The one rule by which every recipe, and ``claims``, decides on a claim.

A :class:`Claim` is a value: its kind, the observed number, and what it is compared with. :func:`decide` takes it to a
:class:`Finding`:

* learned structure agrees only if the observed value lies beyond its null, in the claimed direction, at
  :data:`LEVEL`; it differs if the value lies beyond the null in the opposite direction;
* an equality, a printed number and a law agree only if the interval of the observed value, at :data:`LEVEL` on either
  side, lies within the margin (two one-sided tests), and differ only if it lies outside;
* everything else is "cannot tell".

A :class:`Verdict` is a finding with its standing: decided, corrected by an erratum, or open for want of a model. Its
words are made when it is shown, and nothing reads them.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

import numpy as np
from scipy.special import ndtr, ndtri

LEVEL = 0.01
"""Significance level of each one-sided test: an untrained model passes a test of learned structure this often."""
Z_LEVEL = float(-ndtri(LEVEL))


class Kind(Enum):
    """Kind of a claim, which decides how it is tested."""

    LEARNED = "learned structure"
    EQUALITY = "equality"
    PRINTED = "a number printed"
    LAW = "random matrices"


class Finding(Enum):
    """Outcome of a test."""

    AGREES = "agrees"
    DISAGREES = "differs"
    CANNOT_TELL = "cannot tell"


class Side(Enum):
    """Direction in which a claim of learned structure lies from its null."""

    ABOVE = "above"
    BELOW = "below"
    EITHER = "either"


@dataclass(frozen=True)
class Claim:
    """Claim about a number.

    Attributes:
        kind: how it is tested.
        observed: the number; None, or not finite, if there is none.
        p_value: of learned structure, the chance that weights that learned nothing lie as far in the claimed
            direction; None if that is not known.
        p_opposite: the same for the opposite direction.
        low: of the other kinds, the least value for which the claim is true.
        high: the largest.
        error: standard error of the observed number; 0 if it is exact.
    """

    kind: Kind
    observed: float | None
    p_value: float | None = None
    p_opposite: float | None = None
    low: float = -math.inf
    high: float = math.inf
    error: float = 0.0


def decide(claim: Claim) -> Finding:
    """Decide on a claim."""
    if claim.observed is None or not math.isfinite(claim.observed):
        return Finding.CANNOT_TELL
    if claim.kind is Kind.LEARNED:
        if claim.p_value is not None and claim.p_value <= LEVEL:
            return Finding.AGREES
        beyond = claim.p_opposite is not None and claim.p_opposite <= LEVEL
        return Finding.DISAGREES if beyond else Finding.CANNOT_TELL
    if not math.isfinite(claim.error):
        return Finding.CANNOT_TELL
    reach = Z_LEVEL * claim.error
    if claim.low <= claim.observed - reach and claim.observed + reach <= claim.high:
        return Finding.AGREES
    outside = claim.observed + reach < claim.low or claim.observed - reach > claim.high
    return Finding.DISAGREES if outside else Finding.CANNOT_TELL


def every(findings: Iterable[Finding]) -> Finding:
    """Combine the parts of a claim: it agrees if all do, and differs if one does."""
    parts = {*findings}
    if Finding.DISAGREES in parts:
        return Finding.DISAGREES
    return Finding.AGREES if parts == {Finding.AGREES} else Finding.CANNOT_TELL


def beyond_draws(observed: float, draws: np.ndarray, side: Side) -> Claim:
    """Claim of learned structure beside simulated values of models that learned nothing."""
    drawn = np.asarray(draws, dtype=float)
    drawn = drawn[np.isfinite(drawn)]
    if not drawn.size:
        return Claim(Kind.LEARNED, observed)
    slack = 1e-12 * max(1.0, float(np.abs(drawn).max()))  # equal values may differ by rounding
    as_high = (1.0 + float(np.sum(drawn >= observed - slack))) / (drawn.size + 1.0)
    as_low = (1.0 + float(np.sum(drawn <= observed + slack))) / (drawn.size + 1.0)
    return _beyond(observed, as_high, as_low, side)


def beyond_normal(observed: float, mean: float, sd: float, side: Side) -> Claim:
    """Claim of learned structure beside a normal null."""
    z = (observed - mean) / sd if sd > 0 else math.nan
    if not math.isfinite(z):
        return Claim(Kind.LEARNED, observed)
    return _beyond(observed, float(ndtr(-z)), float(ndtr(z)), side)


def beyond_chance(observed: float, p_above: float, p_below: float, side: Side) -> Claim:
    """Claim of learned structure beside the exact chances of a value as high, and as low."""
    return _beyond(observed, p_above, p_below, side)


def _beyond(observed: float, p_above: float, p_below: float, side: Side) -> Claim:
    if side is Side.EITHER:
        return Claim(Kind.LEARNED, observed, min(1.0, 2.0 * min(p_above, p_below)), None)
    high, low = (p_above, p_below) if side is Side.ABOVE else (p_below, p_above)
    return Claim(Kind.LEARNED, observed, high, low)


def within(
    observed: float | None, expected: float, margin: float, error: float = 0.0, kind: Kind = Kind.EQUALITY
) -> Claim:
    """Claim that a number equals another up to a margin."""
    return Claim(kind, observed, low=expected - margin, high=expected + margin, error=error)


def most(chosen: np.ndarray) -> Claim:
    """Claim that most of these are chosen: a share of more than one half, by the binomial's largest standard error."""
    chosen = np.asarray(chosen, dtype=bool)
    if not chosen.size:
        return Claim(Kind.EQUALITY, None)
    return Claim(Kind.EQUALITY, float(chosen.mean()), low=0.5, error=0.5 / math.sqrt(chosen.size))


class Standing(Enum):
    """Standing of a claim."""

    DECIDED = "decided"
    CORRECTED = "corrected"
    OPEN = "open"
    NEEDS = "needs"


@dataclass(frozen=True)
class Verdict:
    """Finding on a claim, with its standing.

    Attributes:
        standing: *decided* of this model; *corrected* by an erratum; *open*, nothing decides it here; *needs* another
            model, beside which the finding of this one is shown.
        finding: None if nothing was tested.
        kind: kind of the tested claim.
        detail: what it needs, the erratum, or the command.
    """

    standing: Standing
    finding: Finding | None = None
    kind: Kind | None = None
    detail: str = ""


def decided(claim: Claim, detail: str = "") -> Verdict:
    """Verdict of this model on a claim."""
    return Verdict(Standing.DECIDED, decide(claim), claim.kind, detail)


def needs(models: str, claim: Claim | None = None) -> Verdict:
    """Verdict on a claim about other models, with the finding of this one."""
    if claim is None:
        return Verdict(Standing.NEEDS, detail=models)
    return Verdict(Standing.NEEDS, decide(claim), claim.kind, models)


def corrected(detail: str = "") -> Verdict:
    """Verdict on a claim that is corrected."""
    return Verdict(Standing.CORRECTED, detail=detail)


def unresolved(detail: str = "", claim: Claim | None = None) -> Verdict:
    """Verdict on a claim that stays open, with the finding of this model if there is one."""
    finding, kind = (None, None) if claim is None else (decide(claim), claim.kind)
    return Verdict(Standing.OPEN, finding, kind, detail)


def words(verdict: Verdict) -> str:
    """Put a verdict into words."""
    if verdict.standing is Standing.DECIDED:
        assert verdict.finding is not None  # it was tested
        return verdict.finding.value + (f": {verdict.detail}" if verdict.detail else "")
    begin = {
        Standing.CORRECTED: "corrected" + (f": {verdict.detail}" if verdict.detail else ""),
        Standing.OPEN: "open" + (f": {verdict.detail}" if verdict.detail else ""),
        Standing.NEEDS: f"needs {verdict.detail}",
    }[verdict.standing]
    return f"{begin}; {_HERE[verdict.finding]}" if verdict.finding is not None else begin


_HERE = {
    Finding.AGREES: "this model agrees",
    Finding.DISAGREES: "this model differs",
    Finding.CANNOT_TELL: "this model cannot tell",
}
