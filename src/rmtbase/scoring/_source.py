"""Where the null of a shape comes from: the laws, the table that was given, the cache, or a simulation made now."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import xarray as xr

from rmtbase.errors import ParameterError
from rmtbase.montecarlo import cached_baseline, require_seed
from rmtbase.parameters import require_draws
from rmtbase.scoring._analytic_null import AnalyticNull
from rmtbase.scoring._null import GaussianNull, HeadNull, draws_for
from rmtbase.tables import baseline_shapes, open_baseline, validate_baseline

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

    A given table that lacks the shape is left as it is; the case is simulated (or found in the cache) and a note says
    so.
    """
    if d_head < 2:
        raise ParameterError(
            "d_head", d_head, "at least 2: at d_head = 1 the scale is all there is, and it is estimated"
        )
    require_seed(seed)
    draws = draws_for(n_heads) if draws is None else require_draws(draws)
    if baseline is not None and not isinstance(baseline, xr.Dataset | Path | str):
        raise ParameterError("baseline", baseline, f"a baseline table (a dataset or a file), or {ANALYTIC!r}")
    tell = note or (lambda line: None)
    if isinstance(baseline, str) and baseline == ANALYTIC:
        analytic = AnalyticNull(d_model, d_head)
        tell(f"null of ({d_model}, {d_head}): analytic, no draws")
        if analytic.unknown:
            tell(f"without a law at this shape, and not scored: {', '.join(analytic.unknown)}")
        return analytic
    if baseline is not None:
        table, source = _table(baseline)
        null = GaussianNull.from_baseline(table, d_model, d_head, source)
        if null is not None:
            tell(f"null of ({d_model}, {d_head}): {null.draws} draws from {source}")
            _tell_if_coarse(null, n_heads, tell)
            return null
        held = ", ".join(f"({d}, {h})" for d, h in sorted(set(baseline_shapes(table))))
        tell(f"{source} holds {held} and not ({d_model}, {d_head}), which is needed: that case is taken separately")
    table = cached_baseline(d_model, d_head, draws, seed, progress, tell)
    null = GaussianNull.from_baseline(table, d_model, d_head, "simulated")
    assert null is not None  # the table was made for this shape
    _tell_if_coarse(null, n_heads, tell)
    return null


def _table(baseline: xr.Dataset | Path | str) -> tuple[xr.Dataset, str]:
    if isinstance(baseline, xr.Dataset):
        validate_baseline(baseline, "the baseline dataset")
        return baseline, "the baseline dataset"
    return open_baseline(baseline), str(baseline)


def _tell_if_coarse(null: GaussianNull, n_heads: int, tell: Callable[[str], None]) -> None:
    smallest = 2 * n_heads / (null.draws + 1)
    if smallest > 0.05:
        tell(
            f"with {null.draws} null draws and {n_heads} heads a lone head cannot reach q below {smallest:.2g}; "
            f"{draws_for(n_heads)} draws would let it reach 0.05"
        )
