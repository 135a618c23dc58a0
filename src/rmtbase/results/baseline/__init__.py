"""Baselines: tables of random matrices, with simulated and analytic values."""
