"""Weights that are not stored as they are used: quantised matrices, GGUF files, low-rank adapters.

Imports ``files``, ``layouts`` and, for the names of adapters, ``forward``.
"""
