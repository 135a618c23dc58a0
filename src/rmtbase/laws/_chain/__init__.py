"""Laws of the bulk: the eigenvalues of chains of Gaussian matrices, in the limit and in their linear statistics."""
