"""Laws of the elements of a matrix: initial laws, W_QK, normal samples, a contaminated bulk; entropies and bounds."""
