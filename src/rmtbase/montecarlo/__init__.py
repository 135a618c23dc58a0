"""Monte Carlo: plans, keys, runner, store, tables, and the cache of nulls already simulated."""

from rmtbase.montecarlo._baseline import baseline, baseline_plan
from rmtbase.montecarlo._cache import CacheWarning, cache_folder, cached_baseline
from rmtbase.montecarlo._draws._elements import (
    ElementChunk,
    ElementEnsemble,
    draw_elements,
    element_edges,
    element_statistics_chunk,
)
from rmtbase.montecarlo._draws._grouped_query import GroupedQuerySample, HeadCorrelation, simulate_grouped_query
from rmtbase.montecarlo._draws._keys import case_key, draw_keys
from rmtbase.montecarlo._draws._matrix_null import GaussianMatrixSample, simulate_gaussian_matrix
from rmtbase.montecarlo._draws._runner import SpectrumChunk, draw_spectra
from rmtbase.montecarlo._draws._solver_choice import choose_solver
from rmtbase.montecarlo._plans._chunks import Chunk, Chunks
from rmtbase.montecarlo._plans._compute import compute_chunk
from rmtbase.montecarlo._plans._plan import Plan, make_plan, read_plan
from rmtbase.montecarlo._runs._hosts import run_on_hosts
from rmtbase.montecarlo._runs._run import plan_status, run_in_memory, run_plan
from rmtbase.montecarlo._stores._store import Store, open_store
from rmtbase.montecarlo._summaries._element_table import element_baseline, element_table
from rmtbase.nulls import histogram_edges
from rmtbase.tables import ELEMENT_FORMULAS

__all__ = [
    "ELEMENT_FORMULAS",
    "CacheWarning",
    "Chunk",
    "Chunks",
    "ElementChunk",
    "ElementEnsemble",
    "GaussianMatrixSample",
    "GroupedQuerySample",
    "HeadCorrelation",
    "Plan",
    "SpectrumChunk",
    "Store",
    "baseline",
    "baseline_plan",
    "cache_folder",
    "cached_baseline",
    "case_key",
    "choose_solver",
    "compute_chunk",
    "draw_elements",
    "draw_keys",
    "draw_spectra",
    "element_baseline",
    "element_edges",
    "element_statistics_chunk",
    "element_table",
    "histogram_edges",
    "make_plan",
    "open_store",
    "plan_status",
    "read_plan",
    "run_in_memory",
    "run_on_hosts",
    "run_plan",
    "simulate_gaussian_matrix",
    "simulate_grouped_query",
]
