"""Tables of a comparison for each single model."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float

from rmtbase.results.comparison._findings import Training, shape_band
from rmtbase.results.comparison._matrices import (
    FUSED,
    TRANSMISSION,
    attention_classes,
    initial_recipe,
    members_of,
    published_class,
    values_of,
)
from rmtbase.results.comparison._two_models import LEVEL, fingerprint
from rmtbase.results.comparison.schema import COMPARISON_SCHEMA
from rmtbase.results.filled import Entries, filled
from rmtbase.shown import shown
from rmtbase.tables import heads_present

_MEDIANS = {"weibull_r_squared": "r_squared", "weibull_closure": "closure", "body_tail_gap": "body_tail_gap"}


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
    matrices: xr.Dataset | None  # its fitted matrices; None if its scores have no Weibull fits
    training: Training | None  # settings of its training, if known
    untrained: bool | None = None  # whether it has initial weights; None if that was not stated
    trajectory: xr.DataTree | None = None  # the trajectory whose last step is ``scores``; None if there is none

    @cached_property
    def components(self) -> tuple[str, ...]:
        return () if self.matrices is None else tuple(self.matrices["component"].values.tolist())

    def fits(self, *components: str) -> FitsOfMatrices:
        """Fits of the matrices of these components, inside the layers."""
        if self.matrices is None:
            return FitsOfMatrices(*np.empty((len(FitsOfMatrices._fields), 0)))
        fit, number = self.matrices.sel(statistic="weibull_shape"), self.matrices["n_rows"] * self.matrices["n_columns"]
        gap = self.matrices["observed"].sel(statistic="body_tail_gap")
        columns = (fit["observed"], number, fit["q_value"], self.matrices["scale"], self.matrices["sigma"], gap)
        values = [values_of(self.matrices, column, *components, finite=False) for column in columns]
        return FitsOfMatrices(*(column[np.isfinite(values[0])] for column in values))

    def values(self, variable: str, component: str, statistic: str = "") -> Float[np.ndarray, " matrix"]:
        if self.matrices is None or component not in self.components:
            return np.empty(0)
        values = self.matrices[variable]
        return values_of(self.matrices, values.sel(statistic=statistic) if statistic else values, component)

    def mean(self, variable: str, component: str) -> float:
        """Mean over layers of ``scale`` or ``sigma`` of a component; NaN if there is none."""
        values = self.values(variable, component)
        return float(values.mean()) if values.size else float("nan")


def models_table(models: Sequence[ComparedModel], seed: int) -> xr.Dataset:
    """Table of the models: identity, heads that differ from the null, Transmission Class, and training if known."""
    rows: Entries = {}
    for place, model in enumerate(models):
        heads, attributes = model.scores["heads"].to_dataset(), model.scores.attrs
        q_value, fits = heads["omnibus_q_value"].values, model.fits(*TRANSMISSION)
        n_departed, n_scored = int((q_value < LEVEL).sum()), int(np.isfinite(q_value).sum())
        untrained = n_scored > 0 and not n_departed if model.untrained is None else model.untrained
        row: dict[str, Any] = {
            "name": shown(attributes.get("model", "")),
            **{name: shown(attributes.get(name, "")) for name in ("revision", "family", "null")},
            "attention": "; ".join(dict.fromkeys(attention_classes(model.scores).values())),
            "fingerprint": fingerprint(model.scores),
            "n_scored_heads": n_scored,
            "n_untested_heads": int(heads_present(heads).sum()) - n_scored,
            "n_departed_heads": n_departed,
            "untrained": int(untrained),
        }
        if model.training is not None:
            training = model.training
            row |= {"budget": training.budget, "budget_state": training.state, "root": training.root}
        if model.matrices is not None:
            row["initial_recipe"] = initial_recipe(model.scores, model.matrices)
        if fits.shapes.size:
            row |= {f"transmission_{name}": value for name, value in _shape(fits, seed).items()}
            # mean over layers, then over components, as in the paper
            row["transmission_scale"] = np.nanmean([model.mean("scale", name) for name in TRANSMISSION])
            row["transmission_shape_untrimmed"] = np.median(fits.shapes - fits.gaps)
            row["transmission_gap"] = np.median(fits.gaps)
        rows[place,] = row
    schema, fitted = COMPARISON_SCHEMA["/models"], any(model.components for model in models)
    names = [name for name, variable in schema.items() if fitted or not variable.part]
    return filled(schema, {"model": [model.name for model in models]}, rows, names)


def _shape(fits: FitsOfMatrices, seed: int) -> dict[str, float]:
    """Median k over matrices, with its null."""
    band = shape_band([fits.shapes], [fits.numbers], seed=seed)
    return {"shape": band.medians[0], "shape_null_mean": band.null_medians[0], "shape_null_std": band.null_errors[0]}


def components_table(models: Sequence[ComparedModel], seed: int) -> xr.Dataset:
    """Median k of each component of each model, with its null and its published class, and the mean λ and σ."""
    schema, components = COMPARISON_SCHEMA["/components"], all_components(models)
    entries: Entries = {}
    for (row, model), (column, component) in product(enumerate(models), enumerate(components)):
        if component not in model.components:
            continue
        fits = model.fits(component)
        entry: dict[str, Any] = {
            "n_matrices": 0 if model.matrices is None else members_of(model.matrices, component).sum(),
            "n_departed": (fits.q_values < LEVEL).sum(),
            "n_tested": np.isfinite(fits.q_values).sum(),
            "scale": model.mean("scale", component),
            "sigma": model.mean("sigma", component),
        }
        if fits.shapes.size:
            entry |= _shape(fits, seed)
            entry["published_class"] = published_class(entry["shape"], component in FUSED)
        for statistic, name in _MEDIANS.items():
            for variable, ending in (("observed", ""), ("null_mean", "_null_mean")):
                values = model.values(variable, component, statistic)
                entry[f"{name}{ending}"] = np.median(values) if values.size else np.nan
        entries[row, column] = entry
    names = [name for name, variable in schema.items() if not variable.part]
    return filled(schema, {"model": [model.name for model in models], "component": components}, entries, names)


def all_components(models: Sequence[ComparedModel]) -> list[str]:
    """Components that any of the models has, each once."""
    return list(dict.fromkeys(name for model in models for name in model.components))
