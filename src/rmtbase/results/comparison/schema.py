"""Schema of a comparison file, group by group, and the findings about all of its models together."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, get_origin, get_type_hints

import xarray as xr

from rmtbase.results.trajectory.schema import STEP, STEP_COORDINATES
from rmtbase.shown import in_one_line
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
    REASON,
    SIZE,
    SPREAD,
    TEXT,
    Domain,
)

NEAREST = "nearest"  # part of ``/components`` of a comparison with published models


def _group(*entries: list[str] | tuple[str, str, Domain], part: str = "") -> dict[str, Variable]:
    """Make a group of (name, words, domain), each with the dimensions of the last list before it."""
    schema: dict[str, Variable] = {}
    dims: tuple[str, ...] = ()
    for entry in entries:
        if isinstance(entry, list):
            dims = tuple(entry)
        else:
            schema[entry[0]] = Variable(dims, *entry[1:], part=part)
    return schema


@in_one_line
@dataclass(frozen=True)
class ShapeBand:
    """Median Weibull shape k of each model, the median over its matrices."""

    medians: tuple[float, ...]  #: median of each model
    low: Annotated[float, "smallest of the models' median shapes", POSITIVE_OR_NAN]
    high: Annotated[float, "largest of the models' median shapes", POSITIVE_OR_NAN]
    #: standard deviation (n − 1) over mean; NaN for one model
    variation: Annotated[float, "coefficient of variation of the median shapes", NON_NEGATIVE_OR_NAN]
    #: for each model the mean of the median of untrained matrices of the same N
    null_medians: tuple[float, ...]
    null_errors: tuple[float, ...]  #: standard deviations of the same
    null_variation: Annotated[float, "mean coefficient of variation of untrained cohorts", NON_NEGATIVE_OR_NAN]
    null_variation_95: Annotated[float, "95 % quantile of the coefficient of untrained cohorts", NON_NEGATIVE_OR_NAN]
    #: never below 1/(draws + 1); NaN for one model
    p_value: Annotated[float, "share of untrained cohorts that vary as much", PROBABILITY]


@in_one_line
@dataclass(frozen=True)
class ScaleLaw:
    """λ of n models against x = √(η/λ_wd)."""

    n: int  #: number of models
    #: Σ x λ / Σ x²
    slope: Annotated[float, "slope of the scale on sqrt(eta / lambda_wd), through the origin", FINITE_OR_NAN]
    #: negative if a constant fits better
    r_squared: Annotated[float, "R^2 of that line, about the mean", FINITE_OR_NAN]
    deviations: tuple[float, ...]  #: |line/λ − 1| of each model
    #: it belongs to the line with an intercept
    correlation: Annotated[float, "Pearson's r of scale and sqrt(eta / lambda_wd)", FINITE_OR_NAN]
    #: two-sided: the share of orders of λ whose |r| is as large (all n! orders up to n = 8). It assumes that under the
    #: null all orders of the models' λ are equally likely.
    p_value: Annotated[float, "p-value of r, over permutations of the models", PROBABILITY]
    intercept: Annotated[float, "intercept of the line that has one", FINITE_OR_NAN]
    intercept_error: Annotated[float, "standard error of the intercept", NON_NEGATIVE_OR_NAN]
    #: b of λ ∝ x^b by least squares of logarithms
    exponent: Annotated[float, "exponent of the scale as a power of sqrt(eta / lambda_wd)", FINITE_OR_NAN]
    exponent_error: Annotated[float, "standard error of the exponent", NON_NEGATIVE_OR_NAN]


@in_one_line
@dataclass(frozen=True)
class PairedGrowth:
    """Pearson's r of ln λ of two components over many (model, step)."""

    n: int  #: number of points
    n_initial: Annotated[int, "models before training", COUNT]
    correlation: Annotated[float, "correlation of the ln of the scales of attention_output and mlp_out", FINITE_OR_NAN]
    #: the r of two components that share σ before training, and nothing after it: initial points keep their place
    built_in: Annotated[float, "mean correlation with the later scales paired at random", FINITE_OR_NAN]
    built_in_95: Annotated[float, "95 % quantile of the correlation with random pairs", FINITE_OR_NAN]
    #: one-sided. It assumes that under the null all pairings of the later points are equally likely. NaN if fewer than
    #: two points are later.
    p_value: Annotated[float, "p-value of the correlation among random pairs", PROBABILITY]
    #: NaN if there are fewer than three
    later_correlation: Annotated[float, "correlation over models after training only", FINITE_OR_NAN]


_GROUPED: dict[str, Schema] = {
    "/members": _group(
        ["model"],
        ("group_of", "group of the model", TEXT),
        ["model", "measure"],
        ("value", "value of the measure", FINITE_OR_NAN),
    ),
    "/between": _group(
        ["group"],
        ("n_models", "models in the group", SIZE),
        ["group", "measure"],
        ("mean", "mean over the models of the group", FINITE_OR_NAN),
        ["measure"],
        ("headline", "whether the measure is shown first", FLAG),
        ("seed_std", "standard deviation between seeds of a group", NON_NEGATIVE_OR_NAN),
        ("group_std", "standard deviation between groups, beyond seed_std", NON_NEGATIVE_OR_NAN),
        ("f_ratio", "mean square between groups over mean square within groups", SPREAD),
        ("p_value", "p-value of f_ratio, with models put into groups at random", PROBABILITY),
        ("adjusted_p_value", "p_value, adjusted for all measures", PROBABILITY),
        [],
        ("smallest_p_value", "smallest p-value that so few models allow", PROBABILITY),
    ),
    "/groups": _group(
        ["contrast"],
        ("first_group", "first group", TEXT),
        ("second_group", "second group", TEXT),
        ("n_first", "models in the first group", SIZE),
        ("n_second", "models in the second group", SIZE),
        ("smallest_p_value", "smallest p-value that so few models allow", PROBABILITY),
        ("paired", "whether the k-th model of one group was compared with that of the other", FLAG),
        ["contrast", "measure"],
        ("first_mean", "mean over the models of the first group", FINITE_OR_NAN),
        ("second_mean", "mean over the models of the second group", FINITE_OR_NAN),
        ("difference", "second mean less first mean", FINITE_OR_NAN),
        ("standard_error", "standard error of the difference, from the spread between seeds", NON_NEGATIVE_OR_NAN),
        ("seed_std", "standard deviation between seeds, pooled over both groups", NON_NEGATIVE_OR_NAN),
        ("p_value", "two-sided p-value, with models put into groups at random", PROBABILITY),
        ("adjusted_p_value", "p_value, adjusted for all measures", PROBABILITY),
        ("interval_low", "lower end of the 95 % confidence interval of the difference", FINITE_OR_NAN),
        ("interval_high", "upper end of the 95 % confidence interval of the difference", FINITE_OR_NAN),
        ("t_p_value", "two-sided p-value by Student's t", PROBABILITY),
        ("t_q_value", "Benjamini-Hochberg q-value of t_p_value over all contrasts and measures", PROBABILITY),
    ),
}


def _along(schema: Schema) -> Schema:
    stepped = {
        name: replace(variable, dims=(STEP, *variable.dims))
        for name, variable in schema.items()
        if "measure" in variable.dims and name != "headline"
    }
    return {**schema, **stepped, STEP: STEP_COORDINATES[STEP]}


COMPARISON_SCHEMA: dict[str, Schema] = {
    "/models": _group(
        ["model"],
        ("name", "name of the model", TEXT),
        ("revision", "revision of the model", TEXT),
        ("family", "architecture of the model", TEXT),
        ("attention", "how the heads share keys", TEXT),
        ("fingerprint", "SHA-256 of the queries and keys", TEXT),
        ("null", "null that the heads were scored against", TEXT),
        ("n_scored_heads", "heads scored", COUNT),
        ("n_untested_heads", "heads that could not be tested", COUNT),
        ("n_departed_heads", "heads that differ from the null: omnibus q-value under 0.05", COUNT),
        ("budget", "training budget T eta lambda_wd, NaN where unknown", POSITIVE_OR_NAN),
        ("budget_state", "published state of the budget", TEXT),
        ("root", "sqrt(eta / lambda_wd), NaN where unknown", POSITIVE_OR_NAN),
        ("untrained", "1 for a model before training: stated, or tested and no head differs from the null", FLAG),
    )
    | _group(
        ["model"],
        ("initial_recipe", "recipe of initial sigma that no matrix contradicts", TEXT),
        ("transmission_shape", "median Weibull shape of the Transmission Class", POSITIVE_OR_NAN),
        ("transmission_shape_null_mean", "mean of that median for untrained matrices", POSITIVE_OR_NAN),
        ("transmission_shape_null_std", "standard deviation of the same", NON_NEGATIVE_OR_NAN),
        ("transmission_scale", "Weibull scale, mean over layers and then components of the class", POSITIVE_OR_NAN),
        ("transmission_shape_untrimmed", "median over the class of the shape of all weights", POSITIVE_OR_NAN),
        ("transmission_gap", "median over the class of k(trim 0.1) - k(trim 0)", FINITE_OR_NAN),
        part="weibull",  # missing for scores without matrices
    ),
    "/components": _group(
        ["model", "component"],
        ("n_matrices", "matrices inside the layers", COUNT),
        ("n_tested", "matrices whose Weibull shape could be tested", COUNT),
        ("n_departed", "matrices whose Weibull shape differs from the anchor: q-value under 0.05", COUNT),
        ("shape", "median Weibull shape", POSITIVE_OR_NAN),
        ("shape_null_mean", "mean of that median for untrained matrices", POSITIVE_OR_NAN),
        ("shape_null_std", "standard deviation of that median for untrained matrices", NON_NEGATIVE_OR_NAN),
        ("r_squared", "median R^2 of the fits", PROBABILITY),
        ("closure", "median relative error of the Gamma closure", FINITE_OR_NAN),
        ("body_tail_gap", "median of k(trim 0.1) - k(trim 0)", FINITE_OR_NAN),
        ("r_squared_null_mean", "median of the mean of R^2 of untrained weights", FINITE_OR_NAN),
        ("closure_null_mean", "median of the mean of the closure of untrained weights", FINITE_OR_NAN),
        ("body_tail_gap_null_mean", "median of the mean of the gap of untrained weights", FINITE_OR_NAN),
        ("published_class", "published class of the median shape", TEXT),
        ("scale", "mean Weibull scale", POSITIVE_OR_NAN),
        ("sigma", "mean standard deviation of the elements", NON_NEGATIVE_OR_NAN),
    )
    | _group(
        ["model", "component"],
        ("median_scale", "median Weibull scale", POSITIVE_OR_NAN),
        ("nearest_model", "published model whose component is nearest; empty where there are too few", TEXT),
        ("nearest_distance", "distance in median shape and ln of median scale, over their sd", NON_NEGATIVE_OR_NAN),
        ("nearest_random_low", "5 % quantile of that distance of untrained matrices", NON_NEGATIVE_OR_NAN),
        ("nearest_random_median", "median of the same", NON_NEGATIVE_OR_NAN),
        ("nearest_random_high", "95 % quantile of the same", NON_NEGATIVE_OR_NAN),
        ("nearest_p_value", "share of untrained matrices that come as near", PROBABILITY),
        ("nearest_q_value", "Benjamini-Hochberg q-value of it over all components and models", PROBABILITY),
        ("nearest_between_published", "share of published models with another one as near", PROBABILITY),
        part=NEAREST,
    ),
    "/pairs": _group(
        ["pair"],
        ("first", "first model", TEXT),
        ("second", "second model", TEXT),
        ("duplicate", "whether queries and keys are the same to the bit", FLAG),
        ("alignment", "correlation of heads at the same place, less means of layers; NaN if none", FINITE_OR_NAN),
        ("alignment_p_value", "one-sided p-value of the alignment under permutations of the heads", PROBABILITY),
        ("reordered", "whether the heads of both have the same eigenvalues, in another order", FLAG),
        ("paired", "whether heads were compared place by place", FLAG),
        ("n_units", "key heads compared; those of both models if they are not paired", COUNT),
        ("omnibus_p_value", "p-value of all statistics together", PROBABILITY),
        ("omnibus_q_value", "Benjamini-Hochberg q-value of omnibus_p_value over all pairs", PROBABILITY),
        ("reason", "why the heads cannot be compared; empty if they can", REASON),
        ("alignment_reason", "why a common origin cannot be tested; empty if it can", REASON),
        ["pair", "statistic"],
        ("difference", "median difference of the distances from the null, second less first", FINITE_OR_NAN),
        ("p_value", "two-sided p-value by permutation", PROBABILITY),
        ("adjusted_p_value", "p_value, adjusted for all statistics", PROBABILITY),
    ),
    "/drifts": _group(
        ["pair", "component"],
        ("drift", "mean change of the Weibull shape; NaN where sizes differ", FINITE_OR_NAN),
        ("standard_error", "standard error of the drift for untrained weights", NON_NEGATIVE_OR_NAN),
        ("p_value", "two-sided p-value of no change", PROBABILITY),
    ),
    **_GROUPED,
    **{f"/along{name}": _along(schema) for name, schema in _GROUPED.items()},
    "/findings": {
        f"{part}_{name}": Variable((), *annotation.__metadata__, part=part)
        for part, finding in {"band": ShapeBand, "scale_law": ScaleLaw, "paired_growth": PairedGrowth}.items()
        for name, annotation in get_type_hints(finding, include_extras=True).items()
        if get_origin(annotation) is Annotated
    },
    "/published": _group(
        ["published_model"],
        ("mean_scale", "mean Weibull scale of the Transmission Class", POSITIVE_OR_NAN),
        ("root", "sqrt(eta / lambda_wd)", POSITIVE_OR_NAN),
        ("budget", "training budget T/tau, where printed", POSITIVE_OR_NAN),
        ("budget_state", "state of the budget, where printed", TEXT),
        ("max_to_q99", "median over blocks of max/q99, where printed", POSITIVE_OR_NAN),
        ["published_model", "component"],
        ("shape", "median Weibull shape over layers, from npm-weibull-py, DATABASE_v9_1, CC BY 4.0", POSITIVE_OR_NAN),
        ("scale", "median Weibull scale over layers, likewise", POSITIVE_OR_NAN),
        ("r_squared", "median R^2 of the fits, likewise", PROBABILITY),
    ),
    "/trims": {
        **{
            f"{name}shape_{trim}": Variable((), f"{words} with {trim} % of the weights cut from either end", POSITIVE)
            for trim in ("10", "5", "0")
            for name, words in (
                ("", "published median shape of feed-forward and output matrices, over twelve models,"),
                ("untrained_", "shape of untrained normal weights"),
            )
        },
        **_group(
            ("gap", "published mean over the models of k(trim 0.1) - k(trim 0)", FINITE_OR_NAN),
            ("gap_std", "published standard deviation of the same", NON_NEGATIVE_OR_NAN),
            ("untrained_gap", "the same difference for untrained normal weights", FINITE_OR_NAN),
        ),
    },
}
"""The variables of each group of a comparison. ``/drifts``, ``/members``, ``/between``, ``/groups``, ``/along``,
``/components``, ``/published``, ``/trims`` and parts of ``/findings`` are optional."""


def _models_named(groups: Mapping[str, xr.Dataset]) -> Fault:
    """Check that components, members and pairs belong to the models of ``/models``."""
    models = set(groups["/models"]["model"].values.tolist())
    for group, variables in (("/components", ("model",)), ("/members", ("model",)), ("/pairs", ("first", "second"))):
        for variable in variables if group in groups else ():
            for name in groups[group][variable].values.tolist():
                if name not in models:
                    return f"{variable} {name!r} in {group}", "a model of /models"
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
