"""Schemas of the tables of draws: the baseline, spectra and elements of any ensemble, and the atlas."""

from dataclasses import replace
from functools import partial

from rmtbase.tables._schema import BIN_CENTER, Variable
from rmtbase.tables.domain import (
    ANY,
    COUNT,
    DRAWS,
    EDGES,
    FALLING,
    FINITE,
    FINITE_OR_NAN,
    NAMES,
    NON_NEGATIVE,
    NON_NEGATIVE_OR_NAN,
    ORDER,
    POSITIVE,
    POSITIVE_OR_NAN,
    PROBABILITY,
    RISING,
    SIZE,
    SIZE_OR_NAN,
    SPREAD,
    TEXT,
)

_case = partial(Variable, ("case",))
_statistic = partial(Variable, ("case", "statistic"))
_quantile = partial(Variable, ("case", "statistic", "probability"))
_eigenvalue = partial(Variable, ("case", "index"))
_eigenvalue_quantile = partial(Variable, ("case", "index", "probability"))
_edges = partial(Variable, ("case", "edge"), domain=EDGES)
_density = partial(Variable, ("case", "bin"), units="1/lambda")
_w_density = partial(Variable, ("case", "bin"), units="1/w")
_of_a_draw = partial(Variable, ("case", "draw"), domain=POSITIVE, part="sample")
_FROM_ORDER = "from order statistics; NaN where fewer than 10 draws are expected on either side"

BASELINE_SCHEMA: dict[str, Variable] = {
    "d_model": _case("width of the residual stream d", SIZE),
    "d_head": _case("head dimension h, the rank of W_QK", SIZE),
    "sigma_q": _case("standard deviation of the elements of W_Q", POSITIVE),
    "sigma_k": _case("standard deviation of the elements of W_K", POSITIVE),
    "mean": _statistic("Monte Carlo mean, NaN where there is none", FINITE_OR_NAN),
    "std": _statistic("Monte Carlo standard deviation of one draw, NaN where there is none", NON_NEGATIVE_OR_NAN),
    "standard_error": _statistic("standard error of the Monte Carlo mean, NaN where std is", NON_NEGATIVE_OR_NAN),
    "std_standard_error": _statistic(
        "standard error of the Monte Carlo standard deviation, NaN where the fourth moment is infinite",
        NON_NEGATIVE_OR_NAN,
    ),
    "moment_order": _statistic(
        "order from which on the moments E|x|^p are infinite, below which they are finite: there is no mean where it "
        "is at most 1, no std where it is at most 2; of a condition number (g + 1)/2, of singular values g + 1, with "
        "the two smallest dimensions g apart",
        ORDER,
    ),
    "quantile": _quantile("Monte Carlo quantile", replace(FINITE, order="rising")),
    "quantile_standard_error": _quantile(f"standard error of the quantile, {_FROM_ORDER}", NON_NEGATIVE_OR_NAN),
    "analytic_mean": _statistic("analytic mean, NaN where no formula is offered"),
    "analytic_std": _statistic("analytic standard deviation, NaN where no formula is offered", SPREAD),
    "analytic_mean_tolerance": _statistic(
        "largest error of analytic_mean: 0 where exact, NaN where not stated", SPREAD
    ),
    "analytic_std_tolerance": _statistic("largest error of analytic_std: 0 where exact, NaN where not stated", SPREAD),
    "analytic_method": _statistic("how the analytic value is known, with its accuracy", TEXT),
    "sample": Variable(("case", "statistic", "draw"), "the statistic of each draw", FINITE, part="sample"),
    "sigma_q_estimate": _of_a_draw("each draw's own estimate of sigma_Q, sqrt(|W_Q|_F^2 / (d h))"),
    "sigma_k_estimate": _of_a_draw("each draw's own estimate of sigma_K, sqrt(|W_K|_F^2 / (d h))"),
    "eigenvalue_mean": _eigenvalue("mean of the ordered eigenvalue; NaN where infinite, and from d_head on", FALLING),
    "eigenvalue_mean_standard_error": _eigenvalue(
        "standard error of the mean of the ordered eigenvalue; NaN where eigenvalue_std is", SPREAD
    ),
    "eigenvalue_std": _eigenvalue(
        "standard deviation of the ordered eigenvalue; NaN where infinite, and from d_head on", SPREAD
    ),
    "eigenvalue_std_standard_error": _eigenvalue(
        "standard error of the standard deviation of the ordered eigenvalue; NaN where its fourth moment is infinite, "
        "and from d_head on",
        SPREAD,
    ),
    "eigenvalue_quantile": _eigenvalue_quantile(
        "quantile of the ordered eigenvalue; padded with NaN from d_head on", RISING
    ),
    "eigenvalue_quantile_standard_error": _eigenvalue_quantile(
        f"standard error of the quantile of the ordered eigenvalue, {_FROM_ORDER}, and from d_head on", SPREAD
    ),
    "eigenvalue_quantile_self_normalized": _eigenvalue_quantile(
        "quantile of the ordered eigenvalue after rescaling each draw by sigma^4 over its own estimate of it; "
        "padded with NaN from d_head on",
        RISING,
    ),
    "eigenvalue_quantile_self_normalized_standard_error": _eigenvalue_quantile(
        f"standard error of eigenvalue_quantile_self_normalized, {_FROM_ORDER}, and from d_head on", SPREAD
    ),
    "bin_edge": _edges("edges of the histogram bins in lambda"),
    "bin_center": BIN_CENTER,
    "density": _density("Monte Carlo density of the nonzero eigenvalues, bin average", NON_NEGATIVE),
    "density_standard_error": _density("standard error of the density, from the spread between draws", NON_NEGATIVE),
    "density_marchenko_pastur": _density(
        "bin average of the Marchenko-Pastur density with edges d sigma^4 (1 +- sqrt(gamma))^2, often quoted for "
        "W_QK but the law of a single factor: too narrow",
        NON_NEGATIVE,
    ),
    "density_free": _density("bin average of the free-product density, the limit of W_QK's spectrum", NON_NEGATIVE),
    "edge_lower": _case("lower edge of the free-product law", NON_NEGATIVE),
    "edge_upper": _case("upper edge of the free-product law", POSITIVE),
    "draws": _case("number of draws", DRAWS),
}
"""Variables of a baseline file, all dimensionless. Eigenvalues are those of matrices whose elements have the case's
sigma_q and sigma_k, divided by d_model if the file's ``normalization`` is ``sqrt_d``."""

OF_ANY_ENSEMBLE: dict[str, Variable] = {
    **{name: BASELINE_SCHEMA[name] for name in ("draws", "moment_order")},
    **{name: variable for name, variable in BASELINE_SCHEMA.items() if name.startswith("analytic_")},
    **{name: replace(BASELINE_SCHEMA[name], domain=ANY) for name in ("mean", "sample")},
    **{
        name: replace(BASELINE_SCHEMA[name], domain=SPREAD)
        for name in ("std", "standard_error", "std_standard_error", "quantile_standard_error")
    },
    "quantile": replace(BASELINE_SCHEMA["quantile"], domain=RISING),
}
"""Variables of statistics of draws of any matrix; some values may be NaN or infinite, if an eigenvalue is rounding
noise or a power overflows."""

SPECTRA_SCHEMA: dict[str, Variable] = {
    **OF_ANY_ENSEMBLE,
    **{
        name: BASELINE_SCHEMA[name]
        for of in ("eigenvalue_mean", "eigenvalue_std", "eigenvalue_quantile")
        for name in (of, f"{of}_standard_error")
    },
    **{name: BASELINE_SCHEMA[name] for name in ("bin_edge", "bin_center", "density", "density_standard_error")},
    "name": _case("ensemble with its parameters, as it keys the draws", NAMES),
    "rank": _case("number of structurally nonzero eigenvalues", SIZE),
    "density_law": _density("bin average of the limiting law's density, NaN where none is known", NON_NEGATIVE_OR_NAN),
    "edge_lower": _case("lower edge of the limiting law, NaN where none is known", SPREAD),
    "edge_upper": _case("upper edge of the limiting law, NaN where none is known", SPREAD),
    # The part that a table lacks if it was not made for a null.
    "scale_estimate": _of_a_draw("each draw's own estimate of prod sigma^2", part="null"),
    **{
        name: replace(BASELINE_SCHEMA[name], part="null")
        for name in ("eigenvalue_quantile_self_normalized", "eigenvalue_quantile_self_normalized_standard_error")
    },
}
"""Variables of a table of spectra of any ensemble: λ of the raw matrix, each factor as the ensemble draws it. Each
parameter of the ensemble is a coordinate, such as ``parameter_depth(case)``."""

_OF_W_QK = "of W_QK; NaN for any other ensemble"

ELEMENTS_SCHEMA: dict[str, Variable] = {
    **OF_ANY_ENSEMBLE,
    "name": _case("ensemble with its parameters, as it keys the draws", NAMES),
    "n_rows": _case("rows of the matrix", SIZE),
    "n_columns": _case("columns of the matrix", SIZE),
    "d_model": _case(f"width of the residual stream d, {_OF_W_QK}", SIZE_OR_NAN),
    "d_head": _case(f"head dimension h, {_OF_W_QK}", SIZE_OR_NAN),
    "sigma_q": _case(f"standard deviation of the elements of W_Q, {_OF_W_QK}", POSITIVE_OR_NAN),
    "sigma_k": _case(f"standard deviation of the elements of W_K, {_OF_W_QK}", POSITIVE_OR_NAN),
    "bin_edge": _edges("edges of the histogram bins in w"),
    "bin_center": Variable(("case", "bin"), "element w, centre of the bin", EDGES),
    "density": _w_density("Monte Carlo density of the elements, bin average", NON_NEGATIVE),
    "density_standard_error": _w_density("standard error of the density, from the spread between draws", NON_NEGATIVE),
    "density_law": _w_density("bin average of the law of one element, NaN where none is offered", NON_NEGATIVE_OR_NAN),
    "share_outside": _case("share of the elements that lie in no bin", PROBABILITY),
    "share_outside_standard_error": _case(
        "standard error of share_outside, from the spread between draws; 0 where none of them has any", NON_NEGATIVE
    ),
}  #: Variables of a table of elements w as the ensemble draws them; for W_QK, the raw product at sigma = 1

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
}  #: Statistics of the elements w of one matrix, in the order of the tables, with their formulas

_SELF = "each draw at its own estimate of sigma"

ATLAS_SCHEMA: dict[str, Variable] = {
    "d_model": _case("width of the residual stream d", SIZE),
    "d_head": _case("head dimension h, the rank of W_QK", SIZE),
    "draws": _case("number n of Monte Carlo draws", DRAWS),
    "mean": _statistic("Monte Carlo mean at sigma = 1", FINITE),
    "std": _statistic("Monte Carlo standard deviation of one draw at sigma = 1", POSITIVE),
    "standard_error": _statistic("standard error of the Monte Carlo mean at sigma = 1", POSITIVE),
    "quantile": _quantile("Monte Carlo quantile at sigma = 1", RISING),
    "mean_self_normalized": _statistic(f"Monte Carlo mean, {_SELF}", FINITE),
    "std_self_normalized": _statistic(f"Monte Carlo standard deviation of one draw, {_SELF}", POSITIVE),
    "quantile_self_normalized": _quantile(f"Monte Carlo quantile, {_SELF}", RISING),
    "distance_center": _statistic(
        f"mean on the distance scale (ln x where x > 0 has no upper bound, else x), {_SELF}", FINITE
    ),
    "distance_spread": _statistic(f"standard deviation on the distance scale, {_SELF}", POSITIVE),
    "order_statistic_lower": Variable(
        ("case", "statistic", "rank"),
        f"rank-th smallest of the n draws, {_SELF}, on the distance scale less distance_center over distance_spread, "
        "rounded down by less than 2^-16; NaN beyond the middle",
        RISING,
    ),
    "order_statistic_upper": Variable(
        ("case", "statistic", "rank"),
        "as order_statistic_lower, the rank-th largest, rounded up",
        replace(RISING, words="numbers in falling order, or NaN", order="falling"),
    ),
    "largest_distance": Variable(
        ("case", "rank"),
        "rank-th largest, over the n draws, of the largest |x - distance_center| / distance_spread of any statistic, "
        "rounded up by less than 2^-16; NaN beyond n",
        FALLING,
    ),
    "eigenvalue_mean": _eigenvalue("mean of the ordered eigenvalue at sigma = 1; NaN from d_head on", FALLING),
    "eigenvalue_quantile_self_normalized": _eigenvalue_quantile(
        f"quantile of the ordered eigenvalue, {_SELF}, to within 1/512 of its standard deviation; NaN from d_head on",
        RISING,
    ),
    "density": _density(
        "Monte Carlo density of the nonzero eigenvalues at sigma = 1, bin average; the edges are those of "
        "rmtbase.laws.histogram_edges",
        NON_NEGATIVE,
    ),
    "density_standard_error": _density("standard error of the density, from the spread between draws", NON_NEGATIVE),
    "checksum": _case(
        "63 bits of the SHA-256 of all else that the case holds, as rmtbase.tables.with_checksums takes it", COUNT
    ),
}
"""Variables of the atlas, which has many shapes of the raw product, each in a few kilobytes. ``rank`` counts from the
end that a variable names: one by one at first, then in steps that keep a p-value from the kept ranks within 3 % of the
full sample's."""
