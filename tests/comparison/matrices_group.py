"""Scores of models that are drawn at random, their group ``/matrices``, and tests of groups of them."""

import math
from functools import cache
from types import SimpleNamespace

import numpy as np
import xarray as xr

import rmtbase
from rmtbase.laws import weibull_body_tail_gap, weibull_closure, weibull_null
from rmtbase.results.comparison._groups import GroupTest, between_of, contrast_of, measures_of
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


@cache
def random_scores(seed, sigmas=(), heavy=(), matrices=True, n_key_heads=4, spike=0.0, noise=0.0, n_layers=2, n_heads=4):
    """Scores of a model whose weights are drawn, not to be changed; ``heavy`` components have Laplace's law."""
    rng = np.random.default_rng(seed)
    w_q = rng.standard_normal((n_layers, n_heads, 8, 32))
    w_k = rng.standard_normal((n_layers, n_key_heads, 8, 32))
    w_q[..., 0, 0] += spike
    w_k[..., 0, 0] += spike
    if noise:
        moved = np.random.default_rng(1000 + seed)
        w_q, w_k = (w + noise * moved.standard_normal(w.shape) for w in (w_q, w_k))
    tree = rmtbase.score_heads(w_q, w_k, "analytic", model=f"model-{seed}")
    if not matrices:
        return tree
    sigmas = dict(sigmas) or dict.fromkeys(SHAPES, 0.02)
    drawn = {
        name: [
            sigmas[name] * (rng.laplace(size=shape) / math.sqrt(2) if name in heavy else rng.standard_normal(shape))
            for _ in range(n_layers)
        ]
        for name, shape in SHAPES.items()
    }
    tree["matrices"] = xr.DataTree(matrices_group(drawn))
    return tree


def _columns(models):
    """The measures that all models have, and their values in each model."""
    each = [measures_of(scores) for scores in models]
    names = tuple(name for name in each[0] if all(name in measured for measured in each))
    return names, np.array([[measured[name] for name in names] for measured in each])


def compare_groups(first, second, permutations=9_999, seed=0, paired=False):
    """Two groups of models."""
    names, values = _columns([*first, *second])
    tested = contrast_of(values, (len(first), len(second)), GroupTest(paired, permutations, seed))
    return SimpleNamespace(measures=names, paired=paired, **tested)


def between_groups(groups, permutations=9_999, seed=0, paired=False):
    """Several groups of models, by name."""
    names, values = _columns([scores for members in groups.values() for scores in members])
    sizes = tuple(map(len, groups.values()))
    return SimpleNamespace(measures=names, **between_of(values, sizes, GroupTest(paired, permutations, seed)))
