"""Matrices and their spectra, drawn: keys, devices, programs, loads, and the choice of solver."""
