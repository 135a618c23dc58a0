"""Scoring: how far each head and each matrix of a model is from random, with calibrated p-values."""

from rmtbase.scoring._attention import attention_class
from rmtbase.scoring._csv import heads_csv, matrices_csv
from rmtbase.scoring._depth_fitter import DepthFitter, depth_fitter
from rmtbase.scoring._effective_depth import EffectiveDepth, effective_depth
from rmtbase.scoring._element_summary import ElementsSummary, summarize_elements
from rmtbase.scoring._find_null import ANALYTIC, Wanted, draws_for, find_null
from rmtbase.scoring._head_elements import ElementMode
from rmtbase.scoring._head_factors import head_dims, head_sigmas
from rmtbase.scoring._heads import circuit_scores, circuits_of, require_scores
from rmtbase.scoring._latent_null import LatentNull
from rmtbase.scoring._matrices import matrix_p_value_floors
from rmtbase.scoring._model_depths import effective_depths
from rmtbase.scoring._read_matrices import LAYERS
from rmtbase.scoring._score import MatrixMode, score, score_heads
from rmtbase.scoring._summary import (
    HeadFinding,
    Summary,
    at_p_value_floor,
    farthest_distance,
    farthest_z,
    layer_p_value_floors,
    p_value_floors,
    signed_distance,
    summarize_scores,
)

__all__ = [
    "ANALYTIC",
    "LAYERS",
    "DepthFitter",
    "EffectiveDepth",
    "ElementMode",
    "ElementsSummary",
    "HeadFinding",
    "LatentNull",
    "MatrixMode",
    "Summary",
    "Wanted",
    "at_p_value_floor",
    "attention_class",
    "circuit_scores",
    "circuits_of",
    "depth_fitter",
    "draws_for",
    "effective_depth",
    "effective_depths",
    "farthest_distance",
    "farthest_z",
    "find_null",
    "head_dims",
    "head_sigmas",
    "heads_csv",
    "layer_p_value_floors",
    "matrices_csv",
    "matrix_p_value_floors",
    "p_value_floors",
    "require_scores",
    "score",
    "score_heads",
    "signed_distance",
    "summarize_elements",
    "summarize_scores",
]
