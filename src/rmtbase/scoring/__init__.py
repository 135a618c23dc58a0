"""Scoring: how far each head and each matrix of a model is from random, with calibrated p-values."""

from rmtbase.scoring._analytic_null import AnalyticNull
from rmtbase.scoring._atlas_null import AtlasNull
from rmtbase.scoring._csv import heads_csv
from rmtbase.scoring._effective_depth import EffectiveDepth, effective_depth
from rmtbase.scoring._effective_depths import effective_depths
from rmtbase.scoring._heads import score_heads
from rmtbase.scoring._null import SMALLEST_P_VALUE, GaussianNull, HeadNull, draws_for
from rmtbase.scoring._score import score
from rmtbase.scoring._source import ANALYTIC
from rmtbase.scoring._summary import HeadFinding, Summary, summarize_scores

__all__ = [
    "ANALYTIC",
    "SMALLEST_P_VALUE",
    "AnalyticNull",
    "AtlasNull",
    "EffectiveDepth",
    "GaussianNull",
    "HeadFinding",
    "HeadNull",
    "Summary",
    "draws_for",
    "effective_depth",
    "effective_depths",
    "heads_csv",
    "score",
    "score_heads",
    "summarize_scores",
]
