"""Baselines: tables of random matrices, with the law beside the simulation."""
