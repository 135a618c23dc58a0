from ._heads import circuit_scores, layer_coordinates
from .measure import score, score_heads
from .page._page import render
from .summary import HeadFinding, Summary, summarize_scores

__all__ = [
    "HeadFinding",
    "Summary",
    "circuit_scores",
    "layer_coordinates",
    "render",
    "score",
    "score_heads",
    "summarize_scores",
]
