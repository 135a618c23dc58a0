"""Simulated nulls, read from the cache if they are there."""

from __future__ import annotations

from collections.abc import Callable

import xarray as xr

from rmtbase.montecarlo import CachedTable, cached_table
from rmtbase.nulls._fixed_spectrum import OrthogonalNull
from rmtbase.nulls._gaussian_null import GaussianNull
from rmtbase.nulls._head_null import head_shape
from rmtbase.nulls._null_of_file import Null, null_of_file
from rmtbase.progress import SILENT, Progress


def cached_null(
    dims: tuple[int, ...], draws: int, seed: int = 0, progress: Progress = SILENT, *, entries: str = "normal"
) -> GaussianNull:
    """Simulate the null of a shape, W_QK as a low-rank product, or read it from the cache.

    Entries that are not normal are drawn element by element.

    A file of the cache is read and checked once in a process, see ``nulls.null_of_file``.
    """
    gaussian = entries == "normal"
    shape = head_shape(dims) if gaussian else None
    if shape is not None:
        file = cached_table("low_rank_product", {"d_model": shape[0], "d_head": shape[1]}, draws, seed)
    else:
        chain = dims if len(dims) > 2 else sorted(dims, reverse=True)  # W and Wᵀ share a table
        of_law = {} if gaussian else {"entries": entries}
        name = "gaussian_chain" if gaussian else "independent_chain"
        file = cached_table(name, {"dims": chain, **of_law}, draws, seed)

    def make(table: xr.Dataset) -> GaussianNull:
        if shape is None:
            return GaussianNull.from_spectra(table, dims, "simulated", entries)
        null = GaussianNull.from_baseline(table, *shape, "simulated")
        assert null is not None  # the table was made for this shape
        return null

    return _from_cache(file, dims, make, progress)


def cached_orthogonal_null(
    dims: tuple[int, ...], rows: tuple[int, ...], fused: bool, draws: int, seed: int = 0, progress: Progress = SILENT
) -> OrthogonalNull:
    """Simulate the null of heads of orthogonally initialized matrices, cached as by :func:`cached_null`."""
    file = cached_table("orthogonal_blocks", {"dims": dims, "rows": rows, "fused": fused}, draws, seed)

    def make(table: xr.Dataset) -> OrthogonalNull:
        null = OrthogonalNull.from_spectra(table, dims, "simulated", "orthogonal")
        assert isinstance(null, OrthogonalNull)
        return null

    return _from_cache(file, dims, make, progress)


def _from_cache(
    file: CachedTable, dims: tuple[int, ...], make: Callable[[xr.Dataset], Null], progress: Progress
) -> Null:
    """Make the null of a cached table, once in a process; simulate the table if it is not there."""
    null = null_of_file(file.path, dims, lambda: None if (table := file.read()) is None else make(table))
    if null is None:
        return make(file.make(progress))
    file.note_cached(progress)
    return null
