"""Tables of a comparison for every pair of models."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import xarray as xr
from scipy.special import ndtr

from rmtbase.errors import ParameterError
from rmtbase.progress import Progress
from rmtbase.results.comparison._common_origin import common_origin, too_few_ways
from rmtbase.results.comparison._diagnose import matrices_of, of_matrices, shape_drift
from rmtbase.results.comparison._each_model import ComparedModel, all_components
from rmtbase.results.comparison._two_models import compare_two
from rmtbase.results.comparison.schema import COMPARISON_SCHEMA
from rmtbase.statistics import SPECTRAL_STATISTICS, benjamini_hochberg

_PER_STATISTIC = ("difference", "p_value", "adjusted_p_value")


def pairs_table(
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


def drifts_table(models: Sequence[ComparedModel]) -> xr.Dataset:
    """Mean Δk of each component from the first to the second model of every pair of the same sizes."""
    pairs, components = list(combinations(models, 2)), all_components(models)
    names = ("drift", "standard_error", "p_value")
    values = np.full((len(names), len(pairs), len(components)), np.nan)
    for row, (first, second) in enumerate(pairs):
        if first.diagnosis is None or second.diagnosis is None:
            continue
        try:
            each = shape_drift(first.scores, second.scores)
        except ParameterError:  # other sizes: no drift is defined
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
