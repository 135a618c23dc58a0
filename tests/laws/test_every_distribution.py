"""Every law keeps the same promises: a class is tested by being registered here, and a test fails while one is not."""

import inspect
import math
import re

import numpy as np
import pytest
from scipy.special import ndtr

from exhaustive import mostly_exhaustive
from rmtbase import laws
from rmtbase.errors import ParameterError
from rmtbase.laws import DiscreteDistribution, Distribution, parents
from rmtbase.laws._distribution import StatedLaw
from rmtbase.laws._element._product_sum import ProductSum

SHAPE = (96, 16, 48)
REGISTERED: list[Distribution] = [
    laws.GaussianChain((768, 64, 768), normalization="none"), laws.GaussianChain((8, 8, 8), normalization="none"),
    laws.GaussianChain((12, 8, 16), (0.5, 2.0), normalization="sqrt_d", atom=True), laws.ResidualPath(10, 0.3),
    laws.ResidualPath(3, 2.0), laws.ResidualPath(5, 0.3).log_eigenvalue, laws.ResidualUpdate(3, 0.6),
    laws.FreeMultiplicativeBrownian(1.0), laws.PathLength(10, 0.7), laws.TracyWidom(1), laws.TracyWidom(2),
    laws.largest_eigenvalue(dims=SHAPE, normalization="none"),
    laws.smallest_eigenvalue(dims=SHAPE, self_normalized=True, normalization="none"), laws.BesselEdge(2),
    laws.smallest_eigenvalue(dims=(24, 16, 16), normalization="none"),
    laws.smallest_eigenvalue(dims=(20, 16, 24), self_normalized=True, normalization="none"),
    laws.LogDeterminant(dims=SHAPE, normalization="none"),
    laws.LogDeterminant(dims=SHAPE, self_normalized=True, normalization="none"), laws.ProductElement(3),
    laws.ProductElement(64, 0.1), laws.ContaminatedNormal(0.1, 2.5, 0.7, 0.2, -0.3),
    laws.ContaminatedNormal(0.05, sigma_spike=3.0), laws.ContaminatedNormal(1.0, 2.0, 1.0, 0.5),
    laws.ContaminatedNormal(0.2, 1.0, 0.5), laws.TwoPoint(0.7, 1.0, 2.0),
    *(laws.gaussian_sample_statistic(name, 200) for name in ("mean", "skewness", "excess_kurtosis")),
    laws.gaussian_sample_statistic("largest_magnitude", 200),
    *(laws.null(name, dims=dims, normalization="none") for dims in (SHAPE, (40, 16), (24, 8, 30, 20))
      for name in laws.NULL_STATISTICS),
    *(laws.null(name, dims=SHAPE).distribution for name in ("trace", "stable_rank", "condition_number",
      "participation_ratio", "spectral_entropy", "effective_rank")),
    laws.null("condition_number", dims=(22, 16, 22)).distribution,
    laws.null("stable_rank", dims=SHAPE, excess_kurtosis=-1.2).distribution,
    *(laws.null(name, dims=SHAPE).distribution.law for name in ("participation_ratio", "effective_rank",
      "stable_rank")),
    laws.null("condition_number", dims=SHAPE).distribution.powers[0], laws.element_null("weibull_shape", 1000),
    *(laws.element_null(name, 1000).distribution for name in ("weibull_shape", "weibull_r_squared",
      "kde_entropy_residual", "max_to_q99", "log10_tail_probability")),
    *(laws.element_null(name, 5000).distribution for name in ("weibull_r_squared", "kde_entropy_residual")),
    laws.element_null("log10_tail_probability", 1000).distribution.log_hazard,
    laws.element_null("largest_magnitude", 1000).distribution,
    laws.element_null("largest_magnitude", 1000, "uniform").distribution,
    laws.product_element_null("largest_magnitude", 96, 16, 48).distribution, parents.Normal(0.02), parents.Uniform(),
    parents.TruncatedNormal(1.0, 2.0), parents.Laplace(), parents.Logistic(3.0), parents.StudentT(1.0, 30.0),
    parents.VarianceGamma(1.0, 64), ProductSum(parents.Uniform(), 16),
    parents.Mixture((parents.Normal(), parents.Laplace(3.0)), (1.0, 2.0)),
]  # fmt: skip
CONTINUOUS = [law for law in REGISTERED if not isinstance(law, DiscreteDistribution)]
SMOOTH = [law for law in CONTINUOUS if not getattr(law, "atom_mass", 0.0)]
# Whose moments are known otherwise than as the moments of its cdf, and how far the two lie apart.
FITTED = {
    "SampleStatisticLaw": 0.05,
    **dict.fromkeys(("NullLaw", "EdgeRatio", "ElementNull", "OnScale", "TailProbability"), 0.01),
    **dict.fromkeys(("NormalMaximum", "ProductMaximum"), 3e-5), "LargestMagnitude": 3e-4, "MendedLaw": 1e-4,
    **dict.fromkeys(("LogPearson3", "EdgePower"), 1e-6),
}  # fmt: skip
Q = np.array([1e-6, 1e-3, 0.1, 0.4, 0.5, 0.75, 0.9, 0.9999])


def _name(law: Distribution) -> str:
    """Its repr without addresses: the same in every process."""
    return re.sub(r" object at 0x\w+", "", repr(law))


FIRST = list({type(law): law for law in reversed(REGISTERED)}.values())
"""One law of each class; the others, at other parameters, are exhaustive."""
QUICK = [law for law in FIRST if type(law).__name__ not in ("LargestToQuantile", "Pearson3Mixture", "TailProbability")]
every_law, every_continuous_law, every_smooth_law = (
    pytest.mark.parametrize("law", mostly_exhaustive(laws, always=FIRST), ids=_name)
    for laws in (REGISTERED, CONTINUOUS, SMOOTH)
)


def _concrete(kind):
    for child in kind.__subclasses__():
        if child.__module__.startswith("rmtbase.") and not inspect.isabstract(child):
            yield child
        yield from _concrete(child)


def test_every_law_is_registered():
    # A stated law is abstract: it has no law of its own.
    assert set(_concrete(Distribution)) - {StatedLaw} == {type(law) for law in REGISTERED}


@every_law
def test_cdf_sf_quantiles_and_p_values_are_of_one_law_on_its_support(law):
    low, high = law.support
    assert low < high
    x = np.concatenate([law.ppf(Q), law.isf(Q)])
    np.testing.assert_allclose(law.cdf(x) + law.sf(x), 1.0, rtol=0, atol=1e-9)
    assert (np.diff(law.cdf(np.sort(x))) >= -1e-12).all()
    np.testing.assert_array_equal(law.cdf([-np.inf, np.inf]), [0.0, 1.0])
    np.testing.assert_array_equal(law.sf([-np.inf, np.inf]), [1.0, 0.0])
    beyond = np.nextafter(high, np.inf) if math.isfinite(high) else np.inf
    assert law.cdf(beyond) == 1.0 and law.pdf(beyond) == 0.0
    quantile = law.ppf(Q)
    assert (law.cdf(quantile) >= Q * (1 - 1e-8)).all()
    assert (law.cdf(quantile - 1e-6 * law.std()) <= Q * (1 + 1e-8)).all()
    assert (law.sf(law.isf(Q)) <= Q * (1 + 1e-8)).all()
    if not getattr(law, "atom_mass", 0.0):
        np.testing.assert_array_equal(law.ppf([0.0, 1.0]), [low, high])
        np.testing.assert_array_equal(law.isf([1.0, 0.0]), [low, high])
    assert np.isnan(law.ppf([-0.1, 1.1, np.nan])).all() and np.isnan(law.isf([-0.1, 1.1, np.nan])).all()
    x = law.ppf([0.01, 0.4, 0.6, 0.99])
    np.testing.assert_allclose(law.p_value(x), np.minimum(1.0, 2.0 * np.minimum(law.cdf(x), law.sf(x))), rtol=1e-12)


@every_smooth_law
def test_quantiles_invert_both_tails_and_the_density_is_the_derivative_of_the_cdf(law):
    np.testing.assert_allclose(law.cdf(law.ppf(Q)), Q, rtol=1e-8)
    np.testing.assert_allclose(law.sf(law.isf(Q)), Q, rtol=1e-8)
    # isf(q) = ppf(1 - q), as masses: 1 - q is rounded.
    np.testing.assert_allclose(law.cdf(law.isf(Q)), law.cdf(law.ppf(1.0 - Q)), rtol=0, atol=1e-12)
    assert (np.diff(law.ppf(Q)) > 0.0).all() and (np.diff(law.isf(Q)) < 0.0).all()
    x = law.ppf(Q[2:-1])
    step = 0.01 * (law.ppf(1.1 * Q[2:-1]) - x)
    slope = (8 * (law.cdf(x + step) - law.cdf(x - step)) - law.cdf(x + 2 * step) + law.cdf(x - 2 * step)) / (12 * step)
    np.testing.assert_allclose(law.pdf(x), slope, rtol=1e-6)


@pytest.mark.parametrize(
    "law",
    [
        laws.LogDeterminant((24, 8, 24), normalization="none"),
        laws.LogDeterminant((24, 8, 24), self_normalized=True, normalization="none"),
        *(laws.ProductElement(h) for h in (1, 2, 3, 16, 1024, 16384)),
        *(laws.TracyWidom(beta) for beta in (1, 2)),
    ],
    ids=_name,
)
def test_quantiles_invert_both_tails_far_out(law):
    q = np.concatenate([10.0 ** -np.arange(1, 300, 13.0), np.linspace(0.01, 0.99, 50)])
    # Rounding of x itself is worth 1e-15 times the slope of ln q, in the units of x: too much next to an end.
    above = q if math.isinf(law.support[1]) else q[q > 1e-101]
    np.testing.assert_allclose(law.cdf(law.ppf(q)), q, rtol=1e-10)
    np.testing.assert_allclose(law.sf(law.isf(above)), above, rtol=1e-10)


@every_continuous_law
def test_the_density_integrates_to_the_mass_between_quantiles(law):
    ends = np.unique(
        law.ppf(np.concatenate([np.geomspace(1e-6, 0.01, 20), np.linspace(0.02, 0.98, 41), [0.99, 0.999, 1 - 1e-4]]))
    )
    points, weights = np.polynomial.legendre.leggauss(16)
    x = ends[:-1, None] + 0.5 * np.diff(ends)[:, None] * (points + 1.0)
    mass = (0.5 * np.diff(ends)[:, None] * weights * law.pdf(x)).sum()
    atom = getattr(law, "atom_mass", 0.0) if law.cdf(ends[0]) < 1e-3 else 0.0  # or it lies at the first of the ends
    assert mass == pytest.approx(law.cdf(ends[-1]) - law.cdf(ends[0]) - atom, abs=1e-6)


@pytest.mark.parametrize("law", mostly_exhaustive(REGISTERED, always=QUICK), ids=_name)
def test_moments_are_those_of_the_quantile_function(law):
    points, weights = np.polynomial.legendre.leggauss(24)
    ends = np.linspace(0.0, 9.0, 37)
    z = (ends[:-1, None] + 0.125 * (points + 1.0)).ravel()
    density = np.tile(0.125 * weights, 36) * np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    if isinstance(law, DiscreteDistribution):
        x, mass = law.points, law.pmf(law.points)
        assert mass.sum() == pytest.approx(1.0, rel=1e-13)
    else:
        x, mass = np.concatenate([law.ppf(ndtr(-z)), law.isf(ndtr(-z))]), np.concatenate([density, density])
    tolerance = FITTED.get(type(law).__name__, 1e-3 if getattr(law, "atom_mass", 0.0) else 1e-7)
    size = math.sqrt(float(mass @ x**2))
    assert law.moment(0) == pytest.approx(1.0, rel=1e-13)
    assert law.mean() == pytest.approx(float(mass @ x), abs=tolerance * size)
    assert law.std() == pytest.approx(math.sqrt(float(mass @ (x - mass @ x) ** 2)), rel=max(tolerance, 1e-5))
    assert law.var() == pytest.approx(law.std() ** 2, rel=1e-12)
    assert law.moment(1) == pytest.approx(law.mean(), rel=tolerance, abs=tolerance * size)
    assert law.moment(2) == pytest.approx(law.var() + law.mean() ** 2, rel=max(tolerance, 1e-9))


METHODS = ("pdf", "cdf", "sf", "ppf", "isf", "p_value")


@every_law
def test_shapes_are_kept_and_nan_stays(law):
    for name in METHODS:
        function = getattr(law, name)
        middle = 0.5 if name in ("ppf", "isf") else float(law.ppf(0.5))
        assert np.shape(function(middle)) == () and isinstance(function(middle), float), name
        assert function(np.full((2, 3), middle)).shape == (2, 3) and function([]).shape == (0,), name
        mixed = function([middle, np.nan])
        assert np.isnan(mixed[1]) and mixed[0] == pytest.approx(function(middle), rel=1e-13), name
        assert mixed.dtype == np.float64, name


def each_implementation(*names):
    """Each function that implements a method, once: a base class refuses for all its laws."""
    found = {getattr(type(law), name): (law, name) for law in REGISTERED for name in names}
    ids = [function.__qualname__ for function in found]
    return pytest.mark.parametrize(("law", "name"), list(found.values()), ids=ids)


@each_implementation(*METHODS)
def test_what_is_no_real_number_is_refused(law, name):
    for bad in (1j, True, "x", None, np.ma.masked_array([0.5, 0.5], [True, False]), [[0.1], [0.2, 0.3]]):
        with pytest.raises(ParameterError):
            getattr(law, name)(bad)


@each_implementation("moment")
def test_a_moment_needs_a_non_negative_integer(law, name):
    for k in (-1, 1.5, True, "2", None):
        with pytest.raises(ParameterError, match="k ="):
            law.moment(k)
