"""Exact at every size: moments and cumulants of traces, the log-determinant, what self-normalisation changes."""
