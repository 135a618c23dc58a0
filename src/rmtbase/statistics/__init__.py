"""Statistics: a spectrum, a matrix's elements, or a sample -> numbers. One registry; every name has one meaning."""

from rmtbase.statistics._elements import ELEMENT_STATISTICS, ElementMoments, element_moments
from rmtbase.statistics._entropy import (
    histogram_entropy,
    histogram_kl,
    nearest_neighbour_entropy,
    nearest_neighbour_kl,
)
from rmtbase.statistics._inference import benjamini_hochberg, cauchy_combination, monte_carlo_p_value
from rmtbase.statistics._registry import SPECTRAL_STATISTICS, Statistic, get_statistic, spectral_statistics
from rmtbase.statistics._sample import SampleSummary, summarize

__all__ = [
    "ELEMENT_STATISTICS",
    "SPECTRAL_STATISTICS",
    "ElementMoments",
    "SampleSummary",
    "Statistic",
    "benjamini_hochberg",
    "cauchy_combination",
    "element_moments",
    "get_statistic",
    "histogram_entropy",
    "histogram_kl",
    "monte_carlo_p_value",
    "nearest_neighbour_entropy",
    "nearest_neighbour_kl",
    "spectral_statistics",
    "summarize",
]
