from .measure import composition
from .summary import ComposedPair, CompositionSummary, KindSummary, summarize_composition

__all__ = [
    "ComposedPair",
    "CompositionSummary",
    "KindSummary",
    "composition",
    "summarize_composition",
]
