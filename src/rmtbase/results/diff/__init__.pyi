from ._element_divergence import element_divergence
from .measure import diff

__all__ = ["diff", "element_divergence"]
