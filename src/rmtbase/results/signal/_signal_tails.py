"""Heavy tails of the spectra of a model: exponents compared with noise, and a verdict on each spectrum."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from rmtbase.errors import ParameterError
from rmtbase.results.signal._heavy_tails import HeavyTails, heavy_tails
from rmtbase.results.signal.rows import SignalRow
from rmtbase.results.signal.schema import TAIL_NUMBERS, TAIL_TEXTS, TAIL_VERDICTS

_FEWEST_DRAWS = 99
_LEAST_LEVEL = 1e-4

At = tuple[int, int]


def tail_variables(
    spectra: Iterable[tuple[At, Float[np.ndarray, " r"], tuple[int, ...], str]],
    size: tuple[int, int],
    level: float,
    advance: Callable[[int], None],
) -> dict[str, np.ndarray]:
    """Compute the variables of a group from its spectra (place, eigenvalues, dims, reason why it has no numbers)."""
    values: dict[str, np.ndarray] = {name: np.full(size, np.nan) for name in TAIL_NUMBERS}
    texts = {name: np.full(size, "", dtype=object) for name in TAIL_TEXTS}
    if level < _LEAST_LEVEL:
        raise ParameterError(
            "level", level, f"at least {_LEAST_LEVEL:g} for tails, whose tests take 1/level draws each"
        )
    draws = max(_FEWEST_DRAWS, math.ceil(1.0 / level - 1e-9) - 1)
    for at, eigenvalues, dims, reason in spectra:
        if not reason:
            try:
                found = heavy_tails(np.sqrt(eigenvalues), draws, level, dims=dims)
                for name, number in _numbers(found).items():
                    values[name][at] = number
                texts["tail_verdict"][at] = found.comparison.verdict
            except ParameterError as error:
                reason = (
                    f"{'dims' if error.name == 'dims' else 'singular values'} {error.found}: {error.expected} needed"
                )
        texts["tail_reason"][at] = reason
        advance(1)
    return values | {name: text.astype(str) for name, text in texts.items()}


def _numbers(found: HeavyTails) -> dict[str, float]:
    low, middle, high = np.quantile(found.null_exponent, (0.025, 0.5, 0.975)).tolist()
    names = ("noise", "spikes", "power_law", "depth")
    p_values, likelihoods = found.comparison.p_value.tolist(), found.comparison.log_likelihood.tolist()
    return {
        "power_law_exponent": found.fit.exponent,
        "power_law_tail": found.fit.tail,
        "exponent_p_value": found.p_value,
        "exponent_goodness": found.goodness,
        "hill_exponent": found.hill,
        "hill_p_value": found.hill_p_value,
        "null_exponent": middle,
        "null_exponent_low": low,
        "null_exponent_high": high,
        "path_depth": found.comparison.depth,
        **{f"{name}_p_value": p for name, p in zip(names, p_values, strict=True)},
        **{f"{name}_log_likelihood": value for name, value in zip(names, likelihoods, strict=True)},
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
    verdicts: dict[str, int]  #: number of spectra with each of ``TAIL_VERDICTS``


def summarize_tails(rows: Sequence[SignalRow], level: float) -> list[TailSummary]:
    """Summarize each circuit and component with tails, in their order."""
    found = []
    for what in dict.fromkeys(row.what for row in rows):
        own = [row.tails for row in rows if row.what == what and row.tails.get("tail_verdict")]
        if not own:
            continue
        median: dict[str, Any] = {name: float(np.median([one[name] for one in own])) for name in TAIL_NUMBERS[:9]}
        counted = Counter(one["tail_verdict"] for one in own)
        found.append(
            TailSummary(
                what,
                len(own),
                median["power_law_exponent"],
                median["null_exponent_low"],
                median["null_exponent_high"],
                sum(one["exponent_p_value"] <= level for one in own),
                {verdict: counted[verdict] for verdict in TAIL_VERDICTS},
            )
        )
    return found
