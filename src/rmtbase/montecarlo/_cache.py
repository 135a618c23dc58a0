"""Cache of simulated nulls: one file for each ensemble, draws, seed and settings of JAX and XLA that change bits.

Nulls of latent attention also depend on a ratio and take hours: they have one file for each ratio and block of draws.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from rmtbase.ensembles import LatentAttention
from rmtbase.errors import MissingFileError, OutputError, RmtbaseWarning, TableError, UnreadableTableError
from rmtbase.montecarlo import _simulations
from rmtbase.montecarlo._machine import compiler_settings_digest, require_draw_fits, require_results_fit
from rmtbase.montecarlo._plan import DRAWS_VERSION, Plan, make_plan
from rmtbase.montecarlo._run import run_in_memory
from rmtbase.montecarlo._store import ChunkFile
from rmtbase.parameters import require_draws, require_seed
from rmtbase.progress import SILENT, Progress
from rmtbase.statistics import SPECTRAL_STATISTICS
from rmtbase.systems import cache_folder
from rmtbase.tables import SCHEMA_VERSION, open_table, write_table

_LATENT_DRAWS = 2**11  # draws of a file: a multiple of every tile, and a minute or two of work at twenty ratios


class CacheWarning(RmtbaseWarning):
    """Warning that a simulated null could not be cached, or that a cached one was damaged and is made again."""


@dataclass(frozen=True)
class CachedTable:
    plan: Plan  # a plan with one case, raw and at σ = 1

    @property
    def path(self) -> Path:
        plan, case = self.plan, self.plan.cases[0]
        name = "d{d_model}-h{d_head}".format(**case.parameters) if plan.is_baseline else case.ensemble.name
        versions = f"v{SCHEMA_VERSION}-{DRAWS_VERSION}-{name.replace(' ', '-')}"
        digits = f"n{case.draws}-seed{plan.seed}-{compiler_settings_digest()}"
        return cache_folder() / f"{self._kind}-{versions}-{digits}.nc"

    def get(self, progress: Progress = SILENT) -> xr.Dataset:
        if (table := self.read()) is None:
            return self.make(progress)
        self.note_cached(progress)
        return table

    def read(self) -> xr.Dataset | None:
        path = self.path
        try:
            if not path.is_file():
                return None
            table = cast("xr.Dataset", open_table(path, self._kind))
            plan_hash, sample = table.attrs.get("plan_hash"), "sample" if self.plan.is_baseline else "scale_estimate"
            if plan_hash != self.plan.hash or sample not in table:
                raise TableError(path, f"plan {plan_hash}", f"plan {self.plan.hash}, with its {sample}")
        except (TableError, PermissionError) as error:
            _warn_unused(error)
            return None
        return table

    def make(self, progress: Progress) -> xr.Dataset:
        table, path = run_in_memory(self.plan, progress, self_normalize=not self.plan.is_baseline), self.path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_table(table, path)
            progress.detail(f"{self._description}: simulated now and kept in the cache, {path}")
        except OSError as error:
            _warn_not_kept(path, error)
            progress.detail(f"{self._description}: simulated now")
        return table

    def note_cached(self, progress: Progress) -> None:
        progress.detail(f"{self._description}: from the cache, {self.path}")

    @property
    def _kind(self) -> str:
        return "baseline" if self.plan.is_baseline else "spectra"

    @property
    def _description(self) -> str:
        case = self.plan.cases[0]
        name = "(d_model, d_head) = ({d_model}, {d_head})" if self.plan.is_baseline else case.ensemble.name
        name = name.format(**case.parameters)
        return f"null of {name}, {case.draws} draws, seed {self.plan.seed}"


def cached_table(ensemble: str, parameters: Mapping[str, object], draws: int, seed: int = 0) -> CachedTable:
    return CachedTable(make_plan(ensemble, [parameters], draws, seed, normalization="none"))


def cached_latent_attention(
    ensemble: LatentAttention, rope_ratios: Sequence[float], draws: int, seed: int = 0, progress: Progress = SILENT
) -> _simulations.LatentAttentionSample:
    """Make the same draws of latent attention at each ratio; only files that no earlier run has left are drawn."""
    # The name at ratio 1 enters the keys.
    ensemble, draws, seed = replace(ensemble, rope_ratio=1.0), require_draws(draws), require_seed(seed)
    require_draw_fits(ensemble)
    numbers_of_draw = len(SPECTRAL_STATISTICS) + ensemble.rank * _simulations.spectra_among(range(draws)) / draws
    require_results_fit(draws, math.ceil(16 * len(rope_ratios) * numbers_of_draw), "ask for fewer")
    rope_ratios = tuple(map(float, rope_ratios))
    sample = np.empty((len(rope_ratios), draws, len(SPECTRAL_STATISTICS)))
    eigenvalues = np.empty((len(rope_ratios), _simulations.spectra_among(range(draws)), ensemble.rank))
    missing: dict[range, list[int]] = {}
    for first in range(0, draws, _LATENT_DRAWS):
        block = range(first, min(first + _LATENT_DRAWS, draws))
        for k, ratio in enumerate(rope_ratios):
            if (arrays := _read(_latent_file(ensemble, ratio, block, seed))) is None:
                missing.setdefault(block, []).append(k)
            else:
                sample[k, first : block.stop], eigenvalues[k, first : block.stop] = arrays.values()
    folder, title = _latent_folder(ensemble, seed), ensemble.name.rpartition(" ")[0]
    description = f"null of {title} at {len(rope_ratios)} ratios, {draws} draws, seed {seed}"
    cached = 1.0 - sum(len(block) * len(ratios) for block, ratios in missing.items()) / (draws * len(rope_ratios))
    if cached:
        share = "" if cached == 1.0 else f"{100 * cached:.3g} % of it "
        progress.detail(f"{description}: {share}from the cache, {folder}")
    if missing:
        advance, keep = progress.bar("drawing the null", sum(map(len, missing))), True
        for block, numbers in missing.items():
            ratios = [rope_ratios[k] for k in numbers]
            drawn = _simulations.draw_latent_attention(ensemble, ratios, block, seed, advance)
            sample[numbers, block.start : block.stop] = drawn.sample
            eigenvalues[numbers, block.start : block.stop] = drawn.eigenvalues
            try:
                if keep:
                    folder.mkdir(parents=True, exist_ok=True)
                    for ratio, statistics, spectra in zip(ratios, drawn.sample, drawn.eigenvalues, strict=True):
                        file = _latent_file(ensemble, ratio, block, seed)
                        file.write({"statistic": statistics, "eigenvalue": spectra})
            except OSError as error:
                _warn_not_kept(folder, error)
                keep = False
        progress.detail(f"{description}: simulated now" + (f" and kept in the cache, {folder}" if keep else ""))
    return _simulations.LatentAttentionSample(sample, eigenvalues)


def _latent_folder(ensemble: LatentAttention, seed: int) -> Path:
    name = ensemble.name.rpartition(" ")[0].replace(" ", "-")
    return cache_folder() / f"{name}-{DRAWS_VERSION}-seed{seed}-{compiler_settings_digest()}"


def _latent_file(ensemble: LatentAttention, ratio: float, draws: range, seed: int) -> ChunkFile:
    identity = {
        "draws_of": replace(ensemble, rope_ratio=ratio).name,
        "statistics": " ".join(SPECTRAL_STATISTICS),
        "draws_version": DRAWS_VERSION,
        "seed": seed,
        "start": draws.start,
        "count": len(draws),
    }
    layout = {
        "statistic": ("<f8", (len(draws), len(SPECTRAL_STATISTICS))),
        "eigenvalue": ("<f8", (_simulations.spectra_among(draws), ensemble.rank)),
    }
    name = f"rope_ratio={ratio!r}-draws-{draws.start}-{draws.stop}.chunk"
    return ChunkFile(_latent_folder(ensemble, seed) / name, identity, layout)


def _read(file: ChunkFile) -> dict[str, NDArray[Any]] | None:
    try:
        if not file.path.is_file():
            return None
        file.require_sound()
        return {name: file.read(name) for name in file.layout}
    except (TableError, MissingFileError, PermissionError) as error:
        _warn_unused(error)
        return None


def _warn_unused(error: Exception) -> None:
    unreadable = isinstance(error, UnreadableTableError | OSError)
    fault = "cache file that cannot be read" if unreadable else "damaged cache file"
    warnings.warn(f"{fault}, made again: {error}", CacheWarning, stacklevel=4)


def _warn_not_kept(path: Path, error: OSError) -> None:
    reason = error.reason if isinstance(error, OutputError) else error
    warnings.warn(f"the simulated null is not kept: {path}: {reason}", CacheWarning, stacklevel=4)
