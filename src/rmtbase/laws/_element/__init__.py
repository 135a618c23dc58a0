"""Laws of the elements of a matrix: of W_QK, of normal samples, of a contaminated bulk; entropies and bounds."""
