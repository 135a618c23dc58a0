"""Nulls already simulated, kept in the user's cache folder: one file for each (shape or ensemble, draws, seed)."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

import xarray as xr
from platformdirs import user_cache_dir

from rmtbase.errors import OutputError, RmtbaseWarning, TableError
from rmtbase.montecarlo._baseline import baseline
from rmtbase.montecarlo._plan import DRAWS_VERSION, make_plan
from rmtbase.montecarlo._run import run_in_memory
from rmtbase.progress import SILENT, Progress
from rmtbase.tables import SCHEMA_VERSION, baseline_shapes, open_table, write_table


class CacheWarning(RmtbaseWarning):
    """A simulated null could not be kept, or a kept one was damaged and is made again."""


def cache_folder() -> Path:
    """``$RMTBASE_CACHE``, or ``rmtbase`` in the user's cache folder: on Linux ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    return Path(os.environ.get("RMTBASE_CACHE") or user_cache_dir("rmtbase", appauthor=False))


def cached_baseline(
    d_model: int,
    d_head: int,
    draws: int,
    seed: int = 0,
    progress: Progress = SILENT,
) -> xr.Dataset:
    """The raw-product baseline at σ = 1 of one shape: from the cache if it is there, else simulated and kept.

    A damaged cache file is named in a warning and made again. Where the cache cannot be written a warning says so,
    and the result is returned all the same.

    Args:
        d_model: width of the residual stream.
        d_head: head dimension.
        draws: Monte Carlo draws.
        seed: of the draws.
        progress: told of the draws finished, and of where the null came from.
    """

    def require_call(table: xr.Dataset, path: Path) -> None:
        sigmas, of = (table["sigma_q"].values.tolist(), table["sigma_k"].values.tolist()), table.attrs
        found = (baseline_shapes(table), of["draws"], of["seed"], of["normalization"], *sigmas)
        expected = ([(d_model, d_head)], draws, seed, "none", [1.0], [1.0])
        if found != expected or "sample" not in table:
            what = f"(shapes, draws, seed, normalization, sigmas) = {found}"
            raise TableError(path, what, f"{expected} with its sample")

    return _cached(
        f"baseline-v{SCHEMA_VERSION}-{DRAWS_VERSION}-d{d_model}-h{d_head}-n{draws}-seed{seed}.nc",
        f"null of (d_model, d_head) = ({d_model}, {d_head}), {draws} draws, seed {seed}",
        "baseline",
        require_call,
        lambda: baseline(d_model, d_head, 1.0, draws, seed, "none", progress=progress),
        progress,
    )


def cached_spectra(
    ensemble: str, parameters: Mapping[str, object], draws: int, seed: int = 0, progress: Progress = SILENT
) -> xr.Dataset:
    """The spectra of any ensemble as a table for a null, kept and found as :func:`cached_baseline` does.

    Args:
        ensemble: a name of :data:`rmtbase.ensembles.ENSEMBLES`.
        parameters: of its factory.
        draws: Monte Carlo draws.
        seed: of the draws.
        progress: told of the draws finished, and of where the null came from.
    """
    plan = make_plan(ensemble, [parameters], draws, seed)
    name = plan.cases[0].ensemble.name

    def require_call(table: xr.Dataset, path: Path) -> None:
        found = table.attrs.get("plan_hash")
        if found != plan.hash or "scale_estimate" not in table:
            raise TableError(path, f"plan {found}", f"plan {plan.hash}, with each draw's own scale")

    return _cached(
        f"spectra-v{SCHEMA_VERSION}-{DRAWS_VERSION}-{name.replace(' ', '-')}-n{draws}-seed{seed}.nc",
        f"null of {name}, {draws} draws, seed {seed}",
        "spectra",
        require_call,
        lambda: run_in_memory(plan, progress, self_normalize=True),
        progress,
    )


def _cached(
    file: str,
    what: str,
    kind: str,
    require_call: Callable[[xr.Dataset, Path], None],
    simulate: Callable[[], xr.Dataset],
    progress: Progress,
) -> xr.Dataset:
    path = cache_folder() / file
    if path.is_file():
        try:
            table = cast(xr.Dataset, open_table(path, kind))
            require_call(table, path)
        except TableError as error:
            warnings.warn(f"damaged cache file, made again: {error}", CacheWarning, stacklevel=3)
        else:
            progress.note(f"{what}: from the cache, {path}")
            return table
    table = simulate()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_table(table, path)
        progress.note(f"{what}: simulated now and kept in the cache, {path}")
    except OSError as error:
        reason = error.reason if isinstance(error, OutputError) else error
        warnings.warn(f"the simulated null is not kept: {path}: {reason}", CacheWarning, stacklevel=3)
        progress.note(f"{what}: simulated now")
    return table
