"""Where the null of a shape comes from: the laws, a given table, the atlas, the cache, or a simulation made now."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import xarray as xr

from rmtbase.errors import ParameterError, TableError
from rmtbase.montecarlo import CacheWarning, atlas_case, cached_baseline, require_seed
from rmtbase.parameters import require_draws
from rmtbase.scoring._analytic_null import AnalyticNull
from rmtbase.scoring._atlas_null import AtlasNull
from rmtbase.scoring._null import GaussianNull, HeadNull, draws_for
from rmtbase.tables import baseline_shapes, open_table, validate

ANALYTIC = "analytic"
"""The ``baseline`` that asks for the analytic null; a file of that name is given as ``./analytic``."""


def find_null(
    d_model: int,
    d_head: int,
    n_heads: int,
    baseline: xr.Dataset | Path | str | None,
    draws: int | None,
    seed: int,
    progress: Callable[[int], None] | None,
    note: Callable[[str], None] | None,
) -> HeadNull:
    """The null of exactly this shape, never a neighbour's: analytic where ``baseline`` is :data:`ANALYTIC`.

    A given table (a baseline or an atlas) that lacks the shape is left as it is, and a note says so. Then the atlas
    shipped with rmtbase serves, if it holds the shape with this seed and, where ``draws`` is given, at least as many; a
    note says where a model has more heads than it has draws for. Else the cache, or a simulation.
    """
    if d_head < 2:
        raise ParameterError(
            "d_head", d_head, "at least 2: at d_head = 1 the scale is all there is, and it is estimated"
        )
    require_seed(seed)
    asked = None if draws is None else require_draws(draws)
    if baseline is not None and not isinstance(baseline, xr.Dataset | Path | str):
        raise ParameterError("baseline", baseline, f"a baseline or atlas (a dataset or a file), or {ANALYTIC!r}")
    tell = note or (lambda line: None)
    if isinstance(baseline, str) and baseline == ANALYTIC:
        analytic = AnalyticNull(d_model, d_head)
        tell(f"null of ({d_model}, {d_head}): analytic, no draws")
        if analytic.unknown:
            tell(f"without a law at this shape, and not scored: {', '.join(analytic.unknown)}")
        return analytic
    if baseline is not None:
        table, source = _table(baseline)
        null = _null_in(table, d_model, d_head, source)
        if null is not None:
            tell(f"null of ({d_model}, {d_head}): {null.draws} draws from {source}")
            _tell_if_coarse(null, n_heads, tell)
            return null
        held = ", ".join(f"({d}, {h})" for d, h in sorted(set(baseline_shapes(table))))
        tell(f"{source} holds {held} and not ({d_model}, {d_head}), which is needed: that case is taken separately")
    shipped = _from_atlas(d_model, d_head, asked or 0, seed)
    if shipped is not None:
        tell(f"null of ({d_model}, {d_head}): from {shipped.source} ({shipped.draws} draws)")
        _tell_if_coarse(shipped, n_heads, tell)
        return shipped
    table = cached_baseline(d_model, d_head, asked or draws_for(n_heads), seed, progress, tell)
    null = GaussianNull.from_baseline(table, d_model, d_head, "simulated")
    assert null is not None  # the table was made for this shape
    _tell_if_coarse(null, n_heads, tell)
    return null


def _table(baseline: xr.Dataset | Path | str) -> tuple[xr.Dataset, str]:
    kinds = ("baseline", "atlas")
    if isinstance(baseline, xr.Dataset):
        source = "the baseline dataset"
        validate(baseline, source, *kinds)
        return baseline, source
    table = open_table(baseline, *kinds)
    assert isinstance(table, xr.Dataset)  # as all but scores
    return table, str(baseline)


def _null_in(table: xr.Dataset, d_model: int, d_head: int, source: str) -> GaussianNull | AtlasNull | None:
    if table.attrs["kind"] == "baseline":
        return GaussianNull.from_baseline(table, d_model, d_head, source)
    cases = np.flatnonzero((table["d_model"].values == d_model) & (table["d_head"].values == d_head))
    return AtlasNull(d_model, d_head, table.isel(case=int(cases[0])), source) if cases.size else None


def _from_atlas(d_model: int, d_head: int, draws: int, seed: int) -> AtlasNull | None:
    try:
        case = atlas_case(d_model, d_head)
        if case is None or int(case.attrs["seed"]) != seed or int(case["draws"]) < draws:
            return None
        return AtlasNull(d_model, d_head, case)
    except TableError as error:
        warnings.warn(f"damaged atlas, not used; install rmtbase again: {error}", CacheWarning, stacklevel=2)
        return None


def _tell_if_coarse(null: HeadNull, n_heads: int, tell: Callable[[str], None]) -> None:
    smallest = 2 * n_heads / (null.draws + 1)
    if smallest > 0.05:
        tell(
            f"with {null.draws} null draws and {n_heads} heads a lone head cannot reach q below {smallest:.2g}; "
            f"{draws_for(n_heads)} draws would let it reach 0.05"
        )
