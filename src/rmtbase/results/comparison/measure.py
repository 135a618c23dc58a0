"""Comparison of models: measures of each model, and tests of pairs, of groups, and of all models together."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from itertools import combinations
from typing import Any

import numpy as np
import xarray as xr
from scipy.special import ndtr

from rmtbase.errors import ParameterError
from rmtbase.parameters import require_positive_integer, require_seed
from rmtbase.progress import SILENT, Progress
from rmtbase.results.comparison._classes import TRANSMISSION
from rmtbase.results.comparison._common_origin import common_origin, fingerprint, too_few_ways
from rmtbase.results.comparison._diagnose import diagnose, matrices_of, of_matrices, shape_drift
from rmtbase.results.comparison._each_model import (
    ComparedModel,
    all_components,
    components_table,
    models_table,
    transmission_table,
)
from rmtbase.results.comparison._grouped import grouped_tables, require_groups
from rmtbase.results.comparison._nearest_published import nearest_table
from rmtbase.results.comparison._paired_growth import paired_growth
from rmtbase.results.comparison._published import published_models, published_trims
from rmtbase.results.comparison._scale_law import scale_law
from rmtbase.results.comparison._shape_band import shape_band
from rmtbase.results.comparison._training_budget import Training
from rmtbase.results.comparison._two_models import PERMUTATIONS, compare_two
from rmtbase.results.comparison.schema import COMPARISON_SCHEMA
from rmtbase.results.scores._heads import require_scores
from rmtbase.results.trajectory.schema import STEP, scores_at
from rmtbase.statistics import SPECTRAL_STATISTICS, benjamini_hochberg
from rmtbase.tables import SCHEMA_VERSION, describe, groups_of, provenance, software_version

_PER_STATISTIC = ("difference", "p_value", "adjusted_p_value")


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
    runs = {name: tree for name, tree in models.items() if _is_trajectory(tree)}
    models = {name: _at_the_end(tree) if name in runs else tree for name, tree in models.items()}
    for name, scores in models.items():
        if name.encode(errors="ignore").decode() != name:
            raise ParameterError("models", name, "names that UTF-8 can hold, so that they can be written")
        require_scores(scores)
    groups, training = groups or {}, training or {}
    told = {"training": training, "initial": initial or ()}
    for what, named in (*told.items(), *((f"groups[{name!r}]", names) for name, names in groups.items())):
        for name in named:
            if name not in models:
                raise ParameterError(what, name, f"one of {', '.join(models)}")
    require_groups(groups, paired)
    permutations, seed = require_positive_integer("permutations", permutations), require_seed(seed)
    warnings: list[str] = []
    compared = []
    for name, scores in models.items():
        diagnosis = _diagnosis(name, scores, training.get(name), warnings)
        untrained = None if initial is None else name in initial
        compared.append(ComparedModel(name, scores, diagnosis, training.get(name), untrained, runs.get(name)))
    tree = {"/models": models_table(compared)}
    if any(one.components for one in compared):
        tree["/models"] = tree["/models"].merge(transmission_table(compared, seed))
        tree["/components"] = components_table(compared, seed)
        tree["/findings"] = _findings(compared, tree["/models"], seed, warnings)
    if len(compared) > 1:
        tree["/pairs"] = _pairs_table(compared, permutations, seed, progress, warnings)
        if "/components" in tree:
            tree["/drifts"] = _drifts_table(compared)
    if groups:
        tree |= grouped_tables(compared, groups, paired, permutations, seed, progress, warnings)
    if published:
        tree["/published"] = published_models()
        if "/components" in tree:
            tree["/components"] = tree["/components"].merge(nearest_table(compared, tree["/published"], seed))
            tree["/trims"] = published_trims()
    for line in warnings:
        progress.note(line)
    described = {name: describe(group, COMPARISON_SCHEMA[name]) for name, group in tree.items() if group.data_vars}
    found: xr.DataTree = xr.DataTree.from_dict(described)
    call = {
        "function": "rmtbase.results.comparison.compare",
        "models": {name: scores.attrs["model"] for name, scores in models.items()},
        "groups": {name: list(names) for name, names in groups.items()},
        "paired": paired,
        "training": {name: asdict(one) for name, one in training.items()},
        "initial": None if initial is None else list(initial),
        "permutations": permutations,
        "seed": seed,
    }
    found.attrs = {
        "schema_version": SCHEMA_VERSION,
        "rmtbase_version": software_version(),
        "kind": "comparison",
        "warnings": json.dumps(warnings),
        "provenance": provenance(call, weights={name: fingerprint(scores) for name, scores in models.items()}),
    }
    return found


def _is_trajectory(tree: xr.DataTree) -> bool:
    return isinstance(tree, xr.DataTree) and {"heads", "departures"} <= set(tree.children)


def _at_the_end(trajectory: xr.DataTree) -> xr.DataTree:
    return scores_at(trajectory, int(groups_of(trajectory)["/heads"][STEP].values[-1]))


def _diagnosis(name: str, scores: xr.DataTree, training: Training | None, warnings: list[str]) -> xr.Dataset | None:
    try:
        return diagnose(scores, training)
    except ParameterError as error:
        warnings.append(f"{name} has no Weibull fits to compare: {error}")
        return None


def _findings(models: Sequence[ComparedModel], table: xr.Dataset, seed: int, warnings: list[str]) -> xr.Dataset:
    """Compute the findings about all models together that their scores allow."""
    found: dict[str, Any] = {}
    fits = [fit for fit in (one.fits(*TRANSMISSION) for one in models) if fit.shapes.size]
    if len(fits) > 1:
        found |= _plain("band", shape_band([fit.shapes for fit in fits], [fit.numbers for fit in fits], seed=seed))
    root, scale = table["root"].values, table["transmission_scale"].values
    told = np.isfinite(root) & np.isfinite(scale)
    if told.sum() > 1:
        try:
            found |= _plain("scale_law", scale_law(root[told], scale[told], seed))
        except ParameterError as error:
            warnings.append(f"no law of scales: {error}")
    both = np.array([[one.mean("scale", name) for one in models] for name in ("attention_output", "mlp_out")])
    known = np.isfinite(both).all(axis=0)
    initial = table["untrained"].values.astype(bool)
    if known.sum() > 2 and (known & ~initial).sum() > 1:
        found |= _plain("paired_growth", paired_growth(both[0, known], both[1, known], initial[known], seed=seed))
    return xr.Dataset(found)


def _plain(prefix: str, result: Any) -> dict[str, Any]:
    """Return the fields of a result that the schema has, each as a variable."""
    named = {f"{prefix}_{field.name}": getattr(result, field.name) for field in fields(result)}
    return {name: value for name, value in named.items() if name in COMPARISON_SCHEMA["/findings"]}


def _pairs_table(
    models: Sequence[ComparedModel], permutations: int, seed: int, progress: Progress, warnings: list[str]
) -> xr.Dataset:
    """Test every pair for a common origin and for differing heads; reasons for missing tests go into ``warnings``."""
    pairs, statistics = list(combinations(models, 2)), list(SPECTRAL_STATISTICS)
    rows, done = [], progress.bar("comparing", len(pairs))
    for first, second in pairs:
        origin = common_origin(first.scores, second.scores, permutations, seed)
        row: dict[str, Any] = {"first": first.name, "second": second.name, "duplicate": int(origin.duplicate)}
        row |= {"alignment": origin.alignment, "alignment_p_value": origin.p_value}
        row |= {"reordered": int(origin.reordered)}
        row |= {"alignment_reason": origin.reason, "reason": ""}
        row |= {"paired": 0, "n_units": 0, "omnibus_p_value": np.nan}
        row |= {name: np.full(len(statistics), np.nan) for name in _PER_STATISTIC}
        try:
            found = compare_two(first.scores, second.scores, permutations, seed)
        except ParameterError as error:
            row["reason"] = f"{error.found}, {error.expected} needed"
            warnings.append(f"{first.name} and {second.name}: heads cannot be compared: {row['reason']}")
        else:
            row |= {"paired": int(found.paired), "n_units": found.n, "omnibus_p_value": found.omnibus_p_value}
            places = [statistics.index(name) for name in found.statistics]
            for name in _PER_STATISTIC:
                row[name][places] = getattr(found, name)
            row["reason"] = too_few_ways(found.ways, permutations)
            if not row["reason"] and np.isnan(found.omnibus_p_value):
                row["reason"] = "no statistic that all their heads were tested by"
        rows.append(row)
        done(1)
    schema = COMPARISON_SCHEMA["/pairs"]
    variables: dict[str, Any] = {name: (schema[name].dims, [row[name] for row in rows]) for name in rows[0]}
    variables["omnibus_q_value"] = (
        ("pair",),
        benjamini_hochberg([np.nan if row["reason"] else row["omnibus_p_value"] for row in rows]),
    )
    return xr.Dataset(variables, {"pair": _names(pairs), "statistic": statistics})


def _drifts_table(models: Sequence[ComparedModel]) -> xr.Dataset:
    """Compute the mean Δk of each component from the first to the second model of each pair of the same sizes."""
    pairs, components = list(combinations(models, 2)), all_components(models)
    names = ("drift", "standard_error", "p_value")
    values = np.full((len(names), len(pairs), len(components)), np.nan)
    for row, (first, second) in enumerate(pairs):
        if first.diagnosis is None or second.diagnosis is None:
            continue
        try:
            each = shape_drift(first.scores, second.scores)
        except ParameterError:  # the models differ in their sizes, so that no drift is defined
            continue
        there = np.isfinite(each["drift"].transpose("layer", "component").values)
        for place, component in enumerate(components):
            chosen = there & matrices_of(first.matrices, (component,))
            if chosen.any():
                drift, error = (of_matrices(each[name], chosen) for name in names[:2])
                mean, spread = drift.mean(), np.sqrt((error**2).sum()) / drift.size
                values[:, row, place] = mean, spread, 2.0 * ndtr(-abs(mean / spread))
    variables = {name: (("pair", "component"), value) for name, value in zip(names, values, strict=True)}
    return xr.Dataset(variables, {"pair": _names(pairs), "component": components})


def _names(pairs: Sequence[tuple[ComparedModel, ComparedModel]]) -> list[str]:
    return [f"{first.name} | {second.name}" for first, second in pairs]
