"""Comparison: models beside each other, and beside what was published."""

from rmtbase.comparison._classes import (
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
from rmtbase.comparison._common_origin import CommonOrigin, common_origin, fingerprint
from rmtbase.comparison._compare import compare
from rmtbase.comparison._csv import comparison_csv, published_csv
from rmtbase.comparison._diagnose import WEIBULL, diagnose, shape_drift, weibull_scales
from rmtbase.comparison._first_principles import Expected, PublishedCheck, checks, our_name
from rmtbase.comparison._groups import BetweenGroups, TwoGroups, between_groups, compare_groups
from rmtbase.comparison._initial_recipe import RECIPES, InitialSigmas, initial_sigmas
from rmtbase.comparison._measures import HEADLINES, measures_of
from rmtbase.comparison._paired_growth import PairedGrowth, built_in_correlation, paired_growth
from rmtbase.comparison._published import Interval, PublishedTable, printed_interval, published_table, published_tables
from rmtbase.comparison._scale_law import ScaleLaw, scale_law
from rmtbase.comparison._shape_band import ShapeBand, shape_band
from rmtbase.comparison._summary import not_testable_of, summarize_comparison
from rmtbase.comparison._training_budget import Training, budget_state
from rmtbase.comparison._two_models import TwoModels, compare_two

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
    "Expected",
    "InitialSigmas",
    "Interval",
    "PairedGrowth",
    "PublishedCheck",
    "PublishedTable",
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
    "checks",
    "common_origin",
    "compare",
    "compare_groups",
    "compare_two",
    "comparison_csv",
    "diagnose",
    "fingerprint",
    "initial_sigmas",
    "measures_of",
    "not_testable_of",
    "our_name",
    "paired_growth",
    "printed_interval",
    "published_class",
    "published_csv",
    "published_table",
    "published_tables",
    "scale_law",
    "shape_band",
    "shape_drift",
    "significant_class",
    "summarize_comparison",
    "weibull_scales",
]
