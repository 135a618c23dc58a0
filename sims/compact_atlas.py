"""The nulls of many shapes, each cut down to a few kilobytes: what ``make_atlas.py`` writes and scoring reads."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from atlas_metadata import atlas_attributes
from jaxtyping import Float, Float32, Int
from numpy.typing import NDArray

from rmtbase.errors import ParameterError
from rmtbase.nulls import STEP, kept_ranks, self_normalized_sample
from rmtbase.statistics import SPECTRAL_STATISTICS, on_distance_scale, summarize
from rmtbase.tables import ATLAS_SCHEMA, SCHEMA_VERSION, describe, software_version, validate, with_checksums

_AS_THEY_ARE = ("mean", "std", "standard_error", "quantile")
_FINENESS = 256.0  # steps to one standard deviation of an ordered eigenvalue


def compact_baseline(table: xr.Dataset) -> xr.Dataset:
    """Make an atlas of the shapes of a baseline table: all that scoring and its figures use of the sample.

    Args:
        table: a baseline table of the raw product at σ = 1, with its sample.

    Returns:
        A dataset of :data:`rmtbase.tables.ATLAS_SCHEMA`, one case for each of the table's.

    Raises:
        ParameterError: the table is of another σ or normalization, or holds no sample.
        TableError: it is no baseline table.
    """
    validate(table, "the baseline dataset", "baseline")
    if table.attrs["normalization"] != "none" or not bool(((table["sigma_q"] == 1) & (table["sigma_k"] == 1)).all()):
        raise ParameterError("table", "another σ or normalization", "one at σ = 1 and normalization 'none'")
    if "sample" not in table:
        raise ParameterError("table", "no sample", "a table that keeps its sample")
    cases = [_case(table.isel(case=[k])) for k in range(table.sizes["case"])]
    return _joined(cases, int(table.attrs["seed"]), [_simulation(table)])


def merge_atlases(atlases: Sequence[xr.Dataset], plan_hash: str | None = None) -> xr.Dataset:
    """Merge atlases into one, sorted by d_head and d_model.

    Args:
        atlases: at least one, all of one seed, no shape twice.
        plan_hash: of the plan that declares them all, for the record.

    Raises:
        ParameterError: none, two of different seeds, or a shape twice.
    """
    if not atlases:
        raise ParameterError("atlases", atlases, "at least one")
    seeds = {int(atlas.attrs["seed"]) for atlas in atlases}
    if len(seeds) != 1:
        raise ParameterError("atlases", f"seeds {sorted(seeds)}", "all of one seed")
    cases = [atlas.isel(case=[k]) for atlas in atlases for k in range(atlas.sizes["case"])]
    cases.sort(key=lambda case: (int(case["d_head"][0]), int(case["d_model"][0])))
    shapes = [(int(case["d_model"][0]), int(case["d_head"][0])) for case in cases]
    if len(set(shapes)) != len(shapes):
        raise ParameterError("atlases", f"shapes {shapes}", "each shape once")
    simulations = [one for atlas in atlases for one in json.loads(atlas.attrs["provenance"])["simulations"]]
    return _joined(cases, seeds.pop(), simulations, plan_hash)


def smallest_kept(
    values: Float[np.ndarray, "draw ..."], ranks: Int[np.ndarray, " rank"]
) -> Float32[np.ndarray, "rank ..."]:
    """Order statistics of those ranks along the first axis, each rounded down: what ``count_bound`` of an atlas reads.

    Args:
        values: ascending along the first axis, (draw, ...).
        ranks: rank 1 is the smallest draw.

    Returns:
        In float32, (rank, ...): never above the draw, and less than 2⁻¹⁶ below it, or a step of float32.
    """
    exact = values[ranks - 1]
    with np.errstate(over="ignore"):  # of float32: its largest number is then below the draw
        kept = (np.floor(exact / STEP) * STEP).astype(np.float32)
    return np.where(kept > exact, np.nextafter(kept, np.float32(-np.inf)), kept)


def _case(table: xr.Dataset) -> xr.Dataset:
    row = table.isel(case=0)
    h, draws = int(row["d_head"]), row.sizes["draw"]
    sample = self_normalized_sample(row)
    own = summarize(sample, row["probability"].values)
    on_scale = on_distance_scale(sample)
    center, spread = on_scale.mean(axis=0), on_scale.std(axis=0, ddof=1)
    standard = np.sort((on_scale - center) / spread, axis=0)
    ranks = kept_ranks(draws)
    largest = np.sort(-np.abs((on_scale - center) / spread).max(axis=1))
    step = 2.0 ** np.floor(np.log2(row["eigenvalue_std"].values[:h] / _FINENESS))[:, None]
    eigenvalue_quantile = np.round(row["eigenvalue_quantile_self_normalized"].values[:h] / step) * step
    variables = {
        "draws": np.int64(draws),
        **{name: row[name].sel(statistic=list(SPECTRAL_STATISTICS)).values for name in _AS_THEY_ARE},
        "mean_self_normalized": own.mean,
        "std_self_normalized": own.std,
        "quantile_self_normalized": own.quantile,
        "distance_center": center,
        "distance_spread": spread,
        "order_statistic_lower": _to_the_middle(smallest_kept(standard, ranks), ranks, draws).T,
        "order_statistic_upper": -_to_the_middle(smallest_kept(-standard[::-1], ranks), ranks, draws).T,
        "largest_distance": -smallest_kept(largest, ranks),
        "eigenvalue_mean": row["eigenvalue_mean"].values[:h].astype(np.float32),
        "eigenvalue_quantile_self_normalized": eigenvalue_quantile.astype(np.float32),
        "density": row["density"].values.astype(np.float32),
        "density_standard_error": row["density_standard_error"].values.astype(np.float32),
    }
    return xr.Dataset(
        {name: (ATLAS_SCHEMA[name].dims, np.asarray(value)[None]) for name, value in variables.items()},
        coords={
            "d_model": ("case", table["d_model"].values),
            "d_head": ("case", table["d_head"].values),
            "statistic": list(SPECTRAL_STATISTICS),
            "probability": row["probability"].values,
            "rank": ranks,
            "index": np.arange(h),
        },
    )


def _to_the_middle(kept: NDArray[np.float32], ranks: NDArray[np.int64], draws: int) -> NDArray[np.float32]:
    """NaN beyond the first rank from which a two-sided p-value is 1 anyway."""
    last = np.searchsorted(ranks, (draws + 1) / 2)
    kept = kept.copy()
    kept[last + 1 :] = np.nan
    return kept


def _joined(
    cases: Sequence[xr.Dataset], seed: int, simulations: Sequence[Mapping[str, Any]], plan_hash: str | None = None
) -> xr.Dataset:
    atlas = xr.concat(cases, dim="case", data_vars="all", coords="minimal", compat="override", join="outer")
    atlas = atlas.dropna("rank", how="all", subset=["largest_distance"])
    atlas.attrs = {
        "schema_version": SCHEMA_VERSION,
        "rmtbase_version": software_version(),
        "kind": "atlas",
        **atlas_attributes(),
        "ensemble": "low_rank_product: W_QK = W_Q^T W_K, i.i.d. Gaussian factors of shape (d_head, d_model)",
        "normalization": "none",
        "seed": seed,
        "provenance": json.dumps({"plan_hash": plan_hash, "simulations": _grouped(simulations)}, sort_keys=True),
    }
    return describe(with_checksums(describe(atlas, ATLAS_SCHEMA)), ATLAS_SCHEMA)


def _simulation(table: xr.Dataset) -> dict[str, Any]:
    """Record of a table's simulation: (d_model, d_head, draws, plan) of each shape, and what all shapes share."""
    made = json.loads(table.attrs["provenance"])
    numerics = {key: value for key, value in made.get("numerics", {}).items() if key != "names"}
    columns = (table["d_model"].values.tolist(), table["d_head"].values.tolist())
    rest = (table.sizes["draw"], table.attrs.get("plan_hash"))
    shapes = [[d, h, *rest] for d, h in zip(*columns, strict=True)]
    return {"software": made["software"], "platform": made["platform"], "numerics": numerics, "shapes": shapes}


def _grouped(simulations: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Group simulations that share software, platform and numerics."""
    groups: dict[str, dict[str, Any]] = {}
    for one in simulations:
        alike = {key: value for key, value in one.items() if key != "shapes"}
        groups.setdefault(json.dumps(alike, sort_keys=True), {**alike, "shapes": []})["shapes"] += one["shapes"]
    return list(groups.values())
