"""Nulls already simulated, kept in the user's cache folder: one file for each (shape, draws, seed)."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import cast

import xarray as xr
from platformdirs import user_cache_dir

from rmtbase.errors import OutputError, RmtbaseWarning, TableError
from rmtbase.montecarlo._baseline import baseline
from rmtbase.montecarlo._plan import DRAWS_VERSION
from rmtbase.progress import SILENT, Progress
from rmtbase.tables import SCHEMA_VERSION, baseline_shapes, open_baseline, write_table


class CacheWarning(RmtbaseWarning):
    """A simulated null could not be kept, or a kept one was damaged and is made again."""


def cache_folder() -> Path:
    """``$RMTBASE_CACHE``, or ``rmtbase`` in the user's cache folder: on Linux ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    return Path(os.environ.get("RMTBASE_CACHE") or user_cache_dir("rmtbase", appauthor=False))


def _require_call(table: xr.Dataset, path: Path, d_model: int, d_head: int, draws: int, seed: int) -> None:
    sigmas = table["sigma_q"].values.tolist(), table["sigma_k"].values.tolist()
    found = (baseline_shapes(table), table.attrs["draws"], table.attrs["seed"], table.attrs["normalization"], *sigmas)
    expected = ([(d_model, d_head)], draws, seed, "none", [1.0], [1.0])
    if found != expected or "sample" not in table:
        raise TableError(path, f"(shapes, draws, seed, normalization, sigmas) = {found}", f"{expected} with its sample")


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
    path = cache_folder() / f"baseline-v{SCHEMA_VERSION}-{DRAWS_VERSION}-d{d_model}-h{d_head}-n{draws}-seed{seed}.nc"
    what = f"null of (d_model, d_head) = ({d_model}, {d_head}), {draws} draws, seed {seed}"
    if path.is_file():
        try:
            table = open_baseline(path)
            _require_call(table, path, d_model, d_head, draws, seed)
        except TableError as error:
            warnings.warn(f"damaged cache file, made again: {error}", CacheWarning, stacklevel=2)
        else:
            progress.note(f"{what}: from the cache, {path}")
            return table
    table = baseline(d_model, d_head, 1.0, draws, seed, "none", progress=progress)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_table(table, path)
        progress.note(f"{what}: simulated now and kept in the cache, {path}")
    except OSError as error:
        reason = error.reason if isinstance(error, OutputError) else error
        warnings.warn(f"the simulated null is not kept: {path}: {reason}", CacheWarning, stacklevel=2)
        progress.note(f"{what}: simulated now")
    return cast(xr.Dataset, table)
