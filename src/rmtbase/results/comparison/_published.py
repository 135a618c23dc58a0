"""Numbers of the published models, and the nearest of them to each component of a model."""

import csv
import math
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float

from rmtbase.laws import weibull_anchor, weibull_body_tail_gap, weibull_null
from rmtbase.results.comparison._findings import budget_state
from rmtbase.results.comparison._matrices import ComparedModel, FitsOfMatrices, all_components
from rmtbase.results.comparison.schema import COMPARISON_SCHEMA, NEAREST
from rmtbase.results.filled import Entries, filled
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
"""Published Weibull scales and training settings, to the digits printed: T. Ding, arXiv:2605.18898v1 (2026), CC BY 4.0,
table 4, with max/q99 and the training budget of the models in tables 2 and 3."""

_SHAPES_BY_TRIM = {0.10: 1.195, 0.05: 1.182, 0.0: 1.143}  # median k by the share cut from either end: table 1 there
_GAP, _GAP_STD = 0.0519, 0.0017  # of k(trim 0.1) − k(trim 0) over the twelve models: section 3.2
_DRAWS = 4_000
Points = Float[np.ndarray, "point 2"]

COMPONENTS = (
    *("attention_query_key_value", "attention_query", "attention_key", "attention_value", "attention_output"),
    *("mlp_gate", "mlp_in", "mlp_out"),
)


def published_models() -> xr.Dataset:
    """Make the group ``/published`` of a comparison.

    ``published.csv`` has medians over layers from DATABASE_v9_1.csv (github.com/tiexinding/NPM-Weibull-public at
    213fd405, 2026-08-15; T. Ding, CC BY 4.0), k and R² to four decimals, λ to four digits. The paper prints ranges of k
    only, and had 27 of the 48 layers of Qwen2.5-14B. Its histograms, on 1024 fixed bins, move k by up to 0.0015.
    """
    names = [model.name for model in PUBLISHED_MODELS]
    entries: Entries = {
        (row,): {
            "mean_scale": model.mean_scale,
            "root": np.sqrt(model.peak_rate / model.weight_decay),
            "budget": model.budget,
            "budget_state": "" if math.isnan(model.budget) else budget_state(model.budget),
            "max_to_q99": model.max_to_q99,
        }
        for row, model in enumerate(PUBLISHED_MODELS)
    }
    text = files("rmtbase.results.comparison").joinpath("published.csv").read_text(encoding="utf-8")
    for fit in csv.DictReader(text.splitlines()):
        place = names.index(fit["published_model"]), COMPONENTS.index(fit["component"])
        entries[place] = {name: float(fit[name]) for name in ("shape", "scale", "r_squared")}
    schema = COMPARISON_SCHEMA["/published"]
    return filled(schema, {"published_model": names, "component": list(COMPONENTS)}, entries)


def published_trims() -> xr.Dataset:
    values = {f"shape_{100 * trim:g}": shape for trim, shape in _SHAPES_BY_TRIM.items()}
    values |= {f"untrained_shape_{100 * trim:g}": weibull_anchor(trim).shape for trim in _SHAPES_BY_TRIM}
    return xr.Dataset({**values, "gap": _GAP, "gap_std": _GAP_STD, "untrained_gap": weibull_body_tail_gap().limit})


def nearest_table(models: Sequence[ComparedModel], published: xr.Dataset, seed: int) -> xr.Dataset:
    """Find the published model whose component is nearest to that of each model, where three at least have it.

    Random components have as many matrices of the same sizes and σ, with independent normal elements: their k̂ and λ̂/σ
    are normal, by :func:`rmtbase.laws.weibull_null`, and taken as independent.
    """
    components = all_components(models)
    entries: Entries = {}
    for column, component in enumerate(components):
        names, points = np.array([]), np.empty((0, 2))
        if component in published["component"].values:
            fitted = published[["shape", "scale"]].sel(component=component).dropna("published_model")
            names = fitted["published_model"].values
            points = np.stack([fitted["shape"].values, np.log(fitted["scale"].values)], axis=1)
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


def _nearest(fits: FitsOfMatrices, names: np.ndarray, points: Points, seed: int) -> dict[str, Any]:
    unit = points.std(axis=0, ddof=1)

    def distances(first: Points) -> Float[np.ndarray, "first point"]:
        return np.sqrt((((first[:, None] - points[None]) / unit) ** 2).sum(axis=-1))

    observed = distances(np.array([[np.median(fits.shapes), np.log(np.median(fits.scales))]]))[0]
    nearest = int(observed.argmin())
    # (k, ln λ) of untrained components of the same sizes and σ; one model's do not depend on another's
    null, n, rng = weibull_null(), fits.numbers, np.random.default_rng(seed)
    shapes, scales = (
        law.limit + law.drift / n + law.spread / np.sqrt(n) * rng.standard_normal((_DRAWS, n.size))
        for law in (null.shape, null.scale)
    )
    drawn = np.stack([np.median(shapes, axis=1), np.log(np.median(scales * fits.sigmas, axis=1))], axis=1)
    random, published = distances(drawn).min(axis=1), distances(points)
    np.fill_diagonal(published, np.inf)
    low, median, high = np.quantile(random, (0.05, 0.5, 0.95))
    return {
        "nearest_model": str(names[nearest]),
        "nearest_distance": observed[nearest],
        "nearest_random_low": low,
        "nearest_random_median": median,
        "nearest_random_high": high,
        "nearest_p_value": float((random <= observed[nearest]).sum() + 1) / (random.size + 1),
        "nearest_between_published": float((published.min(axis=1) <= observed[nearest]).mean()),
    }
