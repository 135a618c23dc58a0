"""Weights that are not stored as they are used. Imports ``files``, ``layouts`` and, for adapters, ``forward``."""
