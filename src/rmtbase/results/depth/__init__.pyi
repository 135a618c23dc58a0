from ._effective_depth import EffectiveDepth, effective_depth
from .measure import depth

__all__ = ["EffectiveDepth", "depth", "effective_depth"]
