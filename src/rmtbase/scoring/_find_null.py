"""What the heads of a model are scored against, by name, and where the Gaussian null of a shape comes from.

Simulating needs JAX, which is imported by what simulates and by nothing else here.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import xarray as xr

from rmtbase import nulls
from rmtbase.errors import ParameterError, TableError
from rmtbase.nulls import AnalyticNull, AtlasNull, GaussianNull, NullModel, SharedNull
from rmtbase.parameters import require_draws, require_seed
from rmtbase.progress import Progress
from rmtbase.scoring._resampler import RESAMPLINGS, Resampler
from rmtbase.tables import baseline_shapes, open_table, validate

ANALYTIC = "analytic"
"""The ``baseline`` that asks for the analytic null; a file of that name is given as ``./analytic``."""

DRAWS_PER_TEST = 50  # the smallest q of a lone head is 2 · heads / (draws + 1): 0.04
_DRAWS, _DRAWS_OF_A_HEAD = 10_000, 1_000


def draws_for(n_heads: int) -> int:
    """Null draws with which one head alone among ``n_heads`` can reach q < 0.05: max(10 000, 50 n_heads)."""
    return max(_DRAWS, DRAWS_PER_TEST * n_heads)


def require_null_name(null: object) -> None:
    """Raise unless the null is one that is offered."""
    if null != "gaussian" and null not in RESAMPLINGS:
        raise ParameterError("null", null, "'gaussian', 'permutation' or 'haar'")


def find_null(
    null: str,
    d_model: int,
    d_head: int,
    n_heads: int,
    baseline: xr.Dataset | Path | str | None,
    draws: int | None,
    seed: int,
    progress: Progress,
) -> NullModel:
    """The null of that name for so many heads of exactly this shape, never a neighbour's.

    A note says where it came from, and another where a model has more heads than it has draws for.

    Raises:
        ParameterError: d_head = 1, or another argument outside its domain.
        TableError, MissingFileError: ``baseline`` is no baseline table.
    """
    if d_head < 2:
        scale = "estimated" if null == "gaussian" else "kept"
        raise ParameterError(
            "d_head", d_head, f"at least 2: at d_head = 1 the scale is all there is, and it is {scale}"
        )
    if null == "gaussian":
        return _gaussian_null(d_model, d_head, n_heads, baseline, draws, seed, progress)
    if baseline is not None:
        raise ParameterError("baseline", baseline, f"none: the {null} null of a head is made of its own matrices")
    found = Resampler(
        RESAMPLINGS[null],
        seed=require_seed(seed),
        draws=_DRAWS_OF_A_HEAD if draws is None else require_draws(draws),
    )
    progress.note(f"null of each head: {found.draws} draws from its own matrices ({null}), seed {found.seed}")
    both = " by one statistic, nor {:.2g} by all together (k heads: a k-th of it)"
    _tell_if_coarse(found, n_heads, DRAWS_PER_TEST * n_heads, both, progress)
    return found


def _gaussian_null(
    d_model: int,
    d_head: int,
    n_heads: int,
    baseline: xr.Dataset | Path | str | None,
    draws: int | None,
    seed: int,
    progress: Progress,
) -> SharedNull:
    """Analytic where ``baseline`` is :data:`ANALYTIC`.

    A given table (a baseline or an atlas) that lacks the shape is left as it is, and a note says so. Then the atlas
    shipped with rmtbase serves, if it holds the shape with this seed and, where ``draws`` is given, at least as many.
    Else the cache, or a simulation.
    """
    require_seed(seed)
    asked = None if draws is None else require_draws(draws)
    if baseline is not None and not isinstance(baseline, xr.Dataset | Path | str):
        raise ParameterError("baseline", baseline, f"a baseline or atlas (a dataset or a file), or {ANALYTIC!r}")
    if isinstance(baseline, str) and baseline == ANALYTIC:
        analytic = AnalyticNull(d_model, d_head)
        progress.note(f"null of ({d_model}, {d_head}): analytic, no draws")
        if analytic.unknown:
            progress.note(f"without a law at this shape, and not scored: {', '.join(analytic.unknown)}")
        return analytic
    found = None
    if baseline is not None:
        table, source = _table(baseline)
        found = _null_in(table, d_model, d_head, source)
        if found is None:
            held = ", ".join(f"({d}, {h})" for d, h in sorted(set(baseline_shapes(table))))
            progress.note(
                f"{source} holds {held} and not ({d_model}, {d_head}), which is needed: that case is taken separately"
            )
        else:
            progress.note(f"null of ({d_model}, {d_head}): {found.draws} draws from {source}")
    if found is None:
        found = _from_atlas(d_model, d_head, asked or 0, seed)
        if found is not None:
            progress.note(f"null of ({d_model}, {d_head}): from {found.source} ({found.draws} draws)")
    if found is None:
        found = _simulated(d_model, d_head, asked or draws_for(n_heads), seed, progress)
    _tell_if_coarse(found, n_heads, draws_for(n_heads), "", progress)
    return found


def _table(baseline: xr.Dataset | Path | str) -> tuple[xr.Dataset, str]:
    kinds = ("baseline", "atlas")
    if isinstance(baseline, xr.Dataset):
        source = "the baseline dataset"
        validate(baseline, source, *kinds)
        return baseline, source
    table = open_table(baseline, *kinds)
    assert isinstance(table, xr.Dataset)  # as all but scores
    return table, str(baseline)


def _null_in(table: xr.Dataset, d_model: int, d_head: int, source: str) -> SharedNull | None:
    if table.attrs["kind"] == "baseline":
        return GaussianNull.from_baseline(table, d_model, d_head, source)
    cases = np.flatnonzero((table["d_model"].values == d_model) & (table["d_head"].values == d_head))
    return AtlasNull(d_model, d_head, table.isel(case=int(cases[0])), source) if cases.size else None


def _from_atlas(d_model: int, d_head: int, draws: int, seed: int) -> SharedNull | None:
    try:
        case = nulls.atlas_case(d_model, d_head)
        if case is None or int(case.attrs["seed"]) != seed or int(case["draws"]) < draws:
            return None
        return AtlasNull(d_model, d_head, case)
    except TableError as error:
        from rmtbase.montecarlo import CacheWarning

        warnings.warn(f"damaged atlas, not used; install rmtbase again: {error}", CacheWarning, stacklevel=2)
        return None


def _simulated(d_model: int, d_head: int, draws: int, seed: int, progress: Progress) -> SharedNull:
    from rmtbase.montecarlo import cached_baseline

    table = cached_baseline(d_model, d_head, draws, seed, progress=progress)
    null = GaussianNull.from_baseline(table, d_model, d_head, "simulated")
    assert null is not None  # the table was made for this shape
    return null


def _tell_if_coarse(null: NullModel, n_heads: int, enough: int, tests: str, progress: Progress) -> None:
    """Say where no head by itself could be found; ``tests`` says by which test, and takes half that q."""
    smallest = 2 * n_heads / (null.draws + 1)
    if smallest > 0.05:
        progress.note(
            f"with {null.draws} null draws and {n_heads} heads a lone head cannot reach q below {smallest:.2g}"
            f"{tests.format(smallest / 2)}; {enough} draws would let it reach 0.05"
        )
