from ._findings import Training, budget_state, built_in_correlation, paired_growth, scale_law, shape_band
from ._matrices import (
    SELECTION,
    TRANSMISSION,
    InitialSigmas,
    attention_class,
    attention_classes,
    initial_sigmas,
    shape_drift,
    weibull_scales,
)
from .measure import compare
from .schema import PairedGrowth, ScaleLaw, ShapeBand

__all__ = [
    "SELECTION",
    "TRANSMISSION",
    "InitialSigmas",
    "PairedGrowth",
    "ScaleLaw",
    "ShapeBand",
    "Training",
    "attention_class",
    "attention_classes",
    "budget_state",
    "built_in_correlation",
    "compare",
    "initial_sigmas",
    "paired_growth",
    "scale_law",
    "shape_band",
    "shape_drift",
    "weibull_scales",
]
