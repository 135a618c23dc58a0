"""How random weight matrices are distributed: limiting laws, edge laws and exact finite-size moments.

NumPy, SciPy and the standard library only: nothing here imports jax.
"""

from rmtbase.laws._exact_moments import (
    TraceMoments,
    log_determinant,
    normalized_participation_ratio,
    participation_ratio,
    trace_moment,
    trace_moments,
)
from rmtbase.laws._extreme_eigenvalues import EdgeLaw, largest_eigenvalue, smallest_eigenvalue
from rmtbase.laws._gaussian_chain import GaussianChain
from rmtbase.laws._gaussian_sample import SampleStatisticLaw, gaussian_sample_statistic
from rmtbase.laws._limit_statistics import LIMIT_STATISTICS, LimitMean, limit_mean
from rmtbase.laws._low_rank_product import low_rank_product
from rmtbase.laws._marchenko_pastur import marchenko_pastur, naive_marchenko_pastur
from rmtbase.laws._moments import Moments
from rmtbase.laws._tracy_widom import TracyWidom

__all__ = [
    "LIMIT_STATISTICS",
    "EdgeLaw",
    "GaussianChain",
    "LimitMean",
    "Moments",
    "SampleStatisticLaw",
    "TraceMoments",
    "TracyWidom",
    "gaussian_sample_statistic",
    "largest_eigenvalue",
    "limit_mean",
    "log_determinant",
    "low_rank_product",
    "marchenko_pastur",
    "naive_marchenko_pastur",
    "normalized_participation_ratio",
    "participation_ratio",
    "smallest_eigenvalue",
    "trace_moment",
    "trace_moments",
]
