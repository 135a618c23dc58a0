from ._classes import SELECTION, TRANSMISSION, attention_class, attention_classes
from ._common_origin import CommonOrigin, common_origin
from ._diagnose import InitialSigmas, diagnose, initial_sigmas, shape_drift, weibull_scales
from ._groups import BetweenGroups, TwoGroups, between_groups, compare_groups
from ._paired_growth import PairedGrowth, built_in_correlation, paired_growth
from ._scale_law import ScaleLaw, scale_law
from ._shape_band import ShapeBand, shape_band
from ._training_budget import Training, budget_state
from ._two_models import TwoModels, compare_two
from .measure import compare
from .summary import summarize_comparison

__all__ = [
    "SELECTION",
    "TRANSMISSION",
    "BetweenGroups",
    "CommonOrigin",
    "InitialSigmas",
    "PairedGrowth",
    "ScaleLaw",
    "ShapeBand",
    "Training",
    "TwoGroups",
    "TwoModels",
    "attention_class",
    "attention_classes",
    "between_groups",
    "budget_state",
    "built_in_correlation",
    "common_origin",
    "compare",
    "compare_groups",
    "compare_two",
    "diagnose",
    "initial_sigmas",
    "paired_growth",
    "scale_law",
    "shape_band",
    "shape_drift",
    "summarize_comparison",
    "weibull_scales",
]
