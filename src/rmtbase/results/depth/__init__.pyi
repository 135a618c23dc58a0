from ._depth_fitter import MAX_DEPTH, WIDEST_DRAW, DepthFitter, depth_fitter
from ._effective_depth import EffectiveDepth, effective_depth
from .measure import depth

__all__ = [
    "MAX_DEPTH",
    "WIDEST_DRAW",
    "DepthFitter",
    "EffectiveDepth",
    "depth",
    "depth_fitter",
    "effective_depth",
]
