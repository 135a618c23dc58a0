"""Rules, of other tools and our own, that decide whether a matrix has learned anything, and in how many directions.

Each is used as its documentation says. A tool's code is run if it is installed. Otherwise, or if it is no package, its
published formulas are run if they are short; :attr:`Rule.by` says which.
"""

import contextlib
import io
import logging
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmtbase.laws import marchenko_pastur
from rmtbase.linalg import product_singular_values
from rmtbase.results.signal import heavy_tails, spectral_signal

LEVEL = 0.05
FAST, MEDIUM, SLOW = range(3)  # what a rule costs: how many draws it is asked about
UNDER_TRAINED = "under-trained"


@dataclass(frozen=True, eq=False)
class Weights:
    """Matrix (rows, columns), or two factors (h, d) of W_QK = W_QᵀW_K."""

    factors: tuple[NDArray[np.float64], ...]

    @property
    def is_product(self) -> bool:
        return len(self.factors) > 1

    @property
    def dims(self) -> tuple[int, ...]:
        first = self.factors[0].shape
        return (first[1], first[0], self.factors[1].shape[1]) if self.is_product else first

    @property
    def shape(self) -> tuple[int, int]:
        return self.dims[0], self.dims[-1]

    @cached_property
    def dense(self) -> NDArray[np.float64]:
        return self.factors[0].T @ self.factors[1] if self.is_product else self.factors[0]

    @cached_property
    def singular_values(self) -> NDArray[np.float64]:
        """The min(dims) that are not zero by structure, descending; of one matrix by its Gram matrix, in float64."""
        if self.is_product:
            return product_singular_values(*self.factors)
        wide = self.dense if self.dense.shape[0] <= self.dense.shape[1] else self.dense.T
        return np.sqrt(np.clip(np.linalg.eigvalsh(wide @ wide.T)[::-1], 0.0, None))


class Verdict(NamedTuple):
    """Verdict on whether anything was learned, and in how many directions; NaN if the rule gives no number."""

    learned: bool
    directions: float = math.nan


@dataclass(frozen=True)
class Rule:
    """Rule that decides whether a matrix has learned anything.

    Attributes:
        name: short.
        by: whose code or which formula is run.
        says: when it says that something was learned, or how many directions it keeps.
        made_for: what its authors made it for.
        call: the rule.
        products: whether it is asked about W_QK.
        cost: of one call.
        largest: the most singular values that it is asked about, for what it costs.
        planted: whether it is asked about planted directions.
        reads_spectrum: whether it begins with the singular values, whose time is then part of its own.
    """

    name: str
    by: str
    says: str
    made_for: str
    call: Callable[[Weights], Verdict]
    products: bool = True
    cost: int = FAST
    largest: int = 10**9
    planted: bool = True
    reads_spectrum: bool = True


def installed(package: str) -> str | None:
    """Return the version of a package; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def rules() -> list[Rule]:
    """All that can be run here, our own first."""
    named = {package: f"code of {package} {installed(package)}" for package in ("weightwatcher", "optht")}
    found = [
        Rule("rmtbase signal", "rmtbase", f"p ≤ {LEVEL:g}; as many as are tested", "spectra and products", _signal),
        Rule("rmtbase heavy tails", "rmtbase", f"exponent p ≤ {LEVEL:g}, law not ruled out", "one matrix", _tails,
             products=False, cost=MEDIUM, largest=256, planted=False, reads_spectrum=False),
        Rule("IQR signal-to-noise", "formulas of laserRMT and Spectrum", "s > IQR/1.349 (1 + √β)",
             "choosing layers to fine-tune, and their rank", interquartile_verdict, products=False),
        Rule("4/√3, σ known", "formula of Gavish and Donoho (2014)", "s > λ(β) √n σ", "denoising i.i.d. noise",
             _hard_threshold_known),
        Rule("4/√3, σ unknown", "formula of Gavish and Donoho (2014)", "s > ω(β) median s", "denoising i.i.d. noise",
             _hard_threshold),
        Rule("90 % of the energy", "formula", "fewest with 90 % of Σs²", "compression", lambda of: _energy(of, 0.9)),
        Rule("99 % of the energy", "formula", "fewest with 99 % of Σs²", "compression", lambda of: _energy(of, 0.99)),
    ]  # fmt: skip
    if installed("optht"):
        found += [
            Rule("optht, σ known", named["optht"], "its optht(W, s, σ)", "denoising i.i.d. noise",
                 lambda of: _optht(of, _deviation(of)), cost=MEDIUM),
            Rule("optht, σ unknown", named["optht"], "its optht(W, s)", "denoising i.i.d. noise",
                 lambda of: _optht(of, None), cost=MEDIUM),
        ]  # fmt: skip
    if installed("weightwatcher"):
        found += [
            Rule("WeightWatcher α", named["weightwatcher"], "α ≤ 6: no warning 'under-trained'",
                 "comparing trained models", _alpha, cost=MEDIUM, reads_spectrum=False),
            Rule("WeightWatcher spikes", named["weightwatcher"], "num_spikes of mp_fit=True", "one matrix", _spikes,
                 cost=SLOW, reads_spectrum=False),
        ]  # fmt: skip
    return found


def _signal(of: Weights) -> Verdict:
    found = spectral_signal(of.singular_values**2, of.dims, LEVEL)
    number = float(found.n_directions) if bool(found.noise_floor) else math.nan
    return Verdict(float(found.first_p_value) <= LEVEL, number)


def _tails(of: Weights) -> Verdict:
    return Verdict(heavy_tails(of.dense, level=LEVEL).is_power_law)


def interquartile_verdict(of: Weights) -> Verdict:
    """Count the singular values above the recipe's threshold."""
    number = int((of.singular_values > interquartile_threshold(of.singular_values, of.shape)).sum())
    return Verdict(number > 0, number)


def interquartile_threshold(s: NDArray[np.float64], shape: tuple[int, int]) -> float:
    """σ (1 + √β), σ the interquartile range of the singular values over 1.349, β the shorter side over the longer."""
    low, high = np.quantile(s, (0.25, 0.75))
    return float((high - low) / 1.349 * (1.0 + math.sqrt(min(shape) / max(shape))))


def interquartile_ratio(s: NDArray[np.float64], shape: tuple[int, int]) -> float:
    """Signal-to-noise ratio by which layers are ranked: Σ above the threshold over Σ below, over the largest."""
    above = s > interquartile_threshold(s, shape)
    noise = 1.0 if above.all() else float(s[~above].sum())
    return float(s[above].sum()) / noise / float(s[0])


def _deviation(of: Weights) -> float:
    """Root mean square of the elements, taken as the known noise."""
    return float(np.linalg.norm(of.singular_values)) / math.sqrt(math.prod(of.shape))


def _known_coefficient(beta: float) -> float:
    return math.sqrt(2.0 * (beta + 1.0) + 8.0 * beta / (beta + 1.0 + math.sqrt(beta**2 + 14.0 * beta + 1.0)))


@lru_cache
def _unknown_coefficient(shape: tuple[int, int]) -> float:
    median = marchenko_pastur(*shape).ppf(0.5)
    return _known_coefficient(min(shape) / max(shape)) * math.sqrt(max(shape) / float(median))


def _hard_threshold_known(of: Weights) -> Verdict:
    cut = _known_coefficient(min(of.shape) / max(of.shape)) * math.sqrt(max(of.shape)) * _deviation(of)
    number = int((of.singular_values > cut).sum())
    return Verdict(number > 0, number)


def _hard_threshold(of: Weights) -> Verdict:
    """Threshold at the median of the structurally nonzero singular values; the median of all of W_QK's is zero."""
    number = int((of.singular_values > _unknown_coefficient(of.shape) * np.median(of.singular_values)).sum())
    return Verdict(number > 0, number)


def _optht(of: Weights, sigma: float | None) -> Verdict:
    from optht import optht

    try:
        number = int(optht(min(of.shape) / max(of.shape), of.singular_values, sigma))
    except ValueError:  # the largest index of an empty array: none is above
        number = 0
    return Verdict(number > 0, number)


def _energy(of: Weights, share: float) -> Verdict:
    squares = of.singular_values**2
    return Verdict(True, int(np.searchsorted(np.cumsum(squares) / squares.sum(), share)) + 1)


def _details(of: Weights, **options: bool) -> dict[str, object]:
    """Run WeightWatcher's analysis of a layer with these weights."""
    import torch

    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import weightwatcher

        logging.getLogger("weightwatcher").setLevel(logging.CRITICAL)
        rows, columns = of.shape
        layer = torch.nn.Linear(columns, rows, bias=False)
        layer.weight.data = torch.from_numpy(of.dense.astype(np.float32))
        model = torch.nn.Sequential(layer)
        details = weightwatcher.WeightWatcher(model=model).analyze(plot=False, **options)
    return details.iloc[0].to_dict()


def _alpha(of: Weights) -> Verdict:
    found = _details(of)
    return Verdict(found["status"] == "success" and found["warning"] != UNDER_TRAINED)


def _spikes(of: Weights) -> Verdict:
    number = int(str(_details(of, mp_fit=True)["num_spikes"]))
    return Verdict(number > 0, number)
