"""Laws of residual paths P = Π_l (I + σ G_l/√d): eigenvalues, moments and path lengths."""
