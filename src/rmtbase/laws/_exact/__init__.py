"""Exact finite-size laws: moments and cumulants of traces, the participation ratio and the log-determinant."""
