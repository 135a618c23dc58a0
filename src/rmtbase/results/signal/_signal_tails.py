"""Heavy tails of the spectra of a model: exponents compared with noise, and a verdict on each spectrum."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from rmtbase.errors import ParameterError
from rmtbase.results.signal._heavy_tails import heavy_tails, no_tail
from rmtbase.results.signal.rows import SignalRow
from rmtbase.results.signal.schema import CANDIDATES, VERDICTS

_FEWEST_DRAWS = 99
_LEAST_LEVEL = 1e-4


def tail_draws(level: float) -> int:
    """Return the number of draws that tests of tails take at a level."""
    if level < _LEAST_LEVEL:
        raise ParameterError(
            "level", level, f"at least {_LEAST_LEVEL:g} for tails, whose tests take 1/level draws each"
        )
    return max(_FEWEST_DRAWS, math.ceil(1.0 / level - 1e-9) - 1)


def tail_values(eigenvalues: Float[np.ndarray, " r"], dims: tuple[int, ...], level: float) -> dict[str, Any]:
    """Compute the variables of one spectrum; only the reason if its tail cannot be tested."""
    singular_values = np.sqrt(eigenvalues)
    if reason := no_tail(singular_values, dims):
        return {"tail_reason": str(reason)}
    tails = heavy_tails(singular_values, tail_draws(level), level, dims=dims)
    low, middle, high = np.quantile(tails.null_exponent, (0.025, 0.5, 0.975)).tolist()
    compared = zip(CANDIDATES, tails.comparison.p_value, tails.comparison.log_likelihood, strict=True)
    return {
        "power_law_exponent": tails.fit.exponent,
        "power_law_tail": tails.fit.tail,
        "exponent_p_value": tails.p_value,
        "exponent_goodness": tails.goodness,
        "null_exponent": middle,
        "null_exponent_low": low,
        "null_exponent_high": high,
        "path_depth": tails.comparison.depth,
        "tail_verdict": tails.comparison.verdict,
        **{
            f"{name}_{kind}": value
            for name, p_value, likelihood in compared
            for kind, value in (("p_value", p_value), ("log_likelihood", likelihood))
        },
    }


class TailSummary(NamedTuple):
    """Tails of the spectra of one circuit or component."""

    what: str  #: name of the circuit or component
    spectra: int  #: number of spectra that have numbers
    exponent: float  #: median of the fitted exponents
    #: null_low, null_high: medians of the ends of the band that holds 95 % of the exponents of noise
    null_low: float
    null_high: float
    heavier: int  #: number of spectra whose exponent is smaller than by chance, at the level
    verdicts: dict[str, int]  #: number of spectra with each of ``VERDICTS``


def summarize_tails(rows: Sequence[SignalRow], level: float) -> list[TailSummary]:
    """Summarize each circuit and component with tails, in their order."""
    summaries = []
    for what in dict.fromkeys(row.what for row in rows):
        tails = [row.tails for row in rows if row.what == what and row.tails.get("tail_verdict")]
        if not tails:
            continue
        names = ("power_law_exponent", "null_exponent_low", "null_exponent_high")
        exponent, low, high = (float(np.median([tail[name] for tail in tails])) for name in names)
        heavier = sum(tail["exponent_p_value"] <= level for tail in tails)
        verdicts = Counter(tail["tail_verdict"] for tail in tails)
        summaries.append(
            TailSummary(
                what, len(tails), exponent, low, high, heavier, {verdict: verdicts[verdict] for verdict in VERDICTS}
            )
        )
    return summaries
