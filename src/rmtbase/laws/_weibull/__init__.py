"""The Weibull probability-plot fit of weight magnitudes: its anchor for every parent law, and its sampling error."""

from rmtbase.laws._weibull import parents
from rmtbase.laws._weibull._anchor import WeibullAnchor, weibull_anchor
from rmtbase.laws._weibull._closure import WeibullClosure, weibull_closure
from rmtbase.laws._weibull._noise import (
    NoiseOptimum,
    weibull_noise_optimum,
    weibull_plot_noise,
    weibull_quantile_noise,
)
from rmtbase.laws._weibull._null import (
    LargeSampleLaw,
    WeibullNull,
    WeibullProductNull,
    WeibullScore,
    weibull_body_tail_gap,
    weibull_null,
    weibull_product_null,
)
from rmtbase.laws._weibull._projections import WeibullProjection, weibull_maximum_likelihood, weibull_moment_match

__all__ = [
    "LargeSampleLaw",
    "NoiseOptimum",
    "WeibullAnchor",
    "WeibullClosure",
    "WeibullNull",
    "WeibullProductNull",
    "WeibullProjection",
    "WeibullScore",
    "parents",
    "weibull_anchor",
    "weibull_body_tail_gap",
    "weibull_closure",
    "weibull_maximum_likelihood",
    "weibull_moment_match",
    "weibull_noise_optimum",
    "weibull_null",
    "weibull_plot_noise",
    "weibull_product_null",
    "weibull_quantile_noise",
]
