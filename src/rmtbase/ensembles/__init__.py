"""Ensembles: how to draw. ``sample(key)`` makes one unbatched draw; the caller vmaps."""

from rmtbase.ensembles._bidiagonal_gaussian_matrix import BidiagonalDraw, BidiagonalGaussianMatrix
from rmtbase.ensembles._dense_low_rank_product import DenseLowRankProduct
from rmtbase.ensembles._gaussian_matrix import gaussian_matrix
from rmtbase.ensembles._low_rank_product import LowRankProduct, low_rank_product
from rmtbase.ensembles._product_draw import ProductDraw
from rmtbase.ensembles._thin_low_rank_product import ThinLowRankProduct

__all__ = [
    "BidiagonalDraw",
    "BidiagonalGaussianMatrix",
    "DenseLowRankProduct",
    "LowRankProduct",
    "ProductDraw",
    "ThinLowRankProduct",
    "gaussian_matrix",
    "low_rank_product",
]
