"""Heads of one model, as the recipes over several models read them from its scores."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from rmtbase.models import demo_revisions
from rmtbase.nulls import Gaussian
from studies.sources.recipe import Run

DRAWS = 2_000
"""Of a shape that the atlas lacks, with ``--quick``."""


class Measured(NamedTuple):
    """Statistic of every head, (layer, head), with the mean and the standard deviation of its null."""

    value: np.ndarray
    mean: np.ndarray
    sd: np.ndarray

    def by_layer(self) -> Measured:
        """Means over the heads of each layer, with the standard deviation of such a mean."""
        count = np.maximum(np.isfinite(self.value).sum(axis=1), 1)
        return Measured(_mean(self.value), _mean(self.mean), np.sqrt(_mean(self.sd**2) / count))


@dataclass(frozen=True)
class Heads:
    """Scores of the heads of one model, under a short name."""

    label: str
    tree: xr.DataTree

    def spectral(self, statistic: str) -> Measured:
        """Select a statistic of ``rmtbase.statistics.SPECTRAL_STATISTICS``."""
        heads = self.tree["heads"].dataset.sel(statistic=statistic)
        return Measured(*(heads[name].values for name in ("observed", "null_mean", "null_std")))

    def element(self, component: str, statistic: str) -> Measured:
        """Select a statistic of ``rmtbase.statistics.ELEMENT_STATISTICS`` of W_Q, W_K or W_QK."""
        one = self._elements(component).sel(element_statistic=statistic)
        return Measured(*(one[name].values for name in ("observed", "null_mean", "null_std")))

    def sigma(self, component: str) -> np.ndarray:
        """Select the standard deviations of the elements of W_Q, W_K or W_QK, (layer, head)."""
        return self._elements(component)["sigma"].values

    def numbers(self, component: str) -> int:
        """Count the elements of a head's matrix."""
        one = self._elements(component)
        return int(np.nanmax(one["n_rows"].values * one["n_columns"].values))

    @property
    def eigenvalues(self) -> np.ndarray:
        """λ of W_QK, (layer, head, index)."""
        return self.tree["heads"].dataset["eigenvalue"].values

    @property
    def d_head(self) -> int:
        """Largest number of eigenvalues of a head."""
        return int(self.eigenvalues.shape[-1])

    def _elements(self, component: str) -> xr.Dataset:
        return self.tree["heads/elements"].dataset.sel(component=component)


def scoring(run: Run) -> dict[str, Any]:
    """Options of the scores that all recipes of the posts read: the elements of W_Q, W_K and W_QK of each head."""
    quick: dict[str, Any] = {"null": Gaussian(draws=DRAWS)} if run.quick else {}
    return {"elements": "heads", "matrices": "none"} | quick


def heads_of(run: Run) -> list[Heads]:
    """Score the heads of the models of a run; of the demo, those of each bundled step unless a step is named."""
    steps = [f"demo@{revision}" for revision in demo_revisions()]
    models = [one for model in run.models or (run.model,) for one in (steps if model == "demo" else [model])]
    return [Heads(_label(model), run.scores(model, **scoring(run))) for model in models]


def _label(model: str) -> str:
    name, _, revision = model.partition("@")
    return f"{Path(name).name}{f' {revision}' if revision else ''}"


def _mean(values: np.ndarray) -> np.ndarray:
    """Mean over heads; NaN for a layer without heads."""
    known = np.isfinite(values)
    return np.where(known, values, 0.0).sum(axis=1) / np.where(known.any(axis=1), known.sum(axis=1), np.nan)
