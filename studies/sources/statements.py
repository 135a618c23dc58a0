"""Statements of the posts about all heads of a model, as numbers: scores, trends along layers, exponents, verdicts."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import xarray as xr
from scipy import stats

from rmtbase.laws import product_element
from rmtbase.models import known_models
from rmtbase.tables import heads_present
from studies.sources.heads import scoring
from studies.sources.random_heads import RandomHeads, random_heads
from studies.sources.recipe import Null, Row, Run, null_of_draws
from studies.sources.verdicts import Claim, Kind, Side, Verdict, beyond_draws, decided, needs

CONVENTIONS = (("λ", ""), ("s", "_singular"))
"""Each convention with the end of the names of its statistics."""
_OF_ELEMENTS = ("skewness", "excess_kurtosis", "entropy_residual", "kl_matched_normal", "core_sigma")
_Z_95 = 1.96
OF_RANDOM = "untrained models of these shapes"


class Scored(NamedTuple):
    """Scores of a model, and the random heads that they are compared with; None if its heads have no common shape."""

    tree: xr.DataTree
    random: RandomHeads | None


def scored(run: Run) -> xr.DataTree:
    """Score all heads of a run's model, with the elements of each; both posts read the same file."""
    return run.scores(**scoring(run))


def beside_random(run: Run, tree: xr.DataTree) -> Scored:
    """Set random heads of the same shapes, scored in the same way, beside a model's scores."""
    return Scored(tree, random_heads(run, tree))


def entropy_of_product(sigma: np.ndarray, d_model: int = 768, d_head: int = 64) -> np.ndarray:
    """Entropy of an element of a random W_QK with this σ, at the shape of post 1's figure 14."""
    law = product_element(d_model, d_head)
    return 0.5 * np.log(2 * np.pi * np.e * sigma**2) - float(law.kl_to_normal())


class Heads(NamedTuple):
    """Statistic of every head that has it.

    Attributes:
        value: observed.
        mean: of its null.
        spread: standard deviation of its null.
        layer: of each head.
        drawn: values of untrained models, (draw, head); no draws if they were not asked for.
        widening: factor by which a level of untrained models is wider than these (:class:`RandomHeads`).
    """

    value: np.ndarray
    mean: np.ndarray
    spread: np.ndarray
    layer: np.ndarray
    drawn: np.ndarray = np.empty((0, 0))
    widening: float = 1.0

    def by_layer(self) -> np.ndarray:
        """Mean over the heads of each layer."""
        return layer_means(self.layer)(self.value)

    def null(self, of: str = "one head") -> Null | None:
        """Null of the median head; None if it has none."""
        if not np.isfinite(self.mean).any():
            return None
        mean = float(np.nanmedian(self.mean))
        if not np.isfinite(self.spread).any():
            return Null(mean, of=of)
        spread = float(np.nanmedian(self.spread))
        return Null(mean, spread, mean - _Z_95 * spread, mean + _Z_95 * spread, f"{of}, 95 %")

    def within(self, value: np.ndarray | None = None) -> np.ndarray:
        """Mask of values within 95 % of their nulls."""
        return np.abs((self.value if value is None else value) - self.mean) <= _Z_95 * self.spread

    def share_within(self) -> float:
        """Share of heads within 95 % of their nulls."""
        return float(np.mean(self.within()))

    def where(self, chosen: np.ndarray) -> Heads:
        """Select the chosen heads."""
        drawn = self.drawn[:, chosen] if self.drawn.size else self.drawn
        own = (self.value[chosen], self.mean[chosen], self.spread[chosen], self.layer[chosen])
        return Heads(*own, drawn, self.widening)

    def of(self, value: np.ndarray, drawn: np.ndarray) -> Heads:
        """Replace the values, of the model and of the untrained models."""
        nothing = np.full_like(value, np.nan)
        return Heads(value, nothing, nothing, self.layer, drawn, self.widening)


def of_heads(both: Scored | xr.DataTree, *statistics: str) -> tuple[Heads, ...]:
    """Select statistics of the spectra, for the heads that have all of them and are not zeros."""
    both = both if isinstance(both, Scored) else Scored(both, None)
    heads = both.tree["heads"].to_dataset().transpose("layer", "head", ...)
    ones = [heads.sel(statistic=name) for name in statistics]
    there = heads_present(heads) & (heads["observed"].sel(statistic="trace").values > 0)
    there &= np.all([np.isfinite(one["observed"].values) for one in ones], axis=0)
    selected = []
    for name, one in zip(statistics, ones, strict=True):
        drawn = None
        if both.random is not None:
            drawn = both.random.tree["heads"].dataset["observed"].sel(statistic=name).values
        values = (one[what].values for what in ("observed", "null_mean", "null_std"))
        selected.append(_heads(both, there, *values, drawn=drawn))
    return tuple(selected)


def measured(tree: xr.DataTree, component: str) -> tuple[xr.Dataset, np.ndarray]:
    """Select the elements of one matrix of heads, and the heads that have everything needed below."""
    elements = tree["heads/elements"].to_dataset().sel(component=component).transpose("layer", "head", ...)
    observed = elements["observed"].sel(element_statistic=list(_OF_ELEMENTS))
    return elements, (elements["sigma"].values > 0) & observed.notnull().all("element_statistic").values


def of_elements(both: Scored | xr.DataTree, statistic: str, component: str) -> Heads:
    """Select a statistic of the elements of one matrix, for all heads that have each; σ has no null."""
    both = both if isinstance(both, Scored) else Scored(both, None)
    there = measured(both.tree, component)[1]
    value, mean, spread = _values_of_elements(both.tree, statistic, component)
    drawn = None if both.random is None else _values_of_elements(both.random.tree, statistic, component)[0]
    return _heads(both, there, value, mean, spread, drawn, component in ("W_K", "W_V"))


def _values_of_elements(tree: xr.DataTree, statistic: str, component: str) -> tuple[np.ndarray, ...]:
    """Observed values, null means and null standard deviations, (layer, head)."""
    elements, _ = measured(tree, component)
    sigma = elements["sigma"].values
    if statistic == "sigma":
        nothing = np.full_like(sigma, np.nan)
        return sigma, nothing, nothing
    one = elements.sel(element_statistic="entropy_residual" if statistic == "entropy" else statistic)
    value, mean, spread = (one[name].values for name in ("observed", "null_mean", "null_std"))
    if statistic == "entropy":
        normal = 0.5 * np.log(2 * np.pi * np.e * np.where(sigma > 0, sigma, np.nan) ** 2)
        value, mean = value + normal, mean + normal
    return value, mean, spread


def _heads(
    both: Scored,
    there: np.ndarray,
    value: np.ndarray,
    mean: np.ndarray,
    spread: np.ndarray,
    drawn: np.ndarray | None,
    of_keys: bool = False,
) -> Heads:
    layer = np.broadcast_to(np.arange(there.shape[0])[:, None], there.shape)
    own = (value[there], mean[there], spread[there], layer[there])
    if both.random is None or drawn is None:
        return Heads(*own)
    return Heads(*own, both.random.values(drawn, there, of_keys), both.random.widening)


Measure = Callable[..., np.ndarray]
"""Number made of the values of one or more statistics, (..., head), along the last axis."""


class Compared(NamedTuple):
    """Number made of a model's heads, its null, and the claim that it is learned."""

    value: float
    null: Null | None
    claim: Claim


def learned(measure: Measure, side: Side, *heads: Heads, is_level: bool = True) -> Compared:
    """Compare a number made of the model's heads with that of untrained models.

    A level, such as a median, is compared with wider draws, since random heads are only so many; what only compares
    heads of one model with each other, such as a trend along layers, is not (``is_level`` False).
    """
    value = float(measure(*(one.value for one in heads)))
    if not all(one.drawn.size for one in heads):
        return Compared(value, None, Claim(Kind.LEARNED, value))
    drawn = np.asarray(measure(*(one.drawn for one in heads)), dtype=float)
    drawn = drawn[np.isfinite(drawn)]
    if not drawn.size:
        return Compared(value, None, Claim(Kind.LEARNED, value))
    mean = float(drawn.mean())
    if is_level:
        drawn = mean + heads[0].widening * (drawn - mean)
    return Compared(value, null_of_draws(drawn, OF_RANDOM), beyond_draws(value, drawn, side))


def layer_means(layer: np.ndarray) -> Measure:
    """Make the function that averages values over the heads of each layer, (..., layer)."""
    layers = np.unique(layer)
    weights = (layer[:, None] == layers) / (layer[:, None] == layers).sum(axis=0)
    return lambda value: np.asarray(value) @ weights


def along_layers(heads: Heads, side: Side, part: slice = slice(None)) -> Compared:
    """Rank correlation of the layer averages with the layer, in a part of the layers."""
    means = layer_means(heads.layer)

    def measure(value: np.ndarray) -> np.ndarray:
        averages = means(value)[..., part]
        return rank_correlation(np.arange(averages.shape[-1]), averages)

    return learned(measure, side, heads, is_level=False)


def rank_correlation(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Spearman's correlation of y with x along the last axis; NaN for fewer than three, and for equal values."""
    x, y = np.broadcast_arrays(np.asarray(x, dtype=float), np.asarray(y, dtype=float))
    if x.shape[-1] < 3:
        return np.full(x.shape[:-1], np.nan)
    both = [stats.rankdata(one, axis=-1) for one in (x, y)]
    centred = [one - one.mean(axis=-1, keepdims=True) for one in both]
    size = np.sqrt(np.prod([(one**2).sum(axis=-1) for one in centred], axis=0))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(size > 0, (centred[0] * centred[1]).sum(axis=-1) / size, np.nan)


def correlation_claim(value: float, count: int, margin: float) -> Claim:
    """Claim that a rank correlation is small, by Fisher's transform, whose standard error is 1.03/√(n − 3)."""
    error = 1.03 / np.sqrt(count - 3) if count > 3 else float("nan")
    reach = float(np.arctanh(margin))
    return Claim(Kind.EQUALITY, float(np.arctanh(value)), low=-reach, high=reach, error=float(error))


class Exponent(NamedTuple):
    """Exponent of y ∝ x^value, fitted in logarithms, with its standard error and the scatter of ln y about the fit."""

    value: float
    error: float
    scatter: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ± {self.error:.2f}"


def exponent(x: np.ndarray, y: np.ndarray) -> Exponent:
    """Fit ln y on ln x by least squares; NaN if all x are equal, as for a single head."""
    if np.unique(x).size < 2:
        return Exponent(float("nan"), float("nan"), float("nan"))
    (slope, intercept), covariance = np.polyfit(np.log(x), np.log(y), 1, cov="unscaled")
    rest = np.log(y) - intercept - slope * np.log(x)
    error = np.sqrt(covariance[0, 0] * (rest**2).sum() / max(x.size - 2, 1))
    return Exponent(float(slope), float(error), float(rest.std()))


def verdict(run: Run, claim: Claim, *models: str) -> Verdict:
    """Verdict on a statement about a published model: its own verdict, or that it is needed and what this one shows.

    Without a name the model is GPT-2; with several, any of them will do.
    """
    models = models or ("gpt2",)
    if any(run.is_of(one) for one in models):
        return decided(claim)
    hub_id = next(one.hub_id for one in known_models() if one.name == models[0])
    return needs(f"{hub_id} (`--model {hub_id}`)", claim)


def of_many(claim: Claim) -> Verdict:
    """Verdict on a statement about the heads of many models together."""
    return needs("the models of post 1's table 1 (recipe `cross`)", claim)


def here(claim: Claim) -> Verdict:
    """Verdict on a statement about every model, from this one."""
    return decided(claim)


def identity(holds: bool) -> Claim:
    """Claim that is true of any sample, or of none."""
    return Claim(Kind.LAW, float(holds), low=1.0, high=1.0)


def early(heads: Heads) -> np.ndarray:
    """Select the heads in the first quarter of the layers, at least one layer."""
    return heads.layer < max(1, (int(heads.layer.max()) + 1) // 4)


def early_over_others(heads: Heads, of: Measure = np.median) -> Measure:
    """Make the function that divides a mean or median over the first quarter of the layers by that over the others."""
    first = early(heads)

    def measure(value: np.ndarray) -> np.ndarray:
        if first.all():
            return np.full(np.shape(value)[:-1], np.nan)
        return of(value[..., first], axis=-1) / of(value[..., ~first], axis=-1)

    return measure


def share_of_extreme(chosen: np.ndarray, share: float, largest: bool) -> Measure:
    """Make the function that counts which share of the largest, or smallest, values belongs to the chosen heads."""

    def measure(value: np.ndarray) -> np.ndarray:
        end = np.quantile(value, 1.0 - share if largest else share, axis=-1, keepdims=True)
        extreme = value >= end if largest else value <= end
        return (extreme & chosen).sum(axis=-1) / extreme.sum(axis=-1)

    return measure


def median(value: np.ndarray) -> np.ndarray:
    """Median over the heads."""
    return np.median(value, axis=-1)


def medians(heads: Heads, value: np.ndarray) -> tuple[float, float]:
    """Return the medians over the heads of the first quarter of the layers and over the others; NaN for no heads."""
    first = early(heads)
    return float(np.median(value[first])), float(np.median(value[~first])) if (~first).any() else float("nan")


def by_place(rows: list[Row]) -> tuple[Row, ...]:
    """Rows in the order of the figures that they belong to."""
    return tuple(sorted(rows, key=lambda row: int(row.place.rpartition(" ")[2])))
