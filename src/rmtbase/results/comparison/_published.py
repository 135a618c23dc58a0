"""Numbers of the published models, and the nearest of them to each component of a model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float

from rmtbase.laws import weibull_anchor, weibull_body_tail_gap, weibull_null
from rmtbase.results.comparison._each_model import ComparedModel, FitsOfMatrices, all_components
from rmtbase.results.comparison._training_budget import budget_state
from rmtbase.results.comparison.schema import COMPARISON_SCHEMA, NEAREST
from rmtbase.results.filled import filled
from rmtbase.statistics import benjamini_hochberg


class PublishedModel(NamedTuple):
    """Numbers printed for one model; NaN if a table lacks it."""

    name: str
    peak_rate: float
    weight_decay: float
    mean_scale: float
    budget: float = math.nan
    max_to_q99: float = math.nan


PUBLISHED_MODELS = (
    PublishedModel("Pythia-70m", 1.0e-3, 0.01, 0.0224, 1.43, 7.2),
    PublishedModel("Pythia-160m", 6.0e-4, 0.01, 0.0200, 0.86, 6.6),
    PublishedModel("Pythia-410m", 3.0e-4, 0.01, 0.0190, 0.43, 8.0),
    PublishedModel("Pythia-1B", 3.0e-4, 0.01, 0.0191, 0.43, 11.3),
    PublishedModel("Pythia-6.9B", 1.2e-4, 0.01, 0.0149, 0.17, 8.6),
    PublishedModel("OLMo-1-7B", 3.0e-4, 0.10, 0.0032, max_to_q99=27.7),
    PublishedModel("OLMo-2-7B", 3.0e-4, 0.10, 0.0167),
    PublishedModel("LLaMA-3-8B", 3.0e-4, 0.10, 0.0097),
    PublishedModel("Mistral-7B", 3.0e-4, 0.10, 0.0026),
    PublishedModel("Qwen2.5-7B", 3.0e-4, 0.10, 0.0138),
    PublishedModel("Qwen2.5-14B", 3.0e-4, 0.10, 0.0158, max_to_q99=18.4),
    PublishedModel("Qwen3-8B", 5.0e-4, 0.10, 0.0225, max_to_q99=17.3),
)
"""Published Weibull scales and training settings of twelve models, to the digits that were printed.

From T. Ding, *A Two-Parameter Weibull Framework for Diagnosing Transformer Weight Distributions* (2026),
arXiv:2605.18898v1, CC BY 4.0: table 4, with max/q99 and the training budget of the models in tables 2 and 3."""


class PublishedTrim(NamedTuple):
    """Median shape k over the twelve models' feed-forward and output matrices, with a share cut from either end."""

    trim: float
    shape: float


PUBLISHED_TRIMS = (PublishedTrim(0.10, 1.195), PublishedTrim(0.05, 1.182), PublishedTrim(0.0, 1.143))
"""Table 1 of the same paper: the middle 80, the middle 90, and all 100 % of the weights."""
PUBLISHED_GAP, PUBLISHED_GAP_STD = 0.0519, 0.0017
"""Mean and standard deviation over the twelve models of k(trim 0.1) − k(trim 0), from section 3.2."""

_FUSED_COMPONENTS = ("attention_query_key_value", "attention_output", "mlp_in", "mlp_out")
_GATED_COMPONENTS = ("attention_query", "attention_key", "attention_value", "attention_output",
                     "mlp_gate", "mlp_in", "mlp_out")  # fmt: skip
PUBLISHED_COMPONENTS: dict[str, tuple[tuple[float, float, float], ...]] = {
    "Pythia-70m": (
        (1.0488, 0.02783, 0.9981), (1.1838, 0.0186, 0.9985), (1.1903, 0.026, 0.9984), (1.1898, 0.02101, 0.9982),
    ),
    "Pythia-160m": (
        (1.0982, 0.02516, 0.9995), (1.1917, 0.01568, 0.9982), (1.1927, 0.02411, 0.9982), (1.1953, 0.01888, 0.9981),
    ),
    "Pythia-410m": (
        (1.1466, 0.02122, 0.9989), (1.1988, 0.01797, 0.9981), (1.1991, 0.0208, 0.9980), (1.2011, 0.01716, 0.9979),
    ),
    "Pythia-1B": (
        (1.1758, 0.02014, 0.9986), (1.1990, 0.01877, 0.9980), (1.1997, 0.02015, 0.9980), (1.1993, 0.01733, 0.9980),
    ),
    "Pythia-6.9B": (
        (1.1726, 0.01679, 0.9990), (1.1986, 0.01302, 0.9980), (1.2026, 0.01675, 0.9979), (1.2010, 0.01467, 0.9979),
    ),
    "OLMo-1-7B": (
        (0.8123, 0.001729, 0.9987), (0.7601, 0.001703, 0.9986), (1.0601, 0.002513, 0.9971), (1.0409, 0.002402, 0.9972),
        (1.2010, 0.003363, 0.9979), (1.2039, 0.003442, 0.9978), (1.2041, 0.003486, 0.9978),
    ),
    "OLMo-2-7B": (
        (0.9895, 0.01406, 0.9909), (0.9716, 0.01324, 0.9936), (1.1930, 0.01663, 0.9981), (1.1958, 0.01634, 0.9980),
        (1.1976, 0.01755, 0.9981), (1.2032, 0.01676, 0.9979), (1.2031, 0.01654, 0.9979),
    ),
    "LLaMA-3-8B": (
        (1.1352, 0.01352, 0.9995), (1.1462, 0.021, 0.9994), (1.1710, 0.007453, 0.9985), (1.1841, 0.008293, 0.9985),
        (1.1890, 0.01171, 0.9985), (1.1971, 0.009322, 0.9980), (1.1931, 0.009227, 0.9981),
    ),
    "Mistral-7B": (
        (1.1485, 0.002979, 0.9993), (1.1291, 0.003507, 0.9996), (1.1702, 0.002383, 0.9984), (1.1902, 0.002402, 0.9983),
        (1.1947, 0.002836, 0.9982), (1.1964, 0.002582, 0.9980), (1.1926, 0.002546, 0.9982),
    ),
    "Qwen2.5-7B": (
        (1.1328, 0.01352, 0.9993), (1.1033, 0.01409, 0.9998), (1.1430, 0.0139, 0.9987), (1.1665, 0.01307, 0.9989),
        (1.1904, 0.0143, 0.9983), (1.1888, 0.01438, 0.9983), (1.1830, 0.01407, 0.9985),
    ),
    "Qwen2.5-14B": (
        (1.1638, 0.01719, 0.9988), (1.1413, 0.01886, 0.9993), (1.1628, 0.01699, 0.9986), (1.1903, 0.01703, 0.9983),
        (1.1929, 0.01813, 0.9982), (1.1926, 0.0187, 0.9981), (1.1897, 0.01829, 0.9982),
    ),
    "Qwen3-8B": (
        (1.1623, 0.0215, 0.9991), (1.1539, 0.0211, 0.9992), (1.1581, 0.02476, 0.9986), (1.1802, 0.02265, 0.9986),
        (1.1872, 0.02374, 0.9983), (1.1886, 0.02367, 0.9982), (1.1846, 0.02323, 0.9984),
    ),
}  # fmt: skip
"""Medians over the layers of these models of the shape k, the scale λ and R², of the components of either tuple above.

From DATABASE_v9_1.csv of the repository of the package npm-weibull-py (github.com/tiexinding/NPM-Weibull-public at
213fd405, 2026-08-15; T. Ding, CC BY 4.0), k and R² to four decimals, λ to four digits. The paper prints ranges of k
only, and had 27 of the 48 layers of Qwen2.5-14B. The fits are of histograms on a fixed grid of 1024 bins, which moves k
by up to 0.0015."""
_FITS = ("shape", "scale", "r_squared")


def published_models() -> xr.Dataset:
    """Dataset of the published models, in the layout of the group ``/published`` of a comparison."""
    dim = "published_model"
    columns = {name: [getattr(one, name) for one in PUBLISHED_MODELS] for name in PublishedModel._fields}
    states = ["" if math.isnan(budget) else budget_state(budget) for budget in columns["budget"]]
    components = list(dict.fromkeys((*_FUSED_COMPONENTS[:1], *_GATED_COMPONENTS)))
    fits = np.full((len(_FITS), len(PUBLISHED_MODELS), len(components)), np.nan)
    for row, name in enumerate(columns["name"]):
        medians = PUBLISHED_COMPONENTS[name]
        fitted = _FUSED_COMPONENTS if len(medians) == len(_FUSED_COMPONENTS) else _GATED_COMPONENTS
        fits[:, row, [components.index(component) for component in fitted]] = np.transpose(medians)
    return xr.Dataset(
        {
            "mean_scale": (dim, columns["mean_scale"]),
            "root": (dim, np.sqrt(np.array(columns["peak_rate"]) / np.array(columns["weight_decay"]))),
            "budget": (dim, columns["budget"]),
            "budget_state": (dim, states),
            "max_to_q99": (dim, columns["max_to_q99"]),
            **{name: ((dim, "component"), values) for name, values in zip(_FITS, fits, strict=True)},
        },
        {dim: columns["name"], "component": components},
    )


def published_trims() -> xr.Dataset:
    """Dataset of the published shapes by trim beside the untrained anchors, the group ``/trims`` of a comparison."""
    trims = [one.trim for one in PUBLISHED_TRIMS]
    return xr.Dataset(
        {
            **{f"shape_{100 * trim:g}": one.shape for trim, one in zip(trims, PUBLISHED_TRIMS, strict=True)},
            **{f"untrained_shape_{100 * trim:g}": weibull_anchor(trim).shape for trim in trims},
            "gap": PUBLISHED_GAP,
            "gap_std": PUBLISHED_GAP_STD,
            "untrained_gap": weibull_body_tail_gap().limit,
        }
    )


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
