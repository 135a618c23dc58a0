"""Statistics of spectra, of the elements of a matrix, and of samples. One registry; every name has one meaning."""

from rmtbase.arguments import check_public
from rmtbase.statistics._element_sketch import ElementSketch, element_sketch
from rmtbase.statistics._element_statistics import (
    ELEMENT_STATISTICS,
    FEWEST_ELEMENTS,
    MOMENT_STATISTICS,
    ElementStatistic,
    element_statistics,
    reason_against,
)
from rmtbase.statistics._elements import CentralSums, ElementMoments, element_moments
from rmtbase.statistics._entropy import (
    entropy_of_counts,
    histogram_entropy,
    histogram_kl,
    kl_of_counts,
    nearest_neighbour_entropy,
    nearest_neighbour_kl,
)
from rmtbase.statistics._fitted_laws import LogisticFit, StudentTFit, fit_logistic, fit_student_t
from rmtbase.statistics._inference import (
    benjamini_hochberg,
    benjamini_yekutieli,
    cauchy_combination,
    holm,
    monte_carlo_p_value,
    normal_score,
    p_value_among_sorted,
    upper_p_value_among_sorted,
)
from rmtbase.statistics._latent_shape import LatentShape
from rmtbase.statistics._moved_share import moved_parts, moved_share
from rmtbase.statistics._power_law import PowerLawFit, power_law_fit, power_law_p_value
from rmtbase.statistics._registry import (
    SPECTRAL_STATISTICS,
    ExtremeMoments,
    Statistic,
    drawn_moments,
    eigenvalue_moment_orders,
    from_distance_scale,
    get_statistic,
    inverse_moment_order,
    missing_moment,
    moment_order,
    moment_orders,
    on_distance_scale,
    rescale_statistics,
    spectral_statistics,
)
from rmtbase.statistics._signed_bins import MAGNITUDE_BINS, SignedBins, magnitude_bins
from rmtbase.statistics._summary import SampleSummary, summarize, summarize_stream
from rmtbase.statistics._weibull_fit import (
    WeibullFit,
    WeibullLikelihoodFit,
    weibull_fit,
    weibull_fit_of_bins,
    weibull_likelihood_fit,
)

__all__ = [
    "ELEMENT_STATISTICS",
    "MOMENT_STATISTICS",
    "SPECTRAL_STATISTICS",
    "ElementSketch",
    "ElementStatistic",
    "LogisticFit",
    "Statistic",
    "StudentTFit",
    "WeibullFit",
    "WeibullLikelihoodFit",
    "benjamini_hochberg",
    "benjamini_yekutieli",
    "cauchy_combination",
    "element_sketch",
    "element_statistics",
    "fit_logistic",
    "fit_student_t",
    "histogram_entropy",
    "histogram_kl",
    "holm",
    "moment_order",
    "monte_carlo_p_value",
    "moved_parts",
    "moved_share",
    "nearest_neighbour_entropy",
    "nearest_neighbour_kl",
    "spectral_statistics",
    "weibull_fit",
    "weibull_likelihood_fit",
]

check_public(globals())
