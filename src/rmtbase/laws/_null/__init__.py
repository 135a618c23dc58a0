"""The null of every spectral statistic as a distribution."""

from rmtbase.laws._null._law import NullLaw
from rmtbase.laws._null._null import NULL_STATISTICS, null

__all__ = ["NULL_STATISTICS", "NullLaw", "null"]
