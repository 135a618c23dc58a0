"""Null distributions that heads are scored against. Reads tables of nulls, and needs no JAX."""

from rmtbase.arguments import check_public
from rmtbase.nulls._analytic_null import FLAT, AnalyticNull, FixedSpectrum
from rmtbase.nulls._atlas_null import RATIO, STEP, AtlasNull, atlas_case, atlas_path, count_bound, kept_ranks
from rmtbase.nulls._gaussian import Analytic, Gaussian, Kurtosis, Table
from rmtbase.nulls._head_null import (
    EDGE_LEVEL,
    ENTRIES_IN_WORDS,
    SMALLEST_P_VALUE,
    Heads,
    HeadScores,
    NullModel,
    chain_scale,
    distance_from_moments,
    without_kurtosis,
)
from rmtbase.nulls._joint_null import ANGLE_STATISTICS, HeadParts, JointNull, angle_statistics
from rmtbase.nulls._kurtosis_null import (
    KURTOSIS,
    LARGEST_KURTOSIS,
    initialization_note,
    kurtosis_range,
    mean_kurtosis,
    own_kurtosis,
)
from rmtbase.nulls._latent_null import LatentNull
from rmtbase.nulls._names import NULLS, find_null
from rmtbase.nulls._null import DRAWS_PER_TEST, HeadShape, Null, draws_for
from rmtbase.nulls._null_of_file import null_of_file
from rmtbase.nulls._random_heads import UPPER, RandomHeads, UpperPoint, random_heads
from rmtbase.nulls._resampler import Axes, Resampler, Signs
from rmtbase.nulls._sample_null import GaussianNull, OrthogonalNull, self_normalized_sample

__all__ = [
    "LARGEST_KURTOSIS",
    "Analytic",
    "Axes",
    "Gaussian",
    "Kurtosis",
    "Null",
    "NullModel",
    "Signs",
    "Table",
    "find_null",
    "kurtosis_range",
]

check_public(globals())
