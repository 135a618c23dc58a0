"""Schema of a comparison file, group by group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import xarray as xr

from rmtbase.results.trajectory.schema import STEP, STEP_COORDINATES
from rmtbase.tables import EVERY_FILE, Fault, Kind, Schema, Variable, register
from rmtbase.tables.domain import (
    COUNT,
    FINITE_OR_NAN,
    FLAG,
    JSON_LIST,
    NON_NEGATIVE_OR_NAN,
    POSITIVE_OR_NAN,
    PROBABILITY,
    SIZE,
    SPREAD,
    TEXT,
)

_MODEL, _PAIR, _CONTRAST = ("model",), ("pair",), ("contrast",)
_COMPONENT, _PAIR_STATISTIC = ("model", "component"), ("pair", "statistic")
_MEASURE = ("contrast", "measure")
_INTERVAL = "interval"  # part that comparisons by older versions lack
_WEIBULL = "weibull"  # part that is missing for scores without matrices or by older versions

_GROUPED: dict[str, Schema] = {
    "/members": {
        "group_of": Variable(_MODEL, "its group", TEXT),
        "value": Variable(("model", "measure"), "what was measured of the model", FINITE_OR_NAN),
        "head_error": Variable(
            ("model", "measure"), "its standard error by the spread from head to head alone", NON_NEGATIVE_OR_NAN
        ),
    },
    "/between": {
        "n_models": Variable(("group",), "models in the group", SIZE),
        "headline": Variable(("measure",), "whether the measure is shown first", FLAG),
        "mean": Variable(("group", "measure"), "mean over the models of the group", FINITE_OR_NAN),
        "seed_std": Variable(("measure",), "standard deviation from seed to seed within a group", NON_NEGATIVE_OR_NAN),
        "group_std": Variable(("measure",), "standard deviation between groups beyond it", NON_NEGATIVE_OR_NAN),
        "f_ratio": Variable(("measure",), "mean square between groups over that within", SPREAD),
        "p_value": Variable(("measure",), "p-value of that, of models put into groups at random", PROBABILITY),
        "adjusted_p_value": Variable(("measure",), "the same, adjusted for all measures", PROBABILITY),
        "smallest_p_value": Variable((), "smallest p-value that so few models allow", PROBABILITY),
    },
    "/groups": {
        "first_group": Variable(_CONTRAST, "one group", TEXT),
        "second_group": Variable(_CONTRAST, "the other", TEXT),
        "n_first": Variable(_CONTRAST, "models in it", SIZE),
        "n_second": Variable(_CONTRAST, "models in the other", SIZE),
        "smallest_p_value": Variable(_CONTRAST, "smallest p-value that so few models allow", PROBABILITY),
        "first_mean": Variable(_MEASURE, "mean over the models of the first group", FINITE_OR_NAN),
        "second_mean": Variable(_MEASURE, "mean over the models of the second group", FINITE_OR_NAN),
        "difference": Variable(_MEASURE, "second less first", FINITE_OR_NAN),
        "standard_error": Variable(_MEASURE, "of the difference, by the spread from seed to seed", NON_NEGATIVE_OR_NAN),
        "seed_std": Variable(_MEASURE, "standard deviation from seed to seed, pooled", NON_NEGATIVE_OR_NAN),
        "head_error": Variable(
            _MEASURE, "standard error of one model by the spread from head to head alone", NON_NEGATIVE_OR_NAN
        ),
        "p_value": Variable(_MEASURE, "two-sided p-value, of models put into groups at random", PROBABILITY),
        "adjusted_p_value": Variable(_MEASURE, "the same, adjusted for all measures", PROBABILITY),
        "paired": Variable(_CONTRAST, "whether the k-th models of both were compared", FLAG, part=_INTERVAL),
        **{
            name: Variable(_MEASURE, words, domain, part=_INTERVAL)
            for name, words, domain in (
                ("effect", "difference over seed_std", FINITE_OR_NAN),
                ("interval_low", "lower end of the 95 % confidence interval of the difference", FINITE_OR_NAN),
                ("interval_high", "its upper end", FINITE_OR_NAN),
                ("t_p_value", "two-sided p-value by Student's t", PROBABILITY),
                ("t_q_value", "Benjamini-Hochberg q-value of it over all contrasts and measures", PROBABILITY),
            )
        },
    },
}


def _along(schema: Schema) -> Schema:
    """Return the schema of a group along steps: every variable of a measure gets the dimension step."""
    stepped = {
        name: replace(one, dims=(STEP, *one.dims)) if "measure" in one.dims and name != "headline" else one
        for name, one in schema.items()
    }
    return {**stepped, STEP: STEP_COORDINATES[STEP]}


COMPARISON_SCHEMA: dict[str, Schema] = {
    "/models": {
        "name": Variable(_MODEL, "name of the model", TEXT),
        "revision": Variable(_MODEL, "its revision", TEXT),
        "family": Variable(_MODEL, "its architecture", TEXT),
        "attention": Variable(_MODEL, "how its heads share keys", TEXT),
        "fingerprint": Variable(_MODEL, "SHA-256 of its queries and keys", TEXT),
        "null": Variable(_MODEL, "what its heads were scored against", TEXT),
        "n_scored_heads": Variable(_MODEL, "heads scored", COUNT),
        "n_untested_heads": Variable(_MODEL, "heads that could not be tested", COUNT),
        "n_departed_heads": Variable(_MODEL, "heads that left the null: omnibus q-value under 0.05", COUNT),
        "budget": Variable(_MODEL, "training budget T eta lambda_wd, NaN where not told", POSITIVE_OR_NAN),
        "budget_state": Variable(_MODEL, "published state of the budget", TEXT),
        "root": Variable(_MODEL, "sqrt(eta / lambda_wd), NaN where not told", POSITIVE_OR_NAN),
        "untrained": Variable(
            _MODEL, "1 of a model before training: as told, or where heads were tested and none left the null", FLAG
        ),
        "initial_recipe": Variable(_MODEL, "recipe of initial sigma that no matrix contradicts", TEXT, part=_WEIBULL),
        "transmission_shape": Variable(
            _MODEL, "median Weibull shape of the Transmission Class", POSITIVE_OR_NAN, part=_WEIBULL
        ),
        "transmission_shape_null_mean": Variable(
            _MODEL, "mean of that median of untrained matrices of the same sizes", POSITIVE_OR_NAN, part=_WEIBULL
        ),
        "transmission_shape_null_std": Variable(_MODEL, "its standard deviation", NON_NEGATIVE_OR_NAN, part=_WEIBULL),
        "transmission_scale": Variable(
            _MODEL,
            "Weibull scale of the Transmission Class: mean over layers, then over components",
            POSITIVE_OR_NAN,
            part=_WEIBULL,
        ),
    },
    "/components": {
        "n_matrices": Variable(_COMPONENT, "matrices inside the layers", COUNT),
        "n_tested": Variable(_COMPONENT, "those whose Weibull shape could be tested", COUNT),
        "n_departed": Variable(_COMPONENT, "those whose Weibull shape left the anchor: q-value under 0.05", COUNT),
        "shape": Variable(_COMPONENT, "median Weibull shape", POSITIVE_OR_NAN),
        "shape_null_mean": Variable(_COMPONENT, "mean of that median of untrained matrices", POSITIVE_OR_NAN),
        "shape_null_std": Variable(_COMPONENT, "its standard deviation", NON_NEGATIVE_OR_NAN),
        "r_squared": Variable(_COMPONENT, "median R^2 of the fits", PROBABILITY),
        "closure": Variable(_COMPONENT, "median relative error of the Gamma closure", FINITE_OR_NAN),
        "body_tail_gap": Variable(_COMPONENT, "median of k(trim 0.1) - k(trim 0)", FINITE_OR_NAN),
        **{
            f"{name}_null_mean": Variable(
                _COMPONENT, f"median of the mean of {words} of untrained weights", FINITE_OR_NAN
            )
            for name, words in (("r_squared", "R^2"), ("closure", "the closure"), ("body_tail_gap", "the gap"))
        },
        "published_class": Variable(_COMPONENT, "published class of that median", TEXT),
        "scale": Variable(_COMPONENT, "mean Weibull scale", POSITIVE_OR_NAN),
        "sigma": Variable(_COMPONENT, "mean standard deviation of the elements", NON_NEGATIVE_OR_NAN),
    },
    "/pairs": {
        "first": Variable(_PAIR, "one model", TEXT),
        "second": Variable(_PAIR, "the other", TEXT),
        "duplicate": Variable(_PAIR, "whether queries and keys are the same to the bit", FLAG),
        "alignment": Variable(
            _PAIR, "correlation of heads of one place, less the means of layers; NaN where none match", FINITE_OR_NAN
        ),
        "alignment_p_value": Variable(_PAIR, "its one-sided p-value among other places of heads", PROBABILITY),
        "reordered": Variable(
            _PAIR, "whether all heads have one another's eigenvalues, in another order", FLAG, part="reordered"
        ),
        "paired": Variable(_PAIR, "whether heads were compared place by place", FLAG),
        "n_units": Variable(_PAIR, "key heads compared; of both models where they are not paired", COUNT),
        "omnibus_p_value": Variable(_PAIR, "p-value of all statistics together", PROBABILITY),
        "omnibus_q_value": Variable(_PAIR, "Benjamini-Hochberg q-value of omnibus_p_value over all pairs", PROBABILITY),
        "reason": Variable(_PAIR, "why their heads cannot be compared; empty where they can", TEXT),
        "alignment_reason": Variable(_PAIR, "why a common origin cannot be tested; empty where it can", TEXT),
        "difference": Variable(
            _PAIR_STATISTIC, "median difference of the distances from the null, second less first", FINITE_OR_NAN
        ),
        "p_value": Variable(_PAIR_STATISTIC, "two-sided p-value by permutation", PROBABILITY),
        "adjusted_p_value": Variable(_PAIR_STATISTIC, "the same, adjusted for all statistics", PROBABILITY),
    },
    "/drifts": {
        "drift": Variable(
            ("pair", "component"), "mean change of the Weibull shape; NaN where sizes differ", FINITE_OR_NAN
        ),
        "standard_error": Variable(
            ("pair", "component"), "its standard error, of untrained weights", NON_NEGATIVE_OR_NAN
        ),
        "p_value": Variable(("pair", "component"), "two-sided p-value of no change", PROBABILITY),
    },
    **_GROUPED,
    **{f"/along{name}": _along(schema) for name, schema in _GROUPED.items()},
    "/findings": {
        **{
            f"band_{name}": Variable((), words, domain, part="band")
            for name, words, domain in (
                ("low", "least of the models' median shapes", POSITIVE_OR_NAN),
                ("high", "largest of them", POSITIVE_OR_NAN),
                ("variation", "their coefficient of variation", NON_NEGATIVE_OR_NAN),
                ("null_variation", "mean of that of untrained models of the same sizes", NON_NEGATIVE_OR_NAN),
                ("null_variation_95", "95 % of theirs are below this", NON_NEGATIVE_OR_NAN),
                ("p_value", "share of untrained cohorts that vary as much", PROBABILITY),
            )
        },
        **{
            f"scale_law_{name}": Variable((), words, domain, part="scale_law")
            for name, words, domain in (
                ("slope", "of the scale on sqrt(eta / lambda_wd), through the origin", FINITE_OR_NAN),
                ("r_squared", "of that line, about the mean", FINITE_OR_NAN),
                ("correlation", "Pearson's r", FINITE_OR_NAN),
                ("p_value", "of r, among all orders of the models", PROBABILITY),
                ("intercept", "of the line with one", FINITE_OR_NAN),
                ("intercept_error", "its standard error", NON_NEGATIVE_OR_NAN),
                ("exponent", "of the scale as a power of sqrt(eta / lambda_wd)", FINITE_OR_NAN),
                ("exponent_error", "its standard error", NON_NEGATIVE_OR_NAN),
                ("p_value_of_one", "of the exponent 1", PROBABILITY),
            )
        },
        **{
            f"paired_growth_{name}": Variable((), words, domain, part="paired_growth")
            for name, words, domain in (
                ("correlation", "of ln of the scales of attention_output and mlp_out", FINITE_OR_NAN),
                ("n_initial", "models before training", COUNT),
                ("built_in", "mean of it where later scales are paired at random", FINITE_OR_NAN),
                ("built_in_95", "95 % of those are below this", FINITE_OR_NAN),
                ("p_value", "of the correlation among those", PROBABILITY),
                ("later_correlation", "of the models after training alone", FINITE_OR_NAN),
            )
        },
    },
    "/published": {
        "mean_scale": Variable(("published_model",), "mean Weibull scale of the Transmission Class", POSITIVE_OR_NAN),
        "root": Variable(("published_model",), "sqrt(eta / lambda_wd)", POSITIVE_OR_NAN),
        "budget": Variable(("published_model",), "training budget T/tau, where printed", POSITIVE_OR_NAN),
        "budget_state": Variable(("published_model",), "its state, where printed", TEXT),
        "max_to_q99": Variable(("published_model",), "median over blocks of max/q99, where printed", POSITIVE_OR_NAN),
    },
}
"""The variables of each group of a comparison. ``/drifts``, ``/members``, ``/between``, ``/groups``, ``/along``,
``/components``, ``/published`` and parts of ``/findings`` are optional."""


def models_named(groups: Mapping[str, xr.Dataset]) -> Fault:
    """Check that components, members and pairs belong to the models of ``/models``."""
    models = set(groups["/models"]["model"].values.tolist())
    for group, names in (("/components", ("model",)), ("/members", ("model",)), ("/pairs", ("first", "second"))):
        for name in names if group in groups else ():
            for one in groups[group][name].values.tolist():
                if one not in models:
                    return f"{name} {one!r} in {group}", "a model of /models"
    return None


COMPARISON = register(
    Kind(
        "comparison",
        {"": {}, **COMPARISON_SCHEMA},
        EVERY_FILE,
        {"warnings": JSON_LIST},
        frozenset({*COMPARISON_SCHEMA} - {"/models"}),
        relations=(models_named,),
    )
)
