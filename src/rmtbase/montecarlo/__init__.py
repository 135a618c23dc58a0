"""Monte Carlo: plans and runs, draws of one ensemble, and the resulting tables."""

from rmtbase.arguments import check_public
from rmtbase.executors import Executor, Inline, LocalProcesses, Scheduler
from rmtbase.montecarlo._baseline import baseline, baseline_plan, element_baseline
from rmtbase.montecarlo._cache import CachedTable, CacheWarning, cache_folder, cached_latent_attention, cached_table
from rmtbase.montecarlo._compiled_sampler import BatchPlan, CompiledSampler, tile_size
from rmtbase.montecarlo._compute import compute_chunk
from rmtbase.montecarlo._elements import draw_elements, element_edges
from rmtbase.montecarlo._head_resamples import (
    entry_statistics,
    flip_statistics,
    permutation_statistics,
    simulated_entry_statistics,
)
from rmtbase.montecarlo._keys import MAX_DRAWS, case_key, draw_keys
from rmtbase.montecarlo._machine import in_order
from rmtbase.montecarlo._plan import Case, Plan, make_plan, read_plan
from rmtbase.montecarlo._run import dask_workers, run_in_memory, run_plan
from rmtbase.montecarlo._simulations import simulate_gaussian_matrix, simulate_heads_with_factors
from rmtbase.montecarlo._solver_choice import MICROSECONDS, choose_solver, measured_solver, time_solver
from rmtbase.montecarlo._spectra import SpectrumChunk, draw_spectra
from rmtbase.montecarlo._store import Store, open_store

__all__ = [
    "CacheWarning",
    "Case",
    "Inline",
    "LocalProcesses",
    "Plan",
    "Scheduler",
    "SpectrumChunk",
    "baseline",
    "draw_spectra",
    "element_baseline",
    "make_plan",
    "read_plan",
    "run_plan",
]

check_public(globals())
