"""The null of every spectral statistic as a distribution."""
