"""Nulls made from files, kept by the process while the files stay the same; simulated nulls in the cache."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from rmtbase.nulls._head_null import HeadNull, head_shape
from rmtbase.nulls._sample_null import GaussianNull
from rmtbase.progress import SILENT, Progress
from rmtbase.regular_files import open_regular

if TYPE_CHECKING:
    from rmtbase.montecarlo import CachedTable

_ROOM = 2**25  # bytes of all files together; their nulls take about four times as many

Dims = tuple[int, ...]
Null = TypeVar("Null", bound=HeadNull)

_kept: OrderedDict[tuple[Path, tuple[int, ...]], tuple[tuple[int, bytes], HeadNull]] = OrderedDict()
_lock = Lock()


def null_of_file(path: Path, dims: tuple[int, ...], make: Callable[[], Null | None]) -> Null | None:
    """Return the null that ``make`` makes from a file, made again only if its contents have changed."""
    key, before = (path, dims), _contents(path)
    with _lock:
        if before is not None and key in _kept and _kept[key][0] == before:
            _kept.move_to_end(key)
            return _kept[key][1]  # type: ignore[return-value]  # the same call makes the same type of null
    null = make()
    if null is not None and before is not None and before == _contents(path):  # not replaced while it was read
        with _lock:
            _kept.pop(key, None)
            _kept[key] = before, null
            while sum(size for (size, _), _ in _kept.values()) > _ROOM:
                _kept.popitem(last=False)
    return null


def _contents(path: Path) -> tuple[int, bytes] | None:
    """Size and digest of a file; None if it is too large to keep or cannot be read, which opening it will report."""
    try:
        with open_regular(path) as file:
            content = file.read(_ROOM + 1)
    except OSError:
        return None
    return (len(content), hashlib.sha256(content).digest()) if len(content) <= _ROOM else None


def cached_null(
    dims: tuple[int, ...], draws: int, seed: int = 0, progress: Progress = SILENT, *, entries: str = "normal"
) -> GaussianNull:
    from rmtbase.montecarlo import cached_table

    shape = head_shape(dims) if entries == "normal" else None
    if shape is not None:
        file = cached_table("low_rank_product", {"d_model": shape[0], "d_head": shape[1]}, draws, seed)
        return null_from_cache(file, dims, lambda t: GaussianNull.from_baseline(t, *shape, "simulated"), progress)
    chain = {"dims": dims if len(dims) > 2 else sorted(dims, reverse=True)}  # W and Wᵀ share a table
    law = ("gaussian_chain", chain) if entries == "normal" else ("independent_chain", {**chain, "entries": entries})
    file = cached_table(*law, draws, seed)
    return null_from_cache(file, dims, lambda t: GaussianNull.from_spectra(t, dims, "simulated", entries), progress)


def null_from_cache(file: CachedTable, dims: Dims, make: Callable[..., Null | None], progress: Progress) -> Null:
    null = null_of_file(file.path, dims, lambda: None if (table := file.read()) is None else make(table))
    if null is not None:
        file.note_cached(progress)
        return null
    null = make(file.make(progress))
    assert null is not None  # the table was made for this shape
    return null
