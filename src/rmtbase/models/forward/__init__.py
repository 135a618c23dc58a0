"""Attention sites found and proved by the forward pass of a module itself.

Imports only ``files`` and ``layouts``, and PyTorch only when it is called.
"""
