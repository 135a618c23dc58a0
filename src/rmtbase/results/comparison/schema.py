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
    POSITIVE,
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
_TRIMS = "trims"  # part that comparisons by older versions lack
NEAREST = "nearest"  # part of a comparison with published models
_WEIBULL = "weibull"  # part that is missing for scores without matrices or by older versions

_GROUPED: dict[str, Schema] = {
    "/members": {
        "group_of": Variable(_MODEL, "group of the model", TEXT),
        "value": Variable(("model", "measure"), "value of the measure", FINITE_OR_NAN),
        "head_error": Variable(
            ("model", "measure"), "standard error of the value, from the spread between heads only", NON_NEGATIVE_OR_NAN
        ),
    },
    "/between": {
        "n_models": Variable(("group",), "models in the group", SIZE),
        "headline": Variable(("measure",), "whether the measure is shown first", FLAG),
        "mean": Variable(("group", "measure"), "mean over the models of the group", FINITE_OR_NAN),
        "seed_std": Variable(("measure",), "standard deviation between seeds of a group", NON_NEGATIVE_OR_NAN),
        "group_std": Variable(("measure",), "standard deviation between groups, beyond seed_std", NON_NEGATIVE_OR_NAN),
        "f_ratio": Variable(("measure",), "mean square between groups over mean square within groups", SPREAD),
        "p_value": Variable(("measure",), "p-value of f_ratio, with models put into groups at random", PROBABILITY),
        "adjusted_p_value": Variable(("measure",), "p_value, adjusted for all measures", PROBABILITY),
        "smallest_p_value": Variable((), "smallest p-value that so few models allow", PROBABILITY),
    },
    "/groups": {
        "first_group": Variable(_CONTRAST, "first group", TEXT),
        "second_group": Variable(_CONTRAST, "second group", TEXT),
        "n_first": Variable(_CONTRAST, "models in the first group", SIZE),
        "n_second": Variable(_CONTRAST, "models in the second group", SIZE),
        "smallest_p_value": Variable(_CONTRAST, "smallest p-value that so few models allow", PROBABILITY),
        "first_mean": Variable(_MEASURE, "mean over the models of the first group", FINITE_OR_NAN),
        "second_mean": Variable(_MEASURE, "mean over the models of the second group", FINITE_OR_NAN),
        "difference": Variable(_MEASURE, "second mean less first mean", FINITE_OR_NAN),
        "standard_error": Variable(
            _MEASURE, "standard error of the difference, from the spread between seeds", NON_NEGATIVE_OR_NAN
        ),
        "seed_std": Variable(
            _MEASURE, "standard deviation between seeds, pooled over both groups", NON_NEGATIVE_OR_NAN
        ),
        "head_error": Variable(
            _MEASURE, "standard error of one model, from the spread between heads only", NON_NEGATIVE_OR_NAN
        ),
        "p_value": Variable(_MEASURE, "two-sided p-value, with models put into groups at random", PROBABILITY),
        "adjusted_p_value": Variable(_MEASURE, "p_value, adjusted for all measures", PROBABILITY),
        "paired": Variable(
            _CONTRAST, "whether the k-th model of one group was compared with that of the other", FLAG, part=_INTERVAL
        ),
        **{
            name: Variable(_MEASURE, words, domain, part=_INTERVAL)
            for name, words, domain in (
                ("effect", "difference over seed_std", FINITE_OR_NAN),
                ("interval_low", "lower end of the 95 % confidence interval of the difference", FINITE_OR_NAN),
                ("interval_high", "upper end of the 95 % confidence interval of the difference", FINITE_OR_NAN),
                ("t_p_value", "two-sided p-value by Student's t", PROBABILITY),
                ("t_q_value", "Benjamini-Hochberg q-value of t_p_value over all contrasts and measures", PROBABILITY),
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
        "revision": Variable(_MODEL, "revision of the model", TEXT),
        "family": Variable(_MODEL, "architecture of the model", TEXT),
        "attention": Variable(_MODEL, "how the heads share keys", TEXT),
        "fingerprint": Variable(_MODEL, "SHA-256 of the queries and keys", TEXT),
        "null": Variable(_MODEL, "null that the heads were scored against", TEXT),
        "n_scored_heads": Variable(_MODEL, "heads scored", COUNT),
        "n_untested_heads": Variable(_MODEL, "heads that could not be tested", COUNT),
        "n_departed_heads": Variable(_MODEL, "heads that differ from the null: omnibus q-value under 0.05", COUNT),
        "budget": Variable(_MODEL, "training budget T eta lambda_wd, NaN where unknown", POSITIVE_OR_NAN),
        "budget_state": Variable(_MODEL, "published state of the budget", TEXT),
        "root": Variable(_MODEL, "sqrt(eta / lambda_wd), NaN where unknown", POSITIVE_OR_NAN),
        "untrained": Variable(
            _MODEL,
            "1 for a model before training: as given, or if heads were tested and none differs from the null",
            FLAG,
        ),
        "initial_recipe": Variable(_MODEL, "recipe of initial sigma that no matrix contradicts", TEXT, part=_WEIBULL),
        "transmission_shape": Variable(
            _MODEL, "median Weibull shape of the Transmission Class", POSITIVE_OR_NAN, part=_WEIBULL
        ),
        "transmission_shape_null_mean": Variable(
            _MODEL, "mean of that median for untrained matrices of the same sizes", POSITIVE_OR_NAN, part=_WEIBULL
        ),
        "transmission_shape_null_std": Variable(
            _MODEL, "standard deviation of that median for untrained matrices", NON_NEGATIVE_OR_NAN, part=_WEIBULL
        ),
        "transmission_scale": Variable(
            _MODEL,
            "Weibull scale of the Transmission Class: mean over layers, then over components",
            POSITIVE_OR_NAN,
            part=_WEIBULL,
        ),
        "transmission_shape_untrimmed": Variable(
            _MODEL, "median over the Transmission Class of the shape of all weights", POSITIVE_OR_NAN, part=_TRIMS
        ),
        "transmission_gap": Variable(
            _MODEL, "median over the Transmission Class of k(trim 0.1) - k(trim 0)", FINITE_OR_NAN, part=_TRIMS
        ),
    },
    "/components": {
        "n_matrices": Variable(_COMPONENT, "matrices inside the layers", COUNT),
        "n_tested": Variable(_COMPONENT, "matrices whose Weibull shape could be tested", COUNT),
        "n_departed": Variable(
            _COMPONENT, "matrices whose Weibull shape differs from the anchor: q-value under 0.05", COUNT
        ),
        "shape": Variable(_COMPONENT, "median Weibull shape", POSITIVE_OR_NAN),
        "shape_null_mean": Variable(_COMPONENT, "mean of that median for untrained matrices", POSITIVE_OR_NAN),
        "shape_null_std": Variable(
            _COMPONENT, "standard deviation of that median for untrained matrices", NON_NEGATIVE_OR_NAN
        ),
        "r_squared": Variable(_COMPONENT, "median R^2 of the fits", PROBABILITY),
        "closure": Variable(_COMPONENT, "median relative error of the Gamma closure", FINITE_OR_NAN),
        "body_tail_gap": Variable(_COMPONENT, "median of k(trim 0.1) - k(trim 0)", FINITE_OR_NAN),
        **{
            f"{name}_null_mean": Variable(
                _COMPONENT, f"median of the mean of {words} of untrained weights", FINITE_OR_NAN
            )
            for name, words in (("r_squared", "R^2"), ("closure", "the closure"), ("body_tail_gap", "the gap"))
        },
        "published_class": Variable(_COMPONENT, "published class of the median shape", TEXT),
        "scale": Variable(_COMPONENT, "mean Weibull scale", POSITIVE_OR_NAN),
        "sigma": Variable(_COMPONENT, "mean standard deviation of the elements", NON_NEGATIVE_OR_NAN),
        "median_scale": Variable(_COMPONENT, "median Weibull scale", POSITIVE_OR_NAN, part=NEAREST),
        "nearest_model": Variable(
            _COMPONENT, "published model whose component is nearest; empty where there are too few", TEXT, part=NEAREST
        ),
        **{
            f"nearest_{name}": Variable(_COMPONENT, words, domain, part=NEAREST)
            for name, words, domain in (
                (
                    "distance",
                    "its distance in median shape and ln of the median scale, in standard deviations over the "
                    "published models",
                    NON_NEGATIVE_OR_NAN,
                ),
                (
                    "random_low",
                    "5 % quantile of the nearest distance of untrained matrices of the same sizes and sigma",
                    NON_NEGATIVE_OR_NAN,
                ),
                ("random_median", "median of the same", NON_NEGATIVE_OR_NAN),
                ("random_high", "95 % quantile of the same", NON_NEGATIVE_OR_NAN),
                ("p_value", "share of untrained matrices that come as near", PROBABILITY),
                ("q_value", "Benjamini-Hochberg q-value of it over all components and models", PROBABILITY),
                ("between_published", "share of published models with another one as near", PROBABILITY),
            )
        },
    },
    "/pairs": {
        "first": Variable(_PAIR, "first model", TEXT),
        "second": Variable(_PAIR, "second model", TEXT),
        "duplicate": Variable(_PAIR, "whether queries and keys are the same to the bit", FLAG),
        "alignment": Variable(
            _PAIR, "correlation of heads at the same place, less the means of layers; NaN if none match", FINITE_OR_NAN
        ),
        "alignment_p_value": Variable(
            _PAIR, "one-sided p-value of the alignment under permutations of the heads", PROBABILITY
        ),
        "reordered": Variable(
            _PAIR, "whether the heads of both have the same eigenvalues, in another order", FLAG, part="reordered"
        ),
        "paired": Variable(_PAIR, "whether heads were compared place by place", FLAG),
        "n_units": Variable(_PAIR, "key heads compared; those of both models if they are not paired", COUNT),
        "omnibus_p_value": Variable(_PAIR, "p-value of all statistics together", PROBABILITY),
        "omnibus_q_value": Variable(_PAIR, "Benjamini-Hochberg q-value of omnibus_p_value over all pairs", PROBABILITY),
        "reason": Variable(_PAIR, "why the heads cannot be compared; empty if they can", TEXT),
        "alignment_reason": Variable(_PAIR, "why a common origin cannot be tested; empty if it can", TEXT),
        "difference": Variable(
            _PAIR_STATISTIC, "median difference of the distances from the null, second less first", FINITE_OR_NAN
        ),
        "p_value": Variable(_PAIR_STATISTIC, "two-sided p-value by permutation", PROBABILITY),
        "adjusted_p_value": Variable(_PAIR_STATISTIC, "p_value, adjusted for all statistics", PROBABILITY),
    },
    "/drifts": {
        "drift": Variable(
            ("pair", "component"), "mean change of the Weibull shape; NaN where sizes differ", FINITE_OR_NAN
        ),
        "standard_error": Variable(
            ("pair", "component"), "standard error of the drift for untrained weights", NON_NEGATIVE_OR_NAN
        ),
        "p_value": Variable(("pair", "component"), "two-sided p-value of no change", PROBABILITY),
    },
    **_GROUPED,
    **{f"/along{name}": _along(schema) for name, schema in _GROUPED.items()},
    "/findings": {
        **{
            f"band_{name}": Variable((), words, domain, part="band")
            for name, words, domain in (
                ("low", "smallest of the models' median shapes", POSITIVE_OR_NAN),
                ("high", "largest of the models' median shapes", POSITIVE_OR_NAN),
                ("variation", "coefficient of variation of the median shapes", NON_NEGATIVE_OR_NAN),
                ("null_variation", "mean coefficient of variation of untrained cohorts", NON_NEGATIVE_OR_NAN),
                ("null_variation_95", "95 % quantile of the coefficient of untrained cohorts", NON_NEGATIVE_OR_NAN),
                ("p_value", "share of untrained cohorts that vary as much", PROBABILITY),
            )
        },
        **{
            f"scale_law_{name}": Variable((), words, domain, part="scale_law")
            for name, words, domain in (
                ("slope", "slope of the scale on sqrt(eta / lambda_wd), through the origin", FINITE_OR_NAN),
                ("r_squared", "R^2 of that line, about the mean", FINITE_OR_NAN),
                ("correlation", "Pearson's r of scale and sqrt(eta / lambda_wd)", FINITE_OR_NAN),
                ("p_value", "p-value of r, over permutations of the models", PROBABILITY),
                ("intercept", "intercept of the line that has one", FINITE_OR_NAN),
                ("intercept_error", "standard error of the intercept", NON_NEGATIVE_OR_NAN),
                ("exponent", "exponent of the scale as a power of sqrt(eta / lambda_wd)", FINITE_OR_NAN),
                ("exponent_error", "standard error of the exponent", NON_NEGATIVE_OR_NAN),
                ("p_value_of_one", "p-value of the exponent 1", PROBABILITY),
            )
        },
        **{
            f"paired_growth_{name}": Variable((), words, domain, part="paired_growth")
            for name, words, domain in (
                ("correlation", "correlation of the ln of the scales of attention_output and mlp_out", FINITE_OR_NAN),
                ("n_initial", "models before training", COUNT),
                ("built_in", "mean correlation with the later scales paired at random", FINITE_OR_NAN),
                ("built_in_95", "95 % quantile of the correlation with random pairs", FINITE_OR_NAN),
                ("p_value", "p-value of the correlation among random pairs", PROBABILITY),
                ("later_correlation", "correlation over models after training only", FINITE_OR_NAN),
            )
        },
    },
    "/published": {
        "mean_scale": Variable(("published_model",), "mean Weibull scale of the Transmission Class", POSITIVE_OR_NAN),
        "root": Variable(("published_model",), "sqrt(eta / lambda_wd)", POSITIVE_OR_NAN),
        "budget": Variable(("published_model",), "training budget T/tau, where printed", POSITIVE_OR_NAN),
        "budget_state": Variable(("published_model",), "state of the budget, where printed", TEXT),
        "max_to_q99": Variable(("published_model",), "median over blocks of max/q99, where printed", POSITIVE_OR_NAN),
        "shape": Variable(
            ("published_model", "component"),
            "median Weibull shape over layers, from DATABASE_v9_1 of the package npm-weibull-py, CC BY 4.0",
            POSITIVE_OR_NAN,
            part="shape",
        ),
        "scale": Variable(
            ("published_model", "component"),
            "median Weibull scale over layers, likewise",
            POSITIVE_OR_NAN,
            part="scale",
        ),
        "r_squared": Variable(
            ("published_model", "component"), "median R^2 of the fits, likewise", PROBABILITY, part="scale"
        ),
    },
    "/trims": {
        **{
            f"{name}shape_{trim}": Variable((), f"{words} with {trim} % of the weights cut from either end", POSITIVE)
            for trim in ("10", "5", "0")
            for name, words in (
                ("", "published median shape of feed-forward and output matrices, over twelve models,"),
                ("untrained_", "shape of untrained normal weights"),
            )
        },
        "gap": Variable((), "published mean over the models of k(trim 0.1) - k(trim 0)", FINITE_OR_NAN),
        "gap_std": Variable((), "published standard deviation of the same", NON_NEGATIVE_OR_NAN),
        "untrained_gap": Variable((), "the same difference for untrained normal weights", FINITE_OR_NAN),
    },
}
"""The variables of each group of a comparison. ``/drifts``, ``/members``, ``/between``, ``/groups``, ``/along``,
``/components``, ``/published``, ``/trims`` and parts of ``/findings`` are optional."""


def _models_named(groups: Mapping[str, xr.Dataset]) -> Fault:
    """Check that components, members and pairs belong to the models of ``/models``."""
    models = set(groups["/models"]["model"].values.tolist())
    for group, names in (("/components", ("model",)), ("/members", ("model",)), ("/pairs", ("first", "second"))):
        for name in names if group in groups else ():
            for one in groups[group][name].values.tolist():
                if one not in models:
                    return f"{name} {one!r} in {group}", "a model of /models"
    return None


register(
    Kind(
        "comparison",
        {"": {}, **COMPARISON_SCHEMA},
        EVERY_FILE,
        {"warnings": JSON_LIST},
        frozenset({*COMPARISON_SCHEMA} - {"/models"}),
        relations=(_models_named,),
    )
)
