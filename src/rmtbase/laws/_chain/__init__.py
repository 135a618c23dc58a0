"""Bulk eigenvalues of chains of Gaussian matrices: limiting laws and linear statistics."""
