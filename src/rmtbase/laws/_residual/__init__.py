"""Residual paths P = prod_l (I + sigma G_l/sqrt(d)): their eigenvalues, moments and lengths."""
