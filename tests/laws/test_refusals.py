"""What no law takes is refused by the name of the argument: a row for each argument, with values outside its domain."""

import math

import numpy as np
import pytest
from scipy import stats

from rmtbase import laws
from rmtbase.errors import ParameterError
from rmtbase.laws import parents

CHAIN = laws.GaussianChain(dims=(8, 4), normalization="none")
SPIKE = laws.RankOneSpike((64, 8, 64), normalization="none")
EDGE = laws.largest_eigenvalue(dims=(20, 8), normalization="none")
ADAMW = laws.AdamWNoise(1e-3, 0.1)
POLYNOMIAL = laws.trace_moment_polynomial((2,), ("d", "h", "d"))
NO_NUMBERS = (0.0, -1.0, math.nan, math.inf, True, "1", None)
NO_COUNTS = (0, -1, 2.5, True, None)
MIXTURES = [((), ()), ((parents.Normal(),), (1, 1))]


def kl(**changed):
    return laws.histogram_kl(100, 10, **({"bins": 10, "range": (-3.0, 3.0)} | changed))


def entropy(**changed):
    return laws.histogram_entropy(100, 10, **({"bins": 10, "range": (-3.0, 3.0)} | changed))


# What is refused, the call with a bad value, and values; the text is what the error says.
REFUSED = [
    ("learning_rate", lambda bad: laws.AdamWNoise(bad, 0.1), (0.0, -1e-3, math.nan)),
    ("weight_decay", lambda bad: laws.AdamWNoise(1e-3, bad), (0.0, math.inf, 200.0)),
    ("beta1", lambda bad: laws.AdamWNoise(1e-3, 0.1, bad), (1.0, -0.1, math.nan)),
    ("steps", ADAMW.std_after, (-1, 1.5, [3, -2], math.nan, True)),
    ("initial_std", lambda bad: ADAMW.std_after(10, bad), (-0.1, math.nan, math.inf, False, True)),
    ("spike_weight", laws.ContaminatedNormal, (-0.1, 1.1, math.nan)),
    ("sigma_bulk", lambda bad: laws.ContaminatedNormal(0.1, sigma_bulk=bad), (0.0, math.inf)),
    ("sigma_spike", lambda bad: laws.ContaminatedNormal(0.1, sigma_spike=bad), (-1.0, math.nan)),
    ("mean_spike", lambda bad: laws.ContaminatedNormal(0.1, mean_spike=bad), (math.inf,)),
    ("mean_bulk", lambda bad: laws.ContaminatedNormal(0.1, mean_bulk=bad), (math.nan,)),
    *(("bins", lambda bad, f=f: f(bins=bad), (*NO_COUNTS, -3)) for f in (kl, entropy)),
    *(("range", lambda bad, f=f: f(range=bad), ((1, 1), (2, -2), (0, math.inf), (math.nan, 1), (0,), None, "ab"))
      for f in (kl, entropy)),
    ("range", lambda bad: entropy(range=bad), ((50.0, 60.0),)),  # which holds no elements
    ("reference_sigma", lambda bad: kl(reference_sigma=bad), (0, -1.0, math.nan, math.inf, True)),
    ("k", lambda bad: laws.nearest_neighbour_entropy(8, 4, bad), (0, -1, 1.5, True, 64)),
    ("sigma", lambda bad: laws.nearest_neighbour_kl(8, 4, 1, reference_sigma=bad), (-1.0,)),
    ("d_head = 2: expected at least 3", lambda bad: laws.nearest_neighbour_kl(100, bad), (2,)),
    ("function", lambda bad: laws.element_average(bad, 8, 4), (lambda w: np.inf * w, lambda w: w[:-1], lambda w: 1.0)),
    ("partition", lambda bad: laws.trace_moment(bad, dims=(3, 3)), ((0,), (1.5,), (True,), 2)),
    ("powers", lambda bad: laws.trace_cumulant(bad, dims=(3, 3)), ((), (1, -1))),
    ("power", lambda bad: laws.trace_cumulants(bad, dims=(3, 3)), (0,)),
    ("third|variance", lambda bad: EDGE.with_log_cumulants(0.0, *bad),
     ((0.0, 0.0), (-1.0, 0.0), (math.nan, 0.0), (1e-4, 1.0), (1e-4, -1.0))),
    ("eigenvalue", lambda bad: laws.eigenvalue_displacement(bad, 0.0, d_model=32, d_head=8), (-1.0,)),
    ("excess_kurtosis", lambda bad: laws.eigenvalue_displacement(1.0, bad, d_model=32, d_head=8), (-2.1, [0.0] * 3)),
    ("finite", lambda bad: laws.eigenvalue_displacement(1.0, bad, d_model=32, d_head=8), (math.inf,)),
    ("sigma", laws.normal_entropy, (*NO_NUMBERS, [1.0, -2.0])),
    ("sigma =", lambda bad: laws.normal_kl(bad, 1.0), (*NO_NUMBERS, [1.0, -2.0])),
    ("sigma0", lambda bad: laws.normal_kl(1.0, bad), (*NO_NUMBERS, [1.0, -2.0])),
    ("mean =", lambda bad: laws.normal_kl(1.0, 1.0, bad), (math.nan, math.inf, True, "0")),
    ("mean0", lambda bad: laws.normal_kl(1.0, 1.0, 0.0, bad), (math.nan, math.inf, True, "0")),
    ("sigmas", lambda bad: laws.GaussianChain(dims=(4, 4), sigmas=bad), ((1e-200,),)),
    ("atom", lambda bad: laws.GaussianChain(dims=(4, 4), atom=bad), (1,)),
    ("k =", CHAIN.cumulant, (0, -1, 1.5, True, "2")),
    ("k =", CHAIN.free_cumulant, (0, -1, 1.5, True, "2")),
    ("atom", laws.GaussianChain(dims=(4, 8), atom=True, normalization="none").expect, (np.log, lambda x: 1.0 / x)),
    ("one finite number per eigenvalue", CHAIN.expect, (lambda x: 1.0, lambda x: x[:2], lambda x: x + np.inf)),
    ("statistic = 'median': expected one of mean, skew",
     lambda bad: laws.gaussian_sample_statistic(bad, 100), ("median",)),
    ("count = 19: expected at least 20 numbers", lambda bad: laws.gaussian_sample_statistic("mean", bad), (19,)),
    ("first", lambda bad: laws.HaarTrace(bad, [[1.0]], 4), ([1.0], [[1.0] * 5])),
    ("second", lambda bad: laws.HaarTrace([[1.0]], bad, 4), ([[1.0, -1.0]], [[np.nan]])),
    ("d_model", lambda bad: laws.HaarTrace([[1.0]], [[1.0]], bad), (0,)),
    ("index", laws.BesselEdge, (-0.5, 33, math.nan, True, "2")),
    ("functions", lambda bad: laws.linear_statistics(CHAIN, bad),
     ([], [lambda x: 1.0], [np.ones_like, lambda x: x[:2]], [lambda x: x + np.inf], [lambda x: np.nan * x])),
    ("law", lambda bad: laws.linear_statistics(bad, [np.sqrt]), ((8, 4), None, 1.0)),
    ("k = ", laws.LogDeterminant(dims=(8, 3)).cumulant, (0,)),
    ("k = ", laws.LogDeterminant(dims=(8, 3)).moment, (1.5,)),
    ("n_rows", lambda bad: laws.marchenko_pastur(bad, 3), (0,)),
    ("n_columns", lambda bad: laws.marchenko_pastur(3, bad), (0,)),
    ("sigma", lambda bad: laws.marchenko_pastur(3, 3, bad), (0,)),
    ("statistic", lambda bad: laws.null(bad, dims=(96, 16, 64)), ("spectral_gap",)),
    ("a product between", lambda bad: laws.null("trace_of_square", dims=(96, 16, 64), sigmas=bad), ((1e40, 1e40),)),
    ("a product between",
     lambda bad: laws.null("largest_eigenvalue", dims=(96, 16, 64), sigmas=bad), ((1e-60, 1e-60),)),
    *(("dims", lambda bad, name=name: laws.null(name, dims=bad, self_normalized=True), (dims,))
      for name, dims in (("trace", (96, 16)), ("trace_of_square", (9, 1, 9)), ("log_determinant", (9, 1, 9)))),
    ("^depth =", lambda bad: laws.PathLength(bad, 1.0), (0, 2.5)),
    ("^sigma =", lambda bad: laws.PathLength(2, bad), (0.0,)),
    ("k =", laws.PathLength(4, 0.5).squared_norm, (-1, 5, 1.0, True)),
    ("skewness", laws.TwoPoint, (math.nan, math.inf)),
    ("center", lambda bad: laws.TwoPoint(1.0, bad), (math.nan,)),
    ("scale", lambda bad: laws.TwoPoint(1.0, 0.0, bad), (0.0, -1.0)),
    ("d_head", laws.ProductElement, (*NO_COUNTS, "8", math.nan)),
    ("scale", lambda bad: laws.ProductElement(8, bad), NO_NUMBERS),
    *((f"^{name} =", lambda bad: laws.residual_trace_moments(*bad), (bad,))
      for name, bad in (("depth", (0, 1.0, 4)), ("sigma", (1, -1.0, 4)), ("d_model", (1, 1.0, 0)))),
    ("^depth =", lambda bad: laws.ResidualPath(bad, 1.0), (0, -3, 2.0)),
    ("^sigma =", lambda bad: laws.ResidualPath(3, bad), (0.0, -1.0, math.nan, math.inf, 1e-101, 1e101)),
    (r"^t =", laws.FreeMultiplicativeBrownian, (0.0, -1.0, math.nan, math.inf, True, "x", 1e-201, 1e7)),
    ("^depth =", lambda bad: laws.ResidualUpdate(bad, 1.0), (0,)),
    ("^sigma =", lambda bad: laws.ResidualUpdate(*bad), ((3, 1e-8), (1, 21.0), (1000, 1.0))),
    ("factor", lambda bad: laws.RankOneSpike(dims=(768, 64, 768), factor=bad), (2, -1, True, 0.0)),
    *(("strength", getattr(SPIKE, name), (-1.0, math.inf, [1.0, -0.1]))
      for name in ("eigenvalue", "eigenvalue_std", "overlaps", "power")),
    ("level", lambda bad: SPIKE.power(1.0, level=bad), (0.0, 1.0, -0.1, math.nan, True, "0.5")),
    ("power", lambda bad: SPIKE.detectable_strength(power=bad), (0.0, 1.0, -0.1, math.nan, True, "0.5")),
    ("more than level", lambda bad: SPIKE.detectable_strength(power=bad), (0.04,)),
    ("symbols", lambda bad: laws.trace_moment_polynomial((2,), bad), ("dh", ("d",), ("d", "2h"), ("d", 3), 7)),
    ("partition", lambda bad: laws.trace_moment_polynomial(bad, ("d", "h", "d")), ((0,),)),
    ("^dims =", lambda bad: POLYNOMIAL(**bad), ({"d": 3}, {"d": 3, "h": 2, "n": 1})),
    ("^h =", lambda bad: POLYNOMIAL(d=3, h=bad), (0, 1.5)),
    ("beta", laws.TracyWidom, (0, 3, 4, 1.5, True, "1", None)),
    ("trim", laws.weibull_anchor, (-0.1, 0.5, 1, math.nan, math.inf, True, "0.1", None, 0.1j)),
    ("trim", lambda bad: laws.weibull_product_null(8, 4, bad), (0.5, True)),
    (r"'normal', 'uniform'.*StudentT\(df=4\)", lambda bad: laws.weibull_anchor(0.1, bad), ("gauss", "student_t")),
    ("^distribution = .*: expected a text or a Parent",
     lambda bad: laws.weibull_anchor(0.1, bad), (None, 3, stats.norm())),
    ("digits", lambda bad: laws.weibull_anchor(digits=bad), (0, -1, 2.5, True, "15", None)),
    ("digits", laws.weibull_noise_optimum, (0, -3, 1.5, True)),
    ("sigma", parents.Normal, (*NO_NUMBERS, 1e60)),
    ("df", lambda bad: parents.StudentT(df=bad), (0, -1, 0.01, 1e6, math.nan)),
    ("bound", lambda bad: parents.TruncatedNormal(bound=bad), (0, -2, 100, math.inf)),
    ("h", lambda bad: parents.VarianceGamma(h=bad), NO_COUNTS),
    ("weights", lambda bad: parents.Mixture(*bad), MIXTURES),
    (r"weights\[0\]", lambda bad: parents.Mixture((parents.Normal(),), (bad,)), (0,)),
    (r"components\[0\]", lambda bad: parents.Mixture((bad,), (1,)), ("normal",)),
    ("^body =", lambda bad: laws.weibull_body_tail_gap("normal", *bad), ((0.1, 0.1), (0.0, 0.1), (0.5, 0.0))),
    ("^full =", lambda bad: laws.weibull_body_tail_gap("normal", 0.1, bad), (-0.1,)),
    ("n = ", laws.LargeSampleLaw(1.0, 1.0).std, (*NO_COUNTS, 1.5)),
]  # fmt: skip


@pytest.mark.parametrize(("match", "call", "values"), REFUSED)
def test_what_is_outside_a_domain_is_refused_by_name(match, call, values):
    for bad in values:
        with pytest.raises(ParameterError, match=match):
            call(bad)
