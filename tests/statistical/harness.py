"""Distances between samples and laws, with the probability that chance alone makes them as large."""

import numpy as np
from scipy import special, stats


def same_law(first, second):
    """p-value of the two-sample Kolmogorov–Smirnov test; 1 for two samples of one constant up to its rounding."""
    both = np.concatenate([first, second])
    if np.ptp(both) <= 1e-12 * max(1.0, np.abs(both).max()):
        return 1.0
    return stats.ks_2samp(first, second, method="asymp").pvalue


def joint_statistics(singular_values, norm_squared):
    """What a draw of a matrix is compared by, by name, each (draw,): its spectrum, the norms of its factors, and both.

    All logarithms: a factor of the matrix that is independent of the rest then only shifts them.
    """
    s, norms = np.log(singular_values), np.log(norm_squared).T
    trace = np.log(np.sum(singular_values**2, axis=1))
    of = {
        "trace": trace,
        "largest": s[:, 0],
        "smallest": s[:, -1],
        "participation": 2 * trace - np.log(np.sum(singular_values**4, axis=1)),
        "condition": s[:, 0] - s[:, -1],
        "log_determinant": s.sum(axis=1),
    }
    for number, norm in enumerate(norms):
        of[f"norm {number}"] = norm
        of[f"trace over norm {number}"] = trace - norm
        of[f"largest times norm {number}"] = 2 * s[:, 0] + norm
    for number in range(len(norms) - 1):
        of[f"norm {number} over norm {number + 1}"] = norms[number] - norms[number + 1]
    if len(norms):
        own = norms.sum(axis=0)
        of["trace at its own scale"] = trace - own
        of["log_determinant at its own scale"] = s.sum(axis=1) - 0.5 * singular_values.shape[1] * own
    return of


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
