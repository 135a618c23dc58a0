"""Nulls of all spectral and element statistics, as distributions."""
