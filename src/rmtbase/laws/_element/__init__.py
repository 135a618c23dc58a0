"""Laws of the elements of a matrix: initial weights, W_QK, normal samples, contaminated bulks; entropies and bounds."""
