"""Matrices of a model as expressions over stored tensors, found by names, shapes and the table of architectures.

Imports only ``files``.
"""
