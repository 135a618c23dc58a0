"""Cache of simulated nulls in the user's cache folder: one file for each (shape or ensemble, draws, seed).

A file's name also has eight hexadecimal digits for the settings of JAX and XLA that change bits. Nulls of latent
attention also depend on a ratio and take hours: they have one file for each ratio and block of draws.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
import xarray as xr

from rmtbase.ensembles import LatentAttention
from rmtbase.errors import MissingFileError, OutputError, RmtbaseWarning, TableError, UnreadableTableError
from rmtbase.montecarlo._baseline import baseline
from rmtbase.montecarlo._latent_attention import (
    LatentAttentionSample,
    draw_latent_attention,
    require_latent_sample,
    spectra_among,
)
from rmtbase.montecarlo._machine import compiler_settings_digest
from rmtbase.montecarlo._plan import DRAWS_VERSION, make_plan
from rmtbase.montecarlo._run import run_in_memory
from rmtbase.montecarlo._store_files import Arrays, pack, read_rows, require_sound
from rmtbase.parameters import require_seed
from rmtbase.progress import SILENT, Progress
from rmtbase.statistics import SPECTRAL_STATISTICS
from rmtbase.systems import cache_folder
from rmtbase.tables import SCHEMA_VERSION, baseline_shapes, open_table, write_bytes, write_table

_LATENT_DRAWS = 2**11  # draws of a file: a multiple of every tile, and a minute or two of work at twenty ratios


class CacheWarning(RmtbaseWarning):
    """Warning that a simulated null could not be cached, or that a cached one was damaged and is made again."""


def cached_baseline(d_model: int, d_head: int, draws: int, seed: int = 0, progress: Progress = SILENT) -> xr.Dataset:
    """Return the raw-product baseline of one shape at σ = 1: from the cache, or simulated and cached.

    A damaged cache file is named in a warning and made again. If the cache cannot be written, a warning says so, and
    the result is returned all the same.
    """
    return baseline_file(d_model, d_head, draws, seed).get(progress)


def cached_spectra(
    ensemble: str, parameters: Mapping[str, object], draws: int, seed: int = 0, progress: Progress = SILENT
) -> xr.Dataset:
    """Return the spectra of any ensemble as a table for a null, cached like those of :func:`cached_baseline`."""
    return spectra_file(ensemble, parameters, draws, seed).get(progress)


@dataclass(frozen=True)
class CachedTable:
    """Table that the cache keeps in its own file."""

    name: str  # name of the file
    what: str  # the table in words
    kind: str  # its kind, of :data:`rmtbase.tables.KINDS`
    require_call: Callable[[xr.Dataset, Path], None]  # raises a TableError unless the table is what the name says
    simulate: Callable[[Progress], xr.Dataset]  # makes the table

    @property
    def path(self) -> Path:
        return cache_folder() / self.name

    def get(self, progress: Progress) -> xr.Dataset:
        """Return the table from the cache, or simulate and cache it."""
        if (table := self.read()) is None:
            return self.make(progress)
        self.tell_of_cache(progress)
        return table

    def read(self) -> xr.Dataset | None:
        """Read the table; None if it is not cached, or damaged or not readable (with a warning)."""
        path = self.path
        try:
            if not path.is_file():
                return None
            table = cast(xr.Dataset, open_table(path, self.kind))
            self.require_call(table, path)
        except (TableError, PermissionError) as error:
            _warn_unused(error)
            return None
        return table

    def make(self, progress: Progress) -> xr.Dataset:
        """Simulate the table, and cache it if possible."""
        table, path = self.simulate(progress), self.path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_table(table, path)
            progress.detail(f"{self.what}: simulated now and kept in the cache, {path}")
        except OSError as error:
            _warn_not_kept(path, error)
            progress.detail(f"{self.what}: simulated now")
        return table

    def tell_of_cache(self, progress: Progress) -> None:
        progress.detail(f"{self.what}: from the cache, {self.path}")


def baseline_file(d_model: int, d_head: int, draws: int, seed: int) -> CachedTable:
    def require_call(table: xr.Dataset, path: Path) -> None:
        sigmas, of = (table["sigma_q"].values.tolist(), table["sigma_k"].values.tolist()), table.attrs
        found = (baseline_shapes(table), of["draws"], of["seed"], of["normalization"], *sigmas)
        expected = ([(d_model, d_head)], draws, seed, "none", [1.0], [1.0])
        if found != expected or "sample" not in table:
            what = f"(shapes, draws, seed, normalization, sigmas) = {found}"
            raise TableError(path, what, f"{expected} with its sample")

    return CachedTable(
        f"baseline-v{SCHEMA_VERSION}-{DRAWS_VERSION}-d{d_model}-h{d_head}-n{draws}-seed{seed}-{compiler_settings_digest()}.nc",
        f"null of (d_model, d_head) = ({d_model}, {d_head}), {draws} draws, seed {seed}",
        "baseline",
        require_call,
        lambda progress: baseline(d_model, d_head, 1.0, draws, seed, "none", progress=progress),
    )


def spectra_file(ensemble: str, parameters: Mapping[str, object], draws: int, seed: int) -> CachedTable:
    plan = make_plan(ensemble, [parameters], draws, seed, normalization="none")
    name = plan.cases[0].ensemble.name

    def require_call(table: xr.Dataset, path: Path) -> None:
        found = table.attrs.get("plan_hash")
        if found != plan.hash or "scale_estimate" not in table:
            raise TableError(path, f"plan {found}", f"plan {plan.hash}, with each draw's own scale")

    return CachedTable(
        f"spectra-v{SCHEMA_VERSION}-{DRAWS_VERSION}-{name.replace(' ', '-')}-n{draws}-seed{seed}"
        f"-{compiler_settings_digest()}.nc",
        f"null of {name}, {draws} draws, seed {seed}",
        "spectra",
        require_call,
        lambda progress: run_in_memory(plan, progress, self_normalize=True),
    )


def cached_latent_attention(
    ensemble: LatentAttention, rope_ratios: Sequence[float], draws: int, seed: int = 0, progress: Progress = SILENT
) -> LatentAttentionSample:
    """Return :func:`simulate_latent_attention`'s draws to the bit, cached by ratio and block of draws.

    Only missing files are drawn: a run that was killed resumes where it stopped, and a run with more draws or other
    ratios reuses the files that it shares with earlier runs. Damaged files, and a cache that cannot be written, are
    treated as in :func:`cached_baseline`.
    """
    at_one, draws = require_latent_sample(ensemble, len(rope_ratios), draws, seed)
    rope_ratios, seed = tuple(map(float, rope_ratios)), require_seed(seed)
    sample = np.empty((len(rope_ratios), draws, len(SPECTRAL_STATISTICS)))
    eigenvalues = np.empty((len(rope_ratios), spectra_among(range(draws)), at_one.rank))
    files = _LatentFiles.of(at_one, seed)
    missing: dict[range, list[int]] = {}
    for first in range(0, draws, _LATENT_DRAWS):
        chunk = range(first, min(first + _LATENT_DRAWS, draws))
        for k, ratio in enumerate(rope_ratios):
            if (found := files.read(ratio, chunk)) is None:
                missing.setdefault(chunk, []).append(k)
            else:
                sample[k, first : chunk.stop], eigenvalues[k, first : chunk.stop] = found.values()
    what = f"null of {at_one.name.rpartition(' ')[0]} at {len(rope_ratios)} ratios, {draws} draws, seed {seed}"
    there = 1.0 - sum(len(chunk) * len(which) for chunk, which in missing.items()) / (draws * len(rope_ratios))
    if there:
        share = "" if there == 1.0 else f"{100 * there:.3g} % of it "
        progress.detail(f"{what}: {share}from the cache, {files.folder}")
    if missing:
        advance, kept = progress.bar("drawing the null", sum(map(len, missing))), True
        for chunk, which in missing.items():
            drawn = draw_latent_attention(at_one, [rope_ratios[k] for k in which], chunk, seed, advance)
            sample[which, chunk.start : chunk.stop] = drawn.sample
            eigenvalues[which, chunk.start : chunk.stop] = drawn.eigenvalues
            kept = kept and files.write(drawn, chunk)
        progress.detail(f"{what}: simulated now" + (f" and kept in the cache, {files.folder}" if kept else ""))
    return LatentAttentionSample(rope_ratios, sample, eigenvalues)


@dataclass(frozen=True)
class _LatentFiles:
    """Draws of latent attention, in files like a store's: written atomically and verified to the last byte."""

    folder: Path
    at_one: LatentAttention
    seed: int

    @classmethod
    def of(cls, at_one: LatentAttention, seed: int) -> _LatentFiles:
        name = at_one.name.rpartition(" ")[0].replace(" ", "-")
        return cls(cache_folder() / f"{name}-{DRAWS_VERSION}-seed{seed}-{compiler_settings_digest()}", at_one, seed)

    def path(self, ratio: float, draws: range) -> Path:
        return self.folder / f"rope_ratio={ratio!r}-draws-{draws.start}-{draws.stop}.chunk"

    def read(self, ratio: float, draws: range) -> Arrays | None:
        """Read the statistics and the eigenvalues; None if they are missing or damaged."""
        path, number = self.path(ratio, draws), np.dtype(float).str
        layout = {
            "statistic": (number, (len(draws), len(SPECTRAL_STATISTICS))),
            "eigenvalue": (number, (spectra_among(draws), self.at_one.rank)),
        }
        try:
            if not path.is_file():
                return None
            require_sound(path, self._identity(ratio, draws), layout)
            return {name: read_rows(path, layout, name) for name in layout}
        except (TableError, MissingFileError, PermissionError) as error:
            _warn_unused(error)
            return None

    def write(self, drawn: LatentAttentionSample, draws: range) -> bool:
        """Write the draws; return False, with a warning, if they cannot be written."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for ratio, sample, eigenvalues in zip(drawn.rope_ratios, drawn.sample, drawn.eigenvalues, strict=True):
                contents = pack(self._identity(ratio, draws), {"statistic": sample, "eigenvalue": eigenvalues})
                write_bytes(contents, self.path(ratio, draws))
        except OSError as error:
            _warn_not_kept(self.folder, error)
            return False
        return True

    def _identity(self, ratio: float, draws: range) -> dict[str, str | int]:
        return {
            "draws_of": replace(self.at_one, rope_ratio=ratio).name,
            "statistics": " ".join(SPECTRAL_STATISTICS),
            "draws_version": DRAWS_VERSION,
            "seed": self.seed,
            "start": draws.start,
            "count": len(draws),
        }


def _warn_unused(error: Exception) -> None:
    what = (
        "cache file that cannot be read" if isinstance(error, UnreadableTableError | OSError) else "damaged cache file"
    )
    warnings.warn(f"{what}, made again: {error}", CacheWarning, stacklevel=4)


def _warn_not_kept(path: Path, error: OSError) -> None:
    reason = error.reason if isinstance(error, OutputError) else error
    warnings.warn(f"the simulated null is not kept: {path}: {reason}", CacheWarning, stacklevel=4)
