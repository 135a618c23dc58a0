"""Published Weibull scales and training settings of twelve models, to the digits that were printed.

From T. Ding, *A Two-Parameter Weibull Framework for Diagnosing Transformer Weight Distributions* (2026),
arXiv:2605.18898v1, CC BY 4.0: table 4, with max/q99 and the training budget of the models in tables 2 and 3.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import xarray as xr

from rmtbase.results.comparison._training_budget import budget_state


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


def published_models() -> xr.Dataset:
    """Dataset of the published models, in the layout of the group ``/published`` of a comparison."""
    dim = "published_model"
    columns = {name: [getattr(one, name) for one in PUBLISHED_MODELS] for name in PublishedModel._fields}
    states = ["" if math.isnan(budget) else budget_state(budget) for budget in columns["budget"]]
    return xr.Dataset(
        {
            "mean_scale": (dim, columns["mean_scale"]),
            "root": (dim, np.sqrt(np.array(columns["peak_rate"]) / np.array(columns["weight_decay"]))),
            "budget": (dim, columns["budget"]),
            "budget_state": (dim, states),
            "max_to_q99": (dim, columns["max_to_q99"]),
        },
        {dim: columns["name"]},
    )
