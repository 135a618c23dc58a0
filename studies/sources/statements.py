"""Statements of the posts about all heads of a model, as numbers: scores, trends along layers, exponents, verdicts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import xarray as xr
from scipy import stats

from rmtbase.drawing.axes import statistic_words
from rmtbase.laws import product_element
from rmtbase.models import known_models
from rmtbase.tables import heads_present
from studies.sources.heads import scoring
from studies.sources.recipe import Null, Row, Run

CONVENTIONS = (("λ", ""), ("s", "_singular"))
"""Each convention with the end of the names of its statistics."""
_OF_ELEMENTS = ("skewness", "excess_kurtosis", "entropy_residual", "kl_matched_normal", "core_sigma")
_Z_95 = 1.96


def scored(run: Run) -> xr.DataTree:
    """Score all heads of a run's model, with the elements of each; both posts read the same file."""
    return run.scores(**scoring(run))


def entropy_of_product(sigma: np.ndarray, d_model: int = 768, d_head: int = 64) -> np.ndarray:
    """Entropy of an element of a random W_QK with this σ, at the shape of post 1's figure 14."""
    law = product_element(d_model, d_head)
    return 0.5 * np.log(2 * np.pi * np.e * sigma**2) - float(law.kl_to_normal())


class Heads(NamedTuple):
    """Statistic of every head that has it, with its null's mean and standard deviation, and its layer."""

    value: np.ndarray
    mean: np.ndarray
    spread: np.ndarray
    layer: np.ndarray

    def by_layer(self) -> np.ndarray:
        """Mean over the heads of each layer."""
        return np.array([self.value[self.layer == one].mean() for one in np.unique(self.layer)])

    def null(self, of: str = "one head") -> Null | None:
        """Null of the median head; None if it has none."""
        if not np.isfinite(self.mean).any():
            return None
        mean = float(np.nanmedian(self.mean))
        if not np.isfinite(self.spread).any():
            return Null(mean, of=of)
        spread = float(np.nanmedian(self.spread))
        return Null(mean, spread, mean - _Z_95 * spread, mean + _Z_95 * spread, f"{of}, 95 %")

    def share_within(self) -> float:
        """Share of heads within 95 % of their nulls."""
        return float(np.mean(np.abs(self.value - self.mean) <= _Z_95 * self.spread))

    def where(self, chosen: np.ndarray) -> Heads:
        """Select the chosen heads."""
        return Heads(self.value[chosen], self.mean[chosen], self.spread[chosen], self.layer[chosen])


def of_heads(tree: xr.DataTree, *statistics: str) -> tuple[Heads, ...]:
    """Select statistics of the spectra, for the heads that have all of them and are not zeros."""
    heads = tree["heads"].to_dataset().transpose("layer", "head", ...)
    ones = [heads.sel(statistic=name) for name in statistics]
    there = heads_present(heads) & (heads["observed"].sel(statistic="trace").values > 0)
    there &= np.all([np.isfinite(one["observed"].values) for one in ones], axis=0)
    return tuple(_heads(there, *(one[name].values for name in ("observed", "null_mean", "null_std"))) for one in ones)


def measured(tree: xr.DataTree, component: str) -> tuple[xr.Dataset, np.ndarray]:
    """Select the elements of one matrix of heads, and the heads that have everything needed below."""
    elements = tree["heads/elements"].to_dataset().sel(component=component).transpose("layer", "head", ...)
    observed = elements["observed"].sel(element_statistic=list(_OF_ELEMENTS))
    return elements, (elements["sigma"].values > 0) & observed.notnull().all("element_statistic").values


def of_elements(tree: xr.DataTree, statistic: str, component: str) -> Heads:
    """Select a statistic of the elements of one matrix, for all heads that have each; σ has no null."""
    elements, there = measured(tree, component)
    sigma = elements["sigma"].values
    if statistic == "sigma":
        nothing = np.full_like(sigma, np.nan)
        return _heads(there, sigma, nothing, nothing)
    one = elements.sel(element_statistic="entropy_residual" if statistic == "entropy" else statistic)
    value, mean, spread = (one[name].values for name in ("observed", "null_mean", "null_std"))
    if statistic == "entropy":
        normal = 0.5 * np.log(2 * np.pi * np.e * np.where(sigma > 0, sigma, np.nan) ** 2)
        value, mean = value + normal, mean + normal
    return _heads(there, value, mean, spread)


def _heads(there: np.ndarray, value: np.ndarray, mean: np.ndarray, spread: np.ndarray) -> Heads:
    layer = np.broadcast_to(np.arange(there.shape[0])[:, None], there.shape)
    return Heads(value[there], mean[there], spread[there], layer[there])


class Trend(NamedTuple):
    """Spearman's correlation, and its null for numbers in random order: zero, with standard deviation 1/√(n − 1)."""

    value: float
    null: Null | None


def trend(x: np.ndarray, y: np.ndarray, of: str) -> Trend:
    """Rank correlation of y with x: +1 if y always rises, NaN for fewer than three."""
    if x.size < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return Trend(float("nan"), None)
    error = 1.0 / np.sqrt(x.size - 1)
    value, reach = float(np.corrcoef(stats.rankdata(x), stats.rankdata(y))[0, 1]), min(_Z_95 * error, 1.0)
    return Trend(value, Null(0.0, error, -reach, reach, f"{of} in any order, 95 %"))


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


def verdict(run: Run, holds: bool, *models: str) -> str:
    """Verdict on a statement about a published model: its own verdict, or that it is needed and what this one shows.

    Without a name the model is GPT-2; with several, any of them will do.
    """
    models = models or ("gpt2",)
    if any(run.is_of(one) for one in models):
        return here(holds)
    hub_id = next(one.hub_id for one in known_models() if one.name == models[0])
    return f"needs {hub_id} (`--model {hub_id}`); here it {_holds(holds)}"


def of_many(holds: bool) -> str:
    """Verdict on a statement about the heads of many models together."""
    return f"needs the models of post 1's table 1 (recipe `cross`); of this model alone it {_holds(holds)}"


def here(holds: bool) -> str:
    """Verdict on a statement about every model, from this one."""
    return "agrees" if holds else "differs"


def early(heads: Heads) -> np.ndarray:
    """Select the heads in the first quarter of the layers, at least one layer."""
    return heads.layer < max(1, (int(heads.layer.max()) + 1) // 4)


def medians(heads: Heads, value: np.ndarray) -> tuple[float, float]:
    """Return the medians over the heads of the first quarter of the layers and over the others; NaN for no heads."""
    first = early(heads)
    return float(np.median(value[first])), float(np.median(value[~first])) if (~first).any() else float("nan")


def chance(chosen: np.ndarray, count: int) -> Null:
    """Null of the share of the chosen heads among ``count`` heads picked at random."""
    share = float(chosen.mean())
    return Null(share, float(np.sqrt(share * (1.0 - share) / count)), of="heads picked at random")


def by_place(rows: list[Row]) -> tuple[Row, ...]:
    """Rows in the order of the figures that they belong to."""
    return tuple(sorted(rows, key=lambda row: int(row.place.rpartition(" ")[2])))


def _holds(it: bool) -> str:
    return "holds" if it else "does not hold"


def median_row(place: str, heads: Heads, statistic: str, published: float | str, decision: str, **more: str) -> Row:
    """Compare the median head of a statistic with its null."""
    words = more.pop("quantity", f"{statistic_words(statistic).removesuffix(' of singular values')}, median head")
    return Row(place, words, published, float(np.median(heads.value)), heads.null(), decision, **more)
