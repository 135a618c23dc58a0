"""Comparison of an analytic number with its simulated value: with standard error, z, and a verdict.

There are two kinds of verdict. An exact value is judged by z = (simulated - analytic) / standard error, which must lie
within Z_LIMIT. An asymptotic value has a bias that enough draws always find, so it is judged by what matters to its
user: the mean by its error in standard deviations of the statistic, the standard deviation by the ratio
simulated/analytic, a quantile by its error in standard deviations, a tail by the ratio of probabilities. It fails if
the whole interval of two standard errors (for a count: at 95 %) around the simulated value lies outside the limits.
Every comparison reports z as well.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

FloatArray = NDArray[np.float64]

EXACT = "exact"
ASYMPTOTIC = "asymptotic"
Z_LIMIT = 4.5
"""Of a normal variable 7e-6 lie beyond: of a thousand exact values one does in 0.7 % of all runs."""
CONFIDENCE = 0.95
"""Of the interval of a probability that was counted."""
_SMALLEST = 1e-14  # probability whose complement is still known
_FEWEST = 20  # draws that must lie beyond a quantile
ERRORS = 2.0
"""Half of the interval of any other simulated value, in standard errors."""


_VALUES = ("analytic", "simulated", "low", "high")


class Law(Protocol):
    """Methods that a distribution must have, with scipy's names."""

    mean: Callable[[], float]
    std: Callable[[], float]
    ppf: Callable[[Any], Any]
    isf: Callable[[Any], Any]


@dataclass(frozen=True)
class Limits:
    """Limits on the errors of an asymptotic value; None for what is reported but not judged.

    Attributes:
        mean: of the error of the mean, in standard deviations.
        std: of |simulated/analytic - 1| of the standard deviation.
        quantile: of the error of a quantile, in standard deviations.
        value: of |simulated/analytic - 1| of any other number.
        tail: by tail probability and side ("lower", "upper"): of |simulated/analytic - 1|.
    """

    mean: float | None = None
    std: float | None = None
    quantile: float | None = None
    value: float | None = None
    tail: Mapping[tuple[float, str], float] = field(default_factory=dict)


UNJUDGED = Limits()
"""For an asymptotic value that is reported only."""


@dataclass(frozen=True)
class Row:
    """Comparison of one analytic with one simulated number.

    Attributes:
        section, quantity, parameters: what was compared, of what.
        of: "mean", "std", "skewness", "quantile 0.99", "upper tail 0.001", ...
        method: "exact" or "asymptotic", of the analytic value.
        analytic, simulated: the two values.
        standard_error: of the simulated one.
        z: (simulated - analytic) / standard_error; for counts the normal score of their binomial probability.
        draws: how many independent draws.
        deviation: (analytic - simulated) in simulated standard deviations of the statistic; of means and quantiles.
        ratio: simulated / analytic; of standard deviations, tails and numbers.
        judged: "z", "deviation" or "ratio": which of them the limits are for; None where nothing is claimed.
        low, high: the limits.
        passed: whether it lies within, or its interval reaches within.
        group: where in its section the row belongs.
    """

    section: str
    quantity: str
    parameters: dict[str, Any]
    of: str
    method: str
    analytic: float
    simulated: float
    standard_error: float
    z: float
    draws: int
    deviation: float | None = None
    ratio: float | None = None
    judged: str | None = None
    low: float | None = None
    high: float | None = None
    passed: bool | None = None
    group: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain values, without what is not there; the values to seven digits, what is derived from them to four."""
        found = {key: value for key, value in asdict(self).items() if value not in (None, "") and key != "section"}
        return {key: _rounded(value, 7 if key in _VALUES else 4) for key, value in found.items()}


@dataclass(frozen=True)
class Subject:
    """A statistic whose draws are compared with what is known about it.

    Attributes:
        section, quantity, parameters, method, group: as in :class:`Row`.
        limits: for asymptotic values.
    """

    section: str
    quantity: str
    parameters: dict[str, Any]
    method: str = EXACT
    limits: Limits = UNJUDGED
    group: str = ""

    def law(
        self, sample: FloatArray, law: Law, quantiles: Sequence[float] = (), tails: Sequence[float] = ()
    ) -> Iterator[Row]:
        """Mean and standard deviation where there are any, quantiles, and probabilities of both tails."""
        if math.isfinite(law.mean()):
            yield self.mean(sample, law.mean())
        if math.isfinite(law.std()):
            yield self.std(sample, law.std())
        yield from self.quantiles(sample, quantiles, np.asarray(law.ppf(np.asarray(quantiles))))
        for probability in tails:
            yield self.tail(sample, float(law.isf(probability)), probability, "upper")
            yield self.tail(sample, float(law.ppf(probability)), probability, "lower")

    def mean(self, sample: FloatArray, analytic: float) -> Row:
        """Compare the mean; its error comes from the sample's spread."""
        spread = float(sample.std())
        error = spread / math.sqrt(sample.size)
        return self._row(
            "mean", analytic, float(sample.mean()), error, sample.size, spread=spread, bound=self.limits.mean
        )

    def std(self, sample: FloatArray, analytic: float) -> Row:
        """Compare the standard deviation; its error needs the kurtosis."""
        z = _standardized(sample)
        spread = float(sample.std(ddof=1))
        error = 0.5 * spread * float(np.sqrt(np.mean((z**2 - 1.0) ** 2) / sample.size))
        return self._row("std", analytic, spread, error, sample.size, bound=self.limits.std)

    def skewness(self, sample: FloatArray, analytic: float) -> Row:
        """Compare the third standardized moment; its error comes from the influence of one draw."""
        z = _standardized(sample)
        value = float(np.mean(z**3))
        influence = z**3 - value - 1.5 * value * (z**2 - 1.0) - 3.0 * z
        return self._row("skewness", analytic, value, _error(influence), sample.size, bound=self.limits.value)

    def excess_kurtosis(self, sample: FloatArray, analytic: float) -> Row:
        """Compare the fourth standardized moment less 3; its error comes from the influence of one draw."""
        z = _standardized(sample)
        third, fourth = float(np.mean(z**3)), float(np.mean(z**4))
        influence = z**4 - fourth - 2.0 * fourth * (z**2 - 1.0) - 4.0 * third * z
        return self._row(
            "excess kurtosis", analytic, fourth - 3.0, _error(influence), sample.size, bound=self.limits.value
        )

    def covariance(self, first: FloatArray, second: FloatArray, analytic: float) -> Row:
        """Compare the covariance of two statistics of the same draws."""
        product = (first - first.mean()) * (second - second.mean())
        size = first.size
        value = float(product.sum() / (size - 1))
        return self._row("covariance", analytic, value, _error(product), size, bound=self.limits.value)

    def correlation(self, first: FloatArray, second: FloatArray, analytic: float) -> Row:
        """Compare the correlation of two statistics of the same draws."""
        x, y = _standardized(first), _standardized(second)
        value = float(np.mean(x * y))
        influence = x * y - 0.5 * value * (x**2 + y**2)
        return self._row(
            "correlation", analytic, value, _error(influence), first.size, spread=1.0, bound=self.limits.mean
        )

    def quantiles(self, sample: FloatArray, probabilities: Sequence[float], analytic: FloatArray) -> Iterator[Row]:
        """Quantiles; their errors from the order statistics one binomial standard deviation away."""
        ordered, size, spread = np.sort(sample), sample.size, float(sample.std())
        for p, expected in zip(probabilities, analytic, strict=True):
            if min(p, 1.0 - p) * size < _FEWEST:
                continue
            rank = p * size + np.sqrt(p * (1.0 - p) * size) * np.array([-1.0, 0.0, 1.0])
            below, value, above = ordered[np.clip(np.floor(rank), 0, size - 1).astype(int)]
            error = 0.5 * float(above - below)
            yield self._row(
                f"quantile {p:g}", float(expected), float(value), error, size, spread=spread, bound=self.limits.quantile
            )

    def tail(self, sample: FloatArray, threshold: float, probability: float, side: str) -> Row:
        """Compare how often the draws lie beyond the law's quantile."""
        beyond = sample > threshold if side == "upper" else sample < threshold
        return self.count(int(beyond.sum()), sample.size, probability, f"{side} tail {probability:g}", side)

    def count(self, hits: int, draws: int, probability: float, of: str, side: str = "") -> Row:
        """Compare a counted event with its probability."""
        expected = probability * draws
        low, high = count_interval(hits) / expected
        z = count_score(hits, draws, probability)
        bound = None if self.method == EXACT else self.limits.tail.get((probability, side))
        row = Row(
            self.section, self.quantity, self.parameters, of, self.method, probability, hits / draws,
            math.sqrt(probability * (1.0 - probability) / draws), z, draws, ratio=hits / expected, group=self.group,
            **(_verdict(z, "z", Z_LIMIT) if self.method == EXACT else {}),
        )  # fmt: skip
        if bound is None:
            return row
        judged = {"judged": "ratio", "low": 1.0 - bound, "high": 1.0 + bound}
        return Row(**{**_shallow(row), **judged, "passed": bool(low <= 1.0 + bound and high >= 1.0 - bound)})

    def number(
        self, of: str, analytic: float, simulated: float, error: float, draws: int, spread: float | None = None
    ) -> Row:
        """Any other number with its error; an asymptotic one is judged by its ratio, or in units of ``spread``."""
        bound = self.limits.value if spread is None else self.limits.mean
        return self._row(of, analytic, simulated, error, draws, spread=spread, bound=bound)

    def _row(
        self, of: str, analytic: float, simulated: float, error: float, draws: int, *,
        spread: float | None = None, bound: float | None = None,
    ) -> Row:  # fmt: skip
        z = (simulated - analytic) / error if error > 0.0 else math.nan
        deviation = None if spread is None else (analytic - simulated) / spread if spread > 0.0 else math.nan
        ratio = simulated / analytic if spread is None and analytic != 0.0 else None
        if self.method == EXACT:
            verdict = _verdict(z, "z", Z_LIMIT)
        elif spread is not None:
            verdict = _verdict(deviation, "deviation", bound, allowance=ERRORS * error / spread if spread else 0.0)
        else:
            allowance = ERRORS * error / abs(analytic) if analytic else 0.0
            verdict = _verdict(ratio, "ratio", bound, 1.0, allowance)
        return Row(
            self.section, self.quantity, self.parameters, of, self.method, float(analytic), simulated, error, z, draws,
            deviation=deviation, ratio=ratio, group=self.group, **verdict,
        )  # fmt: skip


def count_interval(hits: int) -> FloatArray:
    """Interval of a Poisson mean at CONFIDENCE."""
    outside = 0.5 * (1.0 - CONFIDENCE)
    return np.array([stats.gamma.ppf(outside, hits) if hits else 0.0, stats.gamma.isf(outside, hits + 1)])


def count_score(hits: int, draws: int, probability: float) -> float:
    """Return the normal score of a binomial count (half its own probability on each side): a z for few counts too."""
    law = stats.binom(draws, probability)
    half = 0.5 * float(law.pmf(hits))
    below, above = float(law.cdf(hits)) - half, float(law.sf(hits)) + half
    if min(below, above) < _SMALLEST:
        return float((hits - law.mean()) / law.std())
    return float(special.ndtri(below) if below < above else -special.ndtri(above))


def _verdict(
    value: float | None, judged: str, bound: float | None, centre: float = 0.0, allowance: float = 0.0
) -> dict[str, Any]:
    if value is None or bound is None:
        return {}
    passed = bool(abs(value - centre) <= bound + allowance)
    return {"judged": judged, "low": centre - bound, "high": centre + bound, "passed": passed}


def _standardized(sample: FloatArray) -> FloatArray:
    return (sample - sample.mean()) / sample.std()


def _error(influence: FloatArray) -> float:
    return float(influence.std() / math.sqrt(influence.size))


def _shallow(row: Row) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__dataclass_fields__}


def _rounded(value: Any, digits: int) -> Any:
    if isinstance(value, float):
        return None if math.isnan(value) else float(f"{value:.{digits}g}")
    return value
