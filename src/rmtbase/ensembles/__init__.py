"""Ensembles: how to draw. ``sample(key)`` makes one unbatched draw; the caller vmaps."""

from rmtbase.ensembles._gaussian_matrix import BidiagonalDraw, BidiagonalGaussianMatrix
from rmtbase.ensembles._low_rank_product import (
    DenseLowRankProduct,
    LowRankProduct,
    ProductDraw,
    ThinLowRankProduct,
    low_rank_product,
)

__all__ = [
    "BidiagonalDraw",
    "BidiagonalGaussianMatrix",
    "DenseLowRankProduct",
    "LowRankProduct",
    "ProductDraw",
    "ThinLowRankProduct",
    "low_rank_product",
]
