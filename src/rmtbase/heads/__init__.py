"""Heads of a model: their factors, spectra and scales, read layer by layer, and their directions as tokens."""
