"""Nearest published component of each component of a model, and how near untrained matrices come by chance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float

from rmtbase.laws import weibull_null
from rmtbase.results.comparison._each_model import ComparedModel, FitsOfMatrices, all_components
from rmtbase.results.comparison.schema import COMPARISON_SCHEMA, NEAREST
from rmtbase.results.filled import filled
from rmtbase.statistics import benjamini_hochberg

_DRAWS = 4_000
Points = Float[np.ndarray, "point 2"]


def nearest_table(models: Sequence[ComparedModel], published: xr.Dataset, seed: int) -> xr.Dataset:
    """Compare each component of each model with the same component of the published models.

    The distance of two components is √((Δk/s_k)² + (Δln λ/s_λ)²), Δ of their medians over layers, with s the standard
    deviation over the published models that have the component: 1 is as far apart as published models are. A random
    component has as many matrices of the same sizes and standard deviations σ, with independent normal elements: its k̂
    and λ̂/σ are normal with mean and spread of :func:`rmtbase.laws.weibull_null`, and taken as independent.
    ``nearest_p_value`` is the share of random components whose nearest published one is as near, whichever that is; its
    q-value is over all components of all models. ``nearest_between_published`` is the share of published models with
    another one as near, which a comparison with any further trained model can expect.

    Variables (model, component) of ``/components``, missing where fewer than three published models have the component,
    or the model lacks it.
    """
    components = all_components(models)
    entries = {}
    for column, component in enumerate(components):
        names, points = _points_of(published, component)
        for row, model in enumerate(models):
            fits = model.fits(component)
            if fits.shapes.size:
                entries[row, column] = {"median_scale": np.median(fits.scales)}
                if len(names) > 2:
                    entries[row, column] |= _nearest(fits, names, points, seed)
    schema = {name: variable for name, variable in COMPARISON_SCHEMA["/components"].items() if variable.part == NEAREST}
    table = filled(schema, {"model": [model.name for model in models], "component": components}, entries, schema)
    q_value = benjamini_hochberg(table["nearest_p_value"].values)
    return table.assign(nearest_q_value=(("model", "component"), q_value))


def _points_of(published: xr.Dataset, component: str) -> tuple[list[str], Points]:
    """Return the published models that have a component, and their (k, ln λ)."""
    if component not in published["component"].values:
        return [], np.empty((0, 2))
    fitted = published[["shape", "scale"]].sel(component=component).dropna("published_model")
    points = np.stack([fitted["shape"].values, np.log(fitted["scale"].values)], axis=1)
    return fitted["published_model"].values.tolist(), points


def _nearest(fits: FitsOfMatrices, names: list[str], points: Points, seed: int) -> dict[str, Any]:
    """Find the nearest of the published points, and compare its distance with those of random components."""
    unit = points.std(axis=0, ddof=1)
    point = np.array([[np.median(fits.shapes), np.log(np.median(fits.scales))]])
    distances = _distances(point, points, unit)[0]
    nearest = int(distances.argmin())
    random = _distances(_random_points(fits, seed), points, unit).min(axis=1)
    published = _distances(points, points, unit)
    np.fill_diagonal(published, np.inf)
    low, median, high = np.quantile(random, (0.05, 0.5, 0.95))
    return {
        "nearest_model": names[nearest],
        "nearest_distance": distances[nearest],
        "nearest_random_low": low,
        "nearest_random_median": median,
        "nearest_random_high": high,
        "nearest_p_value": float((random <= distances[nearest]).sum() + 1) / (random.size + 1),
        "nearest_between_published": float((published.min(axis=1) <= distances[nearest]).mean()),
    }


def _distances(first: Points, second: Points, unit: Float[np.ndarray, "2"]) -> Float[np.ndarray, "first second"]:
    return np.sqrt((((first[:, None] - second[None]) / unit) ** 2).sum(axis=-1))


def _random_points(fits: FitsOfMatrices, seed: int) -> Points:
    """Draw (k, ln λ) of untrained components of the same sizes and standard deviations."""
    null, n, rng = weibull_null(), fits.numbers, np.random.default_rng(seed)  # one model's do not depend on another's
    drawn = [
        law.limit + law.drift / n + law.spread / np.sqrt(n) * rng.standard_normal((_DRAWS, n.size))
        for law in (null.shape, null.scale)
    ]
    return np.stack([np.median(drawn[0], axis=1), np.log(np.median(drawn[1] * fits.sigmas, axis=1))], axis=1)
