"""Monte Carlo: keys, runner, baseline tables, and the cache of nulls already simulated."""

from rmtbase.montecarlo._baseline import PROBABILITIES, baseline
from rmtbase.montecarlo._cache import cache_folder, cached_baseline
from rmtbase.montecarlo._keys import case_key, draw_keys, require_seed
from rmtbase.montecarlo._matrix_null import GaussianMatrixSample, simulate_gaussian_matrix
from rmtbase.montecarlo._runner import SpectrumChunk, draw_spectra
from rmtbase.montecarlo._shape import histogram_edges

__all__ = [
    "PROBABILITIES",
    "GaussianMatrixSample",
    "SpectrumChunk",
    "baseline",
    "cache_folder",
    "cached_baseline",
    "case_key",
    "draw_keys",
    "draw_spectra",
    "histogram_edges",
    "require_seed",
    "simulate_gaussian_matrix",
]
