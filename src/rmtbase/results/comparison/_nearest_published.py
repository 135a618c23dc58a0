"""Nearest published component of each component of a model, and how near untrained matrices come by chance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr
from jaxtyping import Float

from rmtbase.laws import weibull_null
from rmtbase.results.comparison._each_model import ComparedModel, FitsOfMatrices, all_components
from rmtbase.statistics import benjamini_hochberg

_DRAWS = 4_000
_ENDS = (0.05, 0.5, 0.95)
_NUMBERS = (
    *("median_scale", "nearest_distance", "nearest_random_low", "nearest_random_median", "nearest_random_high"),
    *("nearest_p_value", "nearest_between_published"),
)

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

    Variables (model, component) of ``/components``; NaN, and "" for the name, where fewer than three published
    models have the component, or the model lacks it.
    """
    components = all_components(models)
    values = np.full((len(_NUMBERS), len(models), len(components)), np.nan)
    names = np.full(values.shape[1:], "", dtype=object)
    for place, component in enumerate(components):
        there = _points_of(published, component)
        for row, model in enumerate(models):
            fits = model.fits(component)
            if not fits.shapes.size:
                continue
            values[0, row, place] = np.median(fits.scales)
            if len(there[0]) > 2:
                names[row, place], values[1:, row, place] = _nearest(fits, *there, seed)
    dims = ("model", "component")
    variables = {name: (dims, value) for name, value in zip(_NUMBERS, values, strict=True)}
    p_values = values[_NUMBERS.index("nearest_p_value")]
    return xr.Dataset(
        {**variables, "nearest_model": (dims, names), "nearest_q_value": (dims, benjamini_hochberg(p_values))},
        {"model": [model.name for model in models], "component": components},
    )


def _points_of(published: xr.Dataset, component: str) -> tuple[list[str], Points]:
    """Return the published models that have a component, and their (k, ln λ)."""
    if component not in published["component"].values:
        return [], np.empty((0, 2))
    fitted = published[["shape", "scale"]].sel(component=component).dropna("published_model")
    points = np.stack([fitted["shape"].values, np.log(fitted["scale"].values)], axis=1)
    return fitted["published_model"].values.tolist(), points


def _nearest(
    fits: FitsOfMatrices, names: list[str], points: Points, seed: int
) -> tuple[str, Float[np.ndarray, " number"]]:
    """Return the nearest of the published points, and the numbers after ``median_scale`` in their order."""
    unit = points.std(axis=0, ddof=1)
    own = np.array([[np.median(fits.shapes), np.log(np.median(fits.scales))]])
    distances = _distances(own, points, unit)[0]
    nearest = int(distances.argmin())
    random = _distances(_random_points(fits, seed), points, unit).min(axis=1)
    among = _distances(points, points, unit)
    np.fill_diagonal(among, np.inf)
    chance = float((random <= distances[nearest]).sum() + 1) / (random.size + 1)
    shared = float((among.min(axis=1) <= distances[nearest]).mean())
    return names[nearest], np.array([distances[nearest], *np.quantile(random, _ENDS), chance, shared])


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
