"""Comparison of models: measures of each model, and tests of pairs, of groups, and of all models together."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import combinations
from typing import Any

import numpy as np
import xarray as xr
from scipy.special import ndtr

from rmtbase.errors import ParameterError
from rmtbase.parameters import require_repeats, require_seed
from rmtbase.progress import SILENT, Progress
from rmtbase.results.comparison._findings import Training, paired_growth, scale_law, shape_band
from rmtbase.results.comparison._groups import GroupTest, grouped_tables, require_groups
from rmtbase.results.comparison._matrices import (
    TRANSMISSION,
    ComparedModel,
    all_components,
    components_table,
    fitted_matrices,
    models_table,
    shape_drift,
    values_of,
)
from rmtbase.results.comparison._published import nearest_table, published_models, published_trims
from rmtbase.results.comparison._two_models import PERMUTATIONS, common_origin, compare_two, fingerprint
from rmtbase.results.comparison.schema import COMPARISON_SCHEMA
from rmtbase.results.filled import Entries, filled
from rmtbase.results.scores._heads import require_scores
from rmtbase.results.trajectory.schema import STEP, scores_at
from rmtbase.statistics import SPECTRAL_STATISTICS, benjamini_hochberg
from rmtbase.tables import SCHEMA_VERSION, describe, provenance, software_version


def compare(
    models: Mapping[str, xr.DataTree],
    groups: Mapping[str, Sequence[str]] | None = None,
    training: Mapping[str, Training] | None = None,
    initial: Sequence[str] | None = None,
    published: bool = False,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
    progress: Progress = SILENT,
    paired: bool = False,
) -> xr.DataTree:
    """Compare scored models with each other, and with published models.

    Args:
        models: scores or trajectories, by the name of each model in the comparison. A trajectory is compared at its
            last step; groups of trajectories are also compared at every step that all of them have.
        groups: names of models by the name of their group. All groups are compared together, and every pair.
        training: training settings of the models for which they are known.
        initial: names of the models before training; if None, those in which no head differs from the null.
        published: whether to add the twelve published models of arXiv:2605.18898, and for each component of a model the
            nearest published one, with the distance at which untrained matrices have theirs.
        permutations: number of permutations of each test.
        seed: seed of the permutations, and of the nulls of the band and of the nearest published component.
        progress: shows the pairs compared, and notes what cannot be compared and why.
        paired: whether the k-th models of all groups share everything that a seed decides.

    Returns:
        A comparison, as :func:`rmtbase.results.open_table` opens it; its groups and variables are described in
        ``rmtbase.results.comparison.schema.COMPARISON_SCHEMA``. ``/models`` and ``/components`` describe each
        model; ``/pairs`` and ``/drifts`` every pair; ``/members``, ``/between`` and ``/groups`` the groups, and
        ``/along`` their trajectories; ``/findings`` all models together: :func:`shape_band` of at least two models,
        :func:`scale_law` of at least two with known training, :func:`paired_growth` of at least three.

    Raises:
        ParameterError: there is no model, a model is not a scores tree, or a group or training names an unknown model.
    """
    if not models:
        raise ParameterError("models", 0, "1 at least")
    of_runs = {"heads", "departures"}
    trees = {name: tree for name, tree in models.items() if isinstance(tree, xr.DataTree)}
    runs = {name: tree for name, tree in trees.items() if of_runs <= set(tree.children)}
    last = {name: scores_at(tree, int(tree["heads"].to_dataset()[STEP].values[-1])) for name, tree in runs.items()}
    models = {name: last.get(name, tree) for name, tree in models.items()}
    for name, scores in models.items():
        if name.encode(errors="ignore").decode() != name:
            raise ParameterError("models", name, "names that UTF-8 can hold, so that they can be written")
        require_scores(scores, f"models[{name!r}]")
    groups, training = groups or {}, training or {}
    by_argument = {"training": training, "initial": initial or ()}
    for argument, names in (by_argument | {f"groups[{name!r}]": members for name, members in groups.items()}).items():
        for name in names:
            if name not in models:
                raise ParameterError(argument, name, f"one of {', '.join(models)}")
    if groups or paired:
        require_groups(groups, paired)
    permutations, seed = require_repeats("permutations", permutations), require_seed(seed)
    warnings: list[str] = []
    compared = []
    for name, scores in models.items():
        matrices = None
        try:
            matrices = fitted_matrices(scores)
        except ParameterError as error:
            warnings.append(f"{name} has no Weibull fits to compare: {error}")
        untrained = None if initial is None else name in initial
        compared.append(ComparedModel(name, scores, matrices, training.get(name), untrained, runs.get(name)))
    tree = {"/models": models_table(compared, seed)}
    fitted = any(model.components for model in compared)
    if fitted:
        tree["/components"] = components_table(compared, seed)
        tree["/findings"] = _findings(compared, tree["/models"], seed, warnings)
    if len(compared) > 1:
        tree["/pairs"] = _pairs_table(compared, permutations, seed, progress, warnings)
        if fitted:
            tree["/drifts"] = _drifts_table(compared)
    if groups:
        tree |= grouped_tables(compared, groups, GroupTest(paired, permutations, seed), progress, warnings)
    if published:
        tree["/published"] = published_models()
        if fitted:
            tree["/components"] = tree["/components"].merge(nearest_table(compared, tree["/published"], seed))
            tree["/trims"] = published_trims()
    for line in warnings:
        progress.note(line)
    described = {name: describe(group, COMPARISON_SCHEMA[name]) for name, group in tree.items() if group.data_vars}
    comparison: xr.DataTree = xr.DataTree.from_dict(described)
    call = {
        "function": "rmtbase.results.comparison.compare",
        "models": {name: scores.attrs["model"] for name, scores in models.items()},
        "groups": {name: list(names) for name, names in groups.items()},
        "paired": paired,
        "training": {name: asdict(settings) for name, settings in training.items()},
        "initial": None if initial is None else list(initial),
        "permutations": permutations,
        "seed": seed,
    }
    comparison.attrs = {
        "schema_version": SCHEMA_VERSION,
        "rmtbase_version": software_version(),
        "kind": "comparison",
        "warnings": json.dumps(warnings),
        "provenance": provenance(call, weights={name: fingerprint(scores) for name, scores in models.items()}),
    }
    return comparison


def _findings(models: Sequence[ComparedModel], table: xr.Dataset, seed: int, warnings: list[str]) -> xr.Dataset:
    findings: dict[str, Any] = {}
    fits = [fit for fit in (model.fits(*TRANSMISSION) for model in models) if fit.shapes.size]
    if len(fits) > 1:
        findings["band"] = shape_band([fit.shapes for fit in fits], [fit.numbers for fit in fits], seed=seed)
    root, scale = table["root"].values, table["transmission_scale"].values
    trained = np.isfinite(root) & np.isfinite(scale)
    if trained.sum() > 1:
        try:
            findings["scale_law"] = scale_law(root[trained], scale[trained], seed)
        except ParameterError as error:
            warnings.append(f"no law of scales: {error}")
    scales = np.array([[model.mean("scale", name) for model in models] for name in ("attention_output", "mlp_out")])
    complete, initial = np.isfinite(scales).all(axis=0), table["untrained"].values.astype(bool)
    if complete.sum() > 2 and (complete & ~initial).sum() > 1:
        attention, mlp = scales[:, complete]
        findings["paired_growth"] = paired_growth(attention, mlp, initial[complete], seed=seed)
    values = {f"{part}_{name}": value for part, finding in findings.items() for name, value in vars(finding).items()}
    return xr.Dataset({name: values[name] for name in COMPARISON_SCHEMA["/findings"] if name in values})


def _pairs_table(
    models: Sequence[ComparedModel], permutations: int, seed: int, progress: Progress, warnings: list[str]
) -> xr.Dataset:
    pairs = list(combinations(models, 2))
    rows: Entries = {}
    advance = progress.bar("comparing", len(pairs))
    for place, (first, second) in enumerate(pairs):
        origin, test = (
            measure(first.scores, second.scores, permutations, seed) for measure in (common_origin, compare_two)
        )
        row = {"first": first.name, "second": second.name, **origin, **test}
        rows[place,] = row | {name: str(row[name]) for name in ("reason", "alignment_reason")}
        if not test["n_units"]:
            warnings.append(f"{first.name} and {second.name}: heads cannot be compared: {test['reason'].words}")
        advance(1)
    schema = COMPARISON_SCHEMA["/pairs"]
    names = [f"{first.name} | {second.name}" for first, second in pairs]
    table = filled(schema, {"pair": names, "statistic": list(SPECTRAL_STATISTICS)}, rows)
    p_value = table["omnibus_p_value"].where(table["reason"] == "")
    return table.assign(omnibus_q_value=("pair", benjamini_hochberg(p_value.values)))


def _drifts_table(models: Sequence[ComparedModel]) -> xr.Dataset:
    pairs, components = list(combinations(models, 2)), all_components(models)
    entries: Entries = {}
    for row, (first, second) in enumerate(pairs):
        if first.matrices is None or second.matrices is None:
            continue
        try:
            drifts = shape_drift(first.scores, second.scores)
        except ParameterError:  # the models differ in their sizes, so that no drift is defined
            continue
        for column, component in enumerate(components):
            drift, error = (
                values_of(first.matrices, drifts[name], component, finite=False) for name in ("drift", "standard_error")
            )
            drift, error = drift[np.isfinite(drift)], error[np.isfinite(drift)]
            if drift.size:
                mean, spread = drift.mean(), np.sqrt((error**2).sum()) / drift.size
                p_value = 2.0 * ndtr(-abs(mean / spread))
                entries[row, column] = {"drift": mean, "standard_error": spread, "p_value": p_value}
    schema, names = COMPARISON_SCHEMA["/drifts"], [f"{first.name} | {second.name}" for first, second in pairs]
    return filled(schema, {"pair": names, "component": components}, entries, schema)
