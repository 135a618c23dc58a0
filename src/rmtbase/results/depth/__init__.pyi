from ._depth_fitter import MAX_DEPTH, WIDEST_DRAW
from ._effective_depth import EffectiveDepth, effective_depth
from .measure import depth

__all__ = ["MAX_DEPTH", "WIDEST_DRAW", "EffectiveDepth", "depth", "effective_depth"]
