"""Tables of a comparison for each single model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float

from rmtbase.results.comparison._classes import FUSED, TRANSMISSION, attention_classes, published_class
from rmtbase.results.comparison._common_origin import fingerprint
from rmtbase.results.comparison._diagnose import matrices_of, of_matrices, require_weibull
from rmtbase.results.comparison._shape_band import ShapeBand, shape_band
from rmtbase.results.comparison._training_budget import Training
from rmtbase.shown import shown
from rmtbase.tables import heads_present

LEVEL = 0.05
_FURTHER = {"weibull_r_squared": "r_squared", "weibull_closure": "closure", "body_tail_gap": "body_tail_gap"}


class FitsOfMatrices(NamedTuple):
    """k, N, q, λ, σ and the body-tail gap of fitted matrices."""

    shapes: Float[np.ndarray, " matrix"]
    numbers: Float[np.ndarray, " matrix"]
    q_values: Float[np.ndarray, " matrix"]
    scales: Float[np.ndarray, " matrix"]
    sigmas: Float[np.ndarray, " matrix"]
    gaps: Float[np.ndarray, " matrix"]


@dataclass(frozen=True)
class ComparedModel:
    """Model in a comparison."""

    name: str  # its name in the comparison
    scores: xr.DataTree  # its scores tree
    diagnosis: xr.Dataset | None  # what ``diagnose`` returns for it; None if its scores have no Weibull fits
    training: Training | None  # settings of its training, if known
    untrained: bool | None = None  # whether it has initial weights; None if that was not stated
    trajectory: xr.DataTree | None = None  # the trajectory whose last step is ``scores``; None if there is none

    @cached_property
    def components(self) -> tuple[str, ...]:
        """Components that were fitted."""
        return () if self.diagnosis is None else tuple(self.diagnosis["component"].values.tolist())

    @cached_property
    def matrices(self) -> xr.Dataset:
        """Weight matrices of a model that has a diagnosis."""
        return require_weibull(self.scores)

    def fits(self, *components: str) -> FitsOfMatrices:
        """Fits of the matrices of some components, inside the layers; empty if there are none."""
        if self.diagnosis is None:
            return FitsOfMatrices(*np.empty((len(FitsOfMatrices._fields), 0)))
        matrices, fit = self.matrices, self.diagnosis.sel(statistic="weibull_shape")
        k = fit["observed"].transpose("layer", "component").values
        chosen = matrices_of(matrices, components) & np.isfinite(k)
        number = matrices["n_rows"] * matrices["n_columns"]
        gap = self.diagnosis["observed"].sel(statistic="body_tail_gap")
        each = (fit["observed"], number, fit["q_value"], self.diagnosis["scale"], self.diagnosis["sigma"], gap)
        return FitsOfMatrices(*(of_matrices(one, chosen) for one in each))

    def mean(self, variable: str, component: str) -> float:
        """Mean over layers of ``scale`` or ``sigma`` of a component; NaN if there is none."""
        values = self._values(None if self.diagnosis is None else self.diagnosis[variable], component)
        return float(values.mean()) if values.size else float("nan")

    def median(self, variable: str, statistic: str, component: str) -> float:
        """Median over layers of ``observed`` or ``null_mean`` of a statistic of a component; NaN if there is none."""
        of = None if self.diagnosis is None else self.diagnosis[variable].sel(statistic=statistic)
        values = self._values(of, component)
        return float(np.median(values)) if values.size else float("nan")

    def _values(self, of: xr.DataArray | None, component: str) -> Float[np.ndarray, " matrix"]:
        if of is None:
            return np.empty(0)
        values = of_matrices(of, matrices_of(self.matrices, (component,)))
        return values[np.isfinite(values)]

    def band(self, *components: str, seed: int) -> ShapeBand | None:
        """Median k over the matrices of some components, with its null; None if there are none."""
        fits = self.fits(*components)
        return shape_band([fits.shapes], [fits.numbers], seed=seed) if fits.shapes.size else None


def models_table(models: Sequence[ComparedModel]) -> xr.Dataset:
    """Table of the models: identity, number of heads that differ from the null, and training settings if known."""

    def each(of: Callable[[ComparedModel], Any]) -> tuple[str, list[Any]]:
        return "model", [of(one) for one in models]

    def attribute(name: str) -> tuple[str, list[Any]]:
        return each(lambda one: shown(one.scores.attrs.get(name, "")))

    def told(field: str, missing: Any) -> tuple[str, list[Any]]:
        return each(lambda one: missing if one.training is None else getattr(one.training, field))

    omnibus = [one.scores["heads"].to_dataset()["omnibus_q_value"].values for one in models]
    departed = [int((q < LEVEL).sum()) for q in omnibus]
    tested = [int(np.isfinite(q).sum()) for q in omnibus]
    there = [int(heads_present(one.scores["heads"].to_dataset()).sum()) for one in models]
    seen = [int(of > 0 and not n) for of, n in zip(tested, departed, strict=True)]
    told_or_seen = zip(models, seen, strict=True)
    return xr.Dataset(
        {
            "name": attribute("model"),
            "revision": attribute("revision"),
            "family": attribute("family"),
            "attention": each(lambda one: "; ".join(dict.fromkeys(attention_classes(one.scores).values()))),
            "fingerprint": each(lambda one: fingerprint(one.scores)),
            "null": attribute("null"),
            "n_scored_heads": ("model", tested),
            "n_untested_heads": ("model", [n - of for n, of in zip(there, tested, strict=True)]),
            "n_departed_heads": ("model", departed),
            "untrained": ("model", [n if one.untrained is None else int(one.untrained) for one, n in told_or_seen]),
            "budget": told("budget", np.nan),
            "budget_state": told("state", ""),
            "root": told("root", np.nan),
        },
        {"model": [one.name for one in models]},
    )


def transmission_table(models: Sequence[ComparedModel], seed: int) -> xr.Dataset:
    """Transmission Class of each model: shapes pooled over components, scales averaged over layers, then components."""
    names = (
        *("transmission_shape", "transmission_shape_null_mean", "transmission_shape_null_std", "transmission_scale"),
        *("transmission_shape_untrimmed", "transmission_gap"),
    )
    values = np.full((len(names), len(models)), np.nan)
    recipe = np.full(len(models), "", dtype=object)
    for row, one in enumerate(models):
        recipe[row] = "" if one.diagnosis is None else one.diagnosis.attrs["initial_recipe"]
        band = one.band(*TRANSMISSION, seed=seed)
        if band is not None:
            scale = np.nanmean([one.mean("scale", component) for component in TRANSMISSION])
            fits = one.fits(*TRANSMISSION)
            by_trim = np.median(fits.shapes - fits.gaps), np.median(fits.gaps)
            values[:, row] = band.medians[0], band.null_medians[0], band.null_errors[0], scale, *by_trim
    variables = {name: ("model", value) for name, value in zip(names, values, strict=True)}
    return xr.Dataset(variables | {"initial_recipe": ("model", recipe)})


def components_table(models: Sequence[ComparedModel], seed: int) -> xr.Dataset:
    """Median k of each component of each model, with its null and its published class, and the mean λ and σ."""
    components = all_components(models)
    names = ("shape", "shape_null_mean", "shape_null_std", "scale", "sigma")
    values = np.full((len(names), len(models), len(components)), np.nan)
    counts = np.zeros((3, len(models), len(components)), dtype=int)
    classes = np.full(counts.shape[1:], "", dtype=object)
    for row, one in enumerate(models):
        for place, component in enumerate(components):
            if component not in one.components:
                continue
            counts[0, row, place] = matrices_of(one.matrices, (component,)).sum()
            q_values = one.fits(component).q_values
            counts[1:, row, place] = (q_values < LEVEL).sum(), np.isfinite(q_values).sum()
            values[3:, row, place] = one.mean("scale", component), one.mean("sigma", component)
            band = one.band(component, seed=seed)
            if band is not None:
                values[:3, row, place] = band.medians[0], band.null_medians[0], band.null_errors[0]
                classes[row, place] = published_class(band.medians[0], component in FUSED)
    dims = ("model", "component")
    variables = {name: (dims, value) for name, value in zip(names, values, strict=True)}
    for statistic, name in _FURTHER.items():
        for variable, ending in (("observed", ""), ("null_mean", "_null_mean")):
            medians = [[one.median(variable, statistic, component) for component in components] for one in models]
            variables[f"{name}{ending}"] = dims, np.array(medians)
    variables |= {
        name: (dims, count) for name, count in zip(("n_matrices", "n_departed", "n_tested"), counts, strict=True)
    }
    coordinates = {"model": [one.name for one in models], "component": components}
    return xr.Dataset(variables | {"published_class": (dims, classes)}, coordinates)


def all_components(models: Sequence[ComparedModel]) -> list[str]:
    """Components that any of the models has, each once."""
    return list(dict.fromkeys(name for one in models for name in one.components))
