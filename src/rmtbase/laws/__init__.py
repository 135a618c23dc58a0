"""Null laws of random weight matrices: limiting laws, edge laws and exact finite-size moments.

Every law of a Gaussian chain takes the same keywords (:class:`ChainKeywords`): ``d_model=, d_head=`` for W_QK, or
``dims=`` for any chain. The package needs only NumPy, SciPy and the standard library; it does not import jax.
"""

from rmtbase.arguments import check_public
from rmtbase.laws._chain._gaussian_chain import (
    GaussianChain,
    low_rank_product,
    marchenko_pastur,
    naive_marchenko_pastur,
)
from rmtbase.laws._chain._linear_statistics import LinearStatistics, eigenvalue_displacement, linear_statistics
from rmtbase.laws._description import describe
from rmtbase.laws._distribution import DiscreteDistribution, Distribution, Moments
from rmtbase.laws._edge._extreme_eigenvalues import EdgeLaw, HardEdgeLaw, largest_eigenvalue, smallest_eigenvalue
from rmtbase.laws._edge._hard_edge_coordinate import BesselEdge
from rmtbase.laws._edge._ordered_eigenvalues import OrderedEigenvalues, ordered_eigenvalues
from rmtbase.laws._edge._spike import Outlier, RankOneSpike
from rmtbase.laws._edge._spiked_tracy_widom import spiked_tracy_widom_cdf
from rmtbase.laws._edge._tracy_widom import TracyWidom
from rmtbase.laws._element import parents
from rmtbase.laws._element._element_estimates import (
    element_average,
    histogram_entropy,
    histogram_kl,
    nearest_neighbour_entropy,
    nearest_neighbour_kl,
)
from rmtbase.laws._element._normal_sample import gaussian_sample_statistic, normal_entropy, normal_kl
from rmtbase.laws._element._product_element import ProductElement, product_element
from rmtbase.laws._element._weights import AdamWNoise, ContaminatedNormal, TwoPoint, pearson_bound
from rmtbase.laws._exact._haar_trace import HaarTrace
from rmtbase.laws._exact._log_determinant import LogDeterminant
from rmtbase.laws._exact._trace_polynomials import (
    DimensionPolynomial,
    normalized_participation_ratio,
    participation_ratio,
    trace_cumulant,
    trace_cumulants,
    trace_moment,
    trace_moment_polynomial,
)
from rmtbase.laws._grid import BINS, PROBABILITIES, histogram_edges, logarithmic_edges
from rmtbase.laws._null._element_null import ElementNull, element_null, product_element_null
from rmtbase.laws._null._null import NULL_STATISTICS, NullLaw, known_nulls, null
from rmtbase.laws._parameters import ChainKeywords, ProductKeywords
from rmtbase.laws._residual._residual_moments import PathLength, TraceMoments, residual_trace_moments
from rmtbase.laws._residual._residual_path import FreeMultiplicativeBrownian, ResidualPath
from rmtbase.laws._residual._residual_update import ResidualUpdate
from rmtbase.laws._weibull._closure import (
    LargeSampleLaw,
    WeibullClosure,
    WeibullNull,
    weibull_body_tail_gap,
    weibull_closure,
    weibull_null,
    weibull_product_null,
)
from rmtbase.laws._weibull._plot import (
    NoiseOptimum,
    WeibullAnchor,
    weibull_anchor,
    weibull_maximum_likelihood,
    weibull_noise_optimum,
    weibull_quantile_noise,
)

__all__ = [
    "NULL_STATISTICS", "AdamWNoise", "ChainKeywords", "ContaminatedNormal", "DimensionPolynomial",
    "DiscreteDistribution", "Distribution", "EdgeLaw", "ElementNull", "FreeMultiplicativeBrownian", "GaussianChain",
    "HaarTrace", "HardEdgeLaw", "LargeSampleLaw", "LinearStatistics", "LogDeterminant", "Moments", "NoiseOptimum",
    "NullLaw", "OrderedEigenvalues", "Outlier", "PathLength", "ProductElement", "ProductKeywords", "RankOneSpike",
    "ResidualPath", "ResidualUpdate", "TraceMoments", "TracyWidom", "TwoPoint", "WeibullAnchor", "WeibullClosure",
    "WeibullNull", "eigenvalue_displacement", "element_null", "histogram_entropy", "histogram_kl", "largest_eigenvalue",
    "linear_statistics", "low_rank_product", "marchenko_pastur", "naive_marchenko_pastur", "nearest_neighbour_entropy",
    "nearest_neighbour_kl", "normal_entropy", "normal_kl", "normalized_participation_ratio", "null",
    "ordered_eigenvalues", "parents", "participation_ratio", "pearson_bound", "product_element", "product_element_null",
    "residual_trace_moments", "smallest_eigenvalue", "trace_cumulant", "trace_moment", "trace_moment_polynomial",
    "weibull_anchor", "weibull_body_tail_gap", "weibull_closure", "weibull_noise_optimum", "weibull_null",
]  # fmt: skip

check_public(globals())
check_public(parents.__dict__, [name for name, value in parents.__dict__.items() if isinstance(value, type)])
