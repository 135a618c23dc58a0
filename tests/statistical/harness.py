"""Distances between samples and laws, with the probability that chance alone makes them as large."""

import numpy as np
from scipy import special, stats


def same_law(first, second):
    """p-value of the two-sample Kolmogorov–Smirnov test; 1 for two samples of one and the same constant."""
    return stats.ks_2samp(first, second, method="asymp").pvalue


def uniform(p_values, null_draws=None):
    """p-value of the Kolmogorov–Smirnov test of uniformity.

    Two-sided Monte Carlo p-values read off one null sample of m draws carry that sample's own error. Their distance
    from uniform is that of a two-sample test of sizes n and m, also after the folding p = 2 min(u, 1 - u): with a
    Brownian bridge B, B(s) - B(1 - s) is a Brownian bridge in 2 s.
    """
    p = np.sort(np.ravel(p_values))
    n = p.size
    distance = np.maximum(p - np.arange(n) / n, np.arange(1, n + 1) / n - p).max()
    effective = n if null_draws is None else n * null_draws / (n + null_draws)
    return float(special.kolmogorov(np.sqrt(effective) * distance))
