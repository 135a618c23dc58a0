"""Residual paths P = Π_l (I + σ G_l/√d): their eigenvalues, moments and lengths."""
