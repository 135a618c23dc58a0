"""Laws of single eigenvalues: the extreme ones, those of each rank, and those that a spike puts outside."""
