"""Ensembles: how to draw. ``sample(key)`` makes one unbatched draw; the caller vmaps."""

import rmtbase.jax_import  # before the modules that import JAX, none of which holds interrupts back
from rmtbase.arguments import check_public
from rmtbase.ensembles._ensemble import Draw, Ensemble, as_pytree
from rmtbase.ensembles._full_matrix import DenseGaussianChain, IndependentMatrix
from rmtbase.ensembles._gaussian_chain import gaussian_chain, gaussian_matrix, low_rank_product
from rmtbase.ensembles._grouped_query_product import GroupedQueryProduct, grouped_query_product
from rmtbase.ensembles._independent_chain import IndependentChain, independent_chain
from rmtbase.ensembles._independent_matrix import (
    InitializedMatrix,
    LogisticMatrix,
    StudentTMatrix,
    initialized_matrix,
    logistic_matrix,
    student_t_matrix,
)
from rmtbase.ensembles._initializers import INITIALIZERS, Initializer
from rmtbase.ensembles._latent_attention import LatentAttention, latent_attention
from rmtbase.ensembles._orthogonal_blocks import OrthogonalBlocks, RandomSubspaces, orthogonal_blocks, random_subspaces
from rmtbase.ensembles._orthogonal_matrix import OrthogonalMatrix
from rmtbase.ensembles._registry import ENSEMBLES, make_ensemble
from rmtbase.ensembles._resampled_head import (
    AxisPermutedHead,
    SignFlippedHead,
    axis_permuted_head,
    flipped,
    sign_flipped_head,
    sign_flipped_matrix,
    signed_permutation,
)
from rmtbase.ensembles._residual_path import ResidualProduct, residual_path
from rmtbase.ensembles._thin_gaussian_chain import BidiagonalGaussianMatrix, ThinGaussianChain

__all__ = [
    "ENSEMBLES",
    "INITIALIZERS",
    "AxisPermutedHead",
    "BidiagonalGaussianMatrix",
    "DenseGaussianChain",
    "Draw",
    "Ensemble",
    "GroupedQueryProduct",
    "IndependentChain",
    "InitializedMatrix",
    "LogisticMatrix",
    "OrthogonalBlocks",
    "OrthogonalMatrix",
    "RandomSubspaces",
    "ResidualProduct",
    "SignFlippedHead",
    "StudentTMatrix",
    "ThinGaussianChain",
    "as_pytree",
    "axis_permuted_head",
    "gaussian_chain",
    "gaussian_matrix",
    "grouped_query_product",
    "independent_chain",
    "initialized_matrix",
    "logistic_matrix",
    "low_rank_product",
    "orthogonal_blocks",
    "random_subspaces",
    "residual_path",
    "sign_flipped_head",
    "student_t_matrix",
]

check_public(globals())
