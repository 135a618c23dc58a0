"""What a table of the elements of random matrices holds."""

from __future__ import annotations

from rmtbase.tables._domain import NAMES, NON_NEGATIVE_OR_NAN, POSITIVE_OR_NAN, PROBABILITY, SIZE, SIZE_OR_NAN
from rmtbase.tables._schema import BASELINE_SCHEMA, OF_ANY_ENSEMBLE, Variable

_CASE = ("case",)
_OF_W_QK = "of W_QK; NaN for any other ensemble"

ELEMENTS_SCHEMA: dict[str, Variable] = {
    **OF_ANY_ENSEMBLE,
    "name": Variable(_CASE, "ensemble with its parameters, as it keys the draws", domain=NAMES),
    "n_rows": Variable(_CASE, "rows of the matrix", domain=SIZE),
    "n_columns": Variable(_CASE, "columns of the matrix", domain=SIZE),
    "d_model": Variable(_CASE, f"width of the residual stream d, {_OF_W_QK}", domain=SIZE_OR_NAN, since="1.2"),
    "d_head": Variable(_CASE, f"head dimension h, {_OF_W_QK}", domain=SIZE_OR_NAN, since="1.2"),
    "sigma_q": Variable(
        _CASE, f"standard deviation of the elements of W_Q, {_OF_W_QK}", domain=POSITIVE_OR_NAN, since="1.2"
    ),
    "sigma_k": Variable(
        _CASE, f"standard deviation of the elements of W_K, {_OF_W_QK}", domain=POSITIVE_OR_NAN, since="1.2"
    ),
    "bin_edge": Variable(
        ("case", "edge"), "edges of the histogram bins in w", domain=BASELINE_SCHEMA["bin_edge"].domain
    ),
    "density": Variable(
        ("case", "bin"),
        "Monte Carlo density of the elements, bin average",
        "1/w",
        domain=BASELINE_SCHEMA["density"].domain,
    ),
    "density_standard_error": Variable(
        ("case", "bin"),
        "standard error of the density, from the spread between draws",
        "1/w",
        domain=BASELINE_SCHEMA["density_standard_error"].domain,
    ),
    "density_law": Variable(
        ("case", "bin"),
        "bin average of the law of one element, NaN where none is offered",
        "1/w",
        domain=NON_NEGATIVE_OR_NAN,
    ),
    "share_outside": Variable(_CASE, "share of the elements that lie in no bin", domain=PROBABILITY),
}
"""The variables of a table of elements w, as the ensemble draws them: of W_QK the raw product at sigma = 1."""

ELEMENT_FORMULAS: dict[str, str] = {
    "mean": "m = sum w / N",
    "std": "s = sqrt(sum (w - m)^2 / (N - 1))",
    "skewness": "m3 / m2^(3/2), mk = sum (w - m)^k / N",
    "excess_kurtosis": "m4 / m2^2 - 3",
    "largest_magnitude": "max |w - m| / s",
    "histogram_entropy": "-sum p ln(p / width), p the shares of the bins",
    "histogram_kl": "sum p ln(p / q), q the shares of N(0, sum w^2 / N)",
    "weibull_shape": "k, slope of ln(-ln(1 - (i - 1/2)/N)) on ln |w|_(i), middle 80 %",
    "weibull_scale": "exp(mean X - mean Y / k) of the same line",
    "weibull_r_squared": "R^2 of the same line",
}
"""The statistics of the elements w of one matrix, in the order of the tables, with their formulas."""
