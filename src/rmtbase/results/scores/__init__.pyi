from ._element_summary import ElementsSummary, summarize_elements
from ._head_elements import ElementMode
from ._heads import circuit_scores, layer_coordinates, require_scores, sizes_of
from ._read_matrices import LAYERS, products_of
from ._scores_tree import attention_class
from ._why import QUESTIONS, TESTS, WhySummary, summarize_why, verdict
from .measure import MatrixMode, score, score_heads
from .page import render
from .summary import HeadFinding, Summary, at_p_value_floor, farthest_distance, signed_distance, summarize_scores

__all__ = [
    "LAYERS",
    "QUESTIONS",
    "TESTS",
    "ElementMode",
    "ElementsSummary",
    "HeadFinding",
    "MatrixMode",
    "Summary",
    "WhySummary",
    "at_p_value_floor",
    "attention_class",
    "circuit_scores",
    "farthest_distance",
    "layer_coordinates",
    "products_of",
    "render",
    "require_scores",
    "score",
    "score_heads",
    "signed_distance",
    "sizes_of",
    "summarize_elements",
    "summarize_scores",
    "summarize_why",
    "verdict",
]
