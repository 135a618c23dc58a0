from ._classes import (
    FUSED,
    READS,
    SELECTION,
    TRANSMISSION,
    WRITES,
    attention_class,
    attention_classes,
    published_class,
    significant_class,
)
from ._common_origin import CommonOrigin, common_origin, fingerprint
from ._diagnose import RECIPES, WEIBULL, InitialSigmas, diagnose, initial_sigmas, shape_drift, weibull_scales
from ._groups import BetweenGroups, TwoGroups, between_groups, compare_groups
from ._measures import HEADLINES, measures_of
from ._paired_growth import PairedGrowth, built_in_correlation, paired_growth
from ._scale_law import ScaleLaw, scale_law
from ._shape_band import ShapeBand, shape_band
from ._training_budget import Training, budget_state
from ._two_models import TwoModels, compare_two
from .measure import compare
from .summary import not_testable_of, summarize_comparison

__all__ = [
    "FUSED",
    "HEADLINES",
    "READS",
    "RECIPES",
    "SELECTION",
    "TRANSMISSION",
    "WEIBULL",
    "WRITES",
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
    "fingerprint",
    "initial_sigmas",
    "measures_of",
    "not_testable_of",
    "paired_growth",
    "published_class",
    "scale_law",
    "shape_band",
    "shape_drift",
    "significant_class",
    "summarize_comparison",
    "weibull_scales",
]
