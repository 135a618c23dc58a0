"""Laws of single eigenvalues: the extreme ones, the k-th largest, and the outlier of a spike."""
