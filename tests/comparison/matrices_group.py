"""The group ``/matrices`` of a scores file, made of arrays."""

import math

import numpy as np
import xarray as xr

from rmtbase.laws import weibull_body_tail_gap, weibull_closure, weibull_null
from rmtbase.statistics import benjamini_hochberg, weibull_fit

SHAPES = {
    "attention_query": (32, 32),
    "attention_key": (32, 32),
    "attention_value": (32, 32),
    "attention_output": (32, 32),
    "mlp_in": (128, 32),
    "mlp_out": (32, 128),
}


def matrices_group(matrices):
    """The group ``/matrices`` of these arrays, as a scores file has it."""
    names = ["mean", "weibull_shape", "weibull_scale", "weibull_r_squared", "weibull_closure", "body_tail_gap"]
    n_layers = len(next(iter(matrices.values())))
    fields = ("observed", "null_mean", "null_std", "z_score", "p_value", "q_value")
    values = {field: np.full((n_layers, len(matrices), len(names)), np.nan) for field in fields}
    facts = {name: np.full((n_layers, len(matrices)), np.nan) for name in ("sigma", "n_rows", "n_columns")}
    null, closure, gap = weibull_null(), weibull_closure().rms, weibull_body_tail_gap()
    for place, layers in enumerate(matrices.values()):
        for layer, w in enumerate(layers):
            fit, whole, rms = weibull_fit(w), weibull_fit(w, trim=0.0), math.sqrt(np.mean(w**2))
            moment = fit.scale * math.sqrt(math.gamma(1 + 2 / fit.shape))
            laws = (null.shape, null.scale_to_rms, null.r_squared, closure, gap)
            each = (fit.shape, fit.scale / rms, fit.r_squared, moment / rms, fit.shape - whole.shape)
            sigma = w.std(ddof=1)
            scores = [(w.mean() / sigma, 0.0, w.size**-0.5, w.mean() / sigma * w.size**0.5, 1.0)]
            for law, x in zip(laws, each, strict=True):
                scores.append((x, law.mean(w.size), law.std(w.size), law.z_score(x, w.size), law.p_value(x, w.size)))
            for k, one in enumerate(scores):
                for field, value in zip(fields, one, strict=False):
                    values[field][layer, place, k] = value
            for name, value in zip(facts, (sigma, *w.shape), strict=True):
                facts[name][layer, place] = value
    for k in range(len(names)):
        values["q_value"][..., k] = benjamini_hochberg(values["p_value"][..., k])
    dims = ("layer", "component", "statistic")
    variables = {name: (dims, value) for name, value in values.items()}
    variables |= {name: (dims[:2], value) for name, value in facts.items()}
    coordinates = {"layer": np.arange(n_layers), "component": list(matrices), "statistic": names}
    return xr.Dataset(variables, coordinates)
