from ._classes import SELECTION, TRANSMISSION, attention_class, attention_classes
from ._matrices import InitialSigmas, initial_sigmas, shape_drift, weibull_scales
from ._paired_growth import PairedGrowth, built_in_correlation, paired_growth
from ._scale_law import ScaleLaw, scale_law
from ._shape_band import ShapeBand, shape_band
from ._training_budget import Training, budget_state
from .measure import compare

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
