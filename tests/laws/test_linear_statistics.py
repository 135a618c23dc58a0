"""Joint cumulants of linear spectral statistics, against exact polynomials, digamma functions and simulation."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.integrate import IntegrationWarning

from exhaustive import mostly_exhaustive
from rmtbase.laws import (
    GaussianChain,
    LogDeterminant,
    largest_eigenvalue,
    linear_statistics,
    trace_cumulant,
    trace_moment,
    trace_moment_polynomial,
)
from rmtbase.laws._chain._chain_map import chain_map
from rmtbase.laws._chain._linear_statistics import eigenvalue_response_of_map

# Soft and hard edges, one to four factors, equal and different dimensions.
CHAINS = [(100, 20), (20, 20), (96, 8, 96), (64, 64, 64), (50, 50, 70), (30, 20, 40, 50), (7, 5, 6, 5, 9)]


def _powers(highest):
    return [lambda x, k=k: x**k for k in range(1, highest + 1)]


def _homogeneous(polynomial, degree, dims) -> float:
    """The part of one total degree of a polynomial in the dimensions."""
    terms = (c * math.prod(map(pow, dims, powers)) for powers, c in polynomial.terms if sum(powers) == degree)
    return float(sum(terms, Fraction(0)))


def _leading_cumulant(powers, dims) -> float:
    """Part of highest degree in the dimensions of an exact cumulant: its highest difference in a common factor."""
    degree = (len(dims) - 1) * sum(powers) + 2 - len(powers)
    values = (trace_cumulant(powers, dims=[t * n for n in dims], normalization="none") for t in range(1, degree + 2))
    signed = ((-1) ** (degree - j) * math.comb(degree, j) * value for j, value in enumerate(values))
    return float(sum(signed, Fraction(0)) / math.factorial(degree))


@pytest.mark.parametrize("dims", CHAINS)
def test_means_are_the_two_leading_orders_of_the_exact_ones(dims):
    highest = 4 if len(dims) <= 3 else 3
    law, symbols = GaussianChain(dims=dims, normalization="none"), [f"n_{level}" for level in range(len(dims))]
    found = linear_statistics(law, _powers(highest)).mean
    for k in range(1, highest + 1):
        exact = trace_moment_polynomial((k,), symbols)
        degree = (len(dims) - 1) * k + 1
        leading, correction = (_homogeneous(exact, degree - order, dims) for order in (0, 1))
        assert min(dims) * law.moment(k) == pytest.approx(leading, rel=1e-13)
        assert found[k - 1] - leading == pytest.approx(correction, rel=1e-10, abs=1e-12 * leading)


@pytest.mark.parametrize("dims", mostly_exhaustive(zip(CHAINS, strict=True), always=2))
def test_covariances_and_third_cumulants_are_the_leading_order_of_the_exact_ones(dims):
    highest = 3 if len(dims) <= 3 else 2
    found = linear_statistics(GaussianChain(dims=dims, normalization="none"), _powers(highest))
    for a in range(1, highest + 1):
        for b in range(1, a + 1):
            assert found.covariance[a - 1, b - 1] == pytest.approx(_leading_cumulant((a, b), dims), rel=1e-11)
            for c in range(1, b + 1):
                leading = _leading_cumulant((a, b, c), dims)
                assert found.third_cumulant[a - 1, b - 1, c - 1] == pytest.approx(leading, rel=1e-10)
    np.testing.assert_allclose(found.covariance, found.covariance.T, rtol=1e-12)
    np.testing.assert_allclose(found.third_cumulant, found.third_cumulant.transpose(1, 2, 0), rtol=1e-12)


def test_what_is_neglected_falls_with_the_dimensions():
    errors = []
    for times in (1, 4, 16):
        dims = (30 * times, 10 * times, 20 * times)
        found = linear_statistics(GaussianChain(dims=dims, normalization="none"), _powers(3))
        errors.append(
            [
                float(
                    abs(trace_moment((3,), dims=dims, normalization="none") - Fraction(found.mean[2]))
                    / trace_moment((3,), dims=dims, normalization="none")
                ),
                abs(found.covariance[1, 1] / float(trace_cumulant((2, 2), dims=dims, normalization="none")) - 1.0),
                abs(
                    found.third_cumulant[1, 1, 0] / float(trace_cumulant((2, 2, 1), dims=dims, normalization="none"))
                    - 1.0
                ),
            ]
        )
    ratios = np.array(errors[:-1]) / np.array(errors[1:])
    # Means to relative order 1/r^2, the others to 1/r.
    np.testing.assert_allclose(ratios, np.tile([16.0, 4.0, 4.0], (2, 1)), rtol=0.15)


@pytest.mark.parametrize("dims", [(200, 50), (768, 64, 768), (60, 20, 40, 50)])
def test_the_log_determinant_has_its_digamma_and_trigamma_moments(dims):
    chain = {"dims": dims, "sigma": 0.5, "normalization": "none"}
    found, exact = linear_statistics(GaussianChain(**chain), [np.log]), LogDeterminant(**chain)
    # Neglected: 1/(smallest gap of two dimensions), relative in the cumulants.
    gap = sorted(dims)[1] - min(dims)
    assert found.mean[0] == pytest.approx(exact.mean(), abs=0.2 / gap)
    assert found.covariance[0, 0] == pytest.approx(exact.var(), rel=1.0 / gap)
    assert found.third_cumulant[0, 0, 0] == pytest.approx(exact.cumulant(3), rel=2.5 / gap)


def eigenvalue_response(law, functions, eigenvalue):
    """The covariance of ln λ with the sums, for an eigenvalue inside the support."""
    chain = chain_map(law.dims)
    unit = law.support[1] * math.exp(-chain.log_upper)  # the eigenvalue at x = 1

    def evaluate(log_x):
        return np.stack([function(unit * np.exp(log_x)) for function in functions])

    return eigenvalue_response_of_map(chain, evaluate, math.log(eigenvalue / unit))


@pytest.mark.parametrize("dims", [(100, 20), (7, 30), (16, 16)])
def test_one_wishart_matrix_responds_to_its_trace_as_it_must(dims):
    # tr M is independent of M / tr M: Cov(ln lambda, tr) = Cov(ln tr, tr) = 2 for every eigenvalue, to leading order.
    law = GaussianChain(dims=dims, normalization="none")
    assert eigenvalue_response(law, [np.copy], law.ppf(0.7))[0] == pytest.approx(2.0, rel=1e-9)


def test_covariances_of_one_factor_are_derivatives_by_its_scale_and_kinks_warn():
    # Tilting the entries of X by exp(s |X|^2/2) makes sigma^2 = 1/(1 - s). For one factor |X|^2 is the trace, so that
    # Cov(S, tr)/2 = d E S/d s = p E S for S homogeneous of degree p.
    found = linear_statistics(GaussianChain(dims=(40, 12), normalization="none"), [*_powers(3), np.sqrt])
    leading = 12 * np.array(
        [GaussianChain(dims=(40, 12), normalization="none").expect(lambda x, p=p: x**p) for p in (1.0, 2.0, 3.0, 0.5)]
    )
    np.testing.assert_allclose(found.covariance[0], 2.0 * np.array([1.0, 2.0, 3.0, 0.5]) * leading, rtol=1e-11)
    with pytest.warns(IntegrationWarning, match="1024 nodes"):
        linear_statistics(GaussianChain(dims=(16, 8), normalization="none"), [lambda x: np.abs(x - 16.0)])


@pytest.mark.parametrize("dims", [(20, 20), (16, 16, 16), (12, 12, 12, 12), (24, 8, 8)])
def test_a_hard_edge_takes_singular_values(dims):
    law = GaussianChain(dims=dims, normalization="none")
    found = linear_statistics(law, [np.sqrt, np.copy])
    assert np.isfinite(found.mean).all()
    assert np.linalg.eigvalsh(found.covariance).min() > 0.0
    assert found.mean[0] == pytest.approx(min(dims) * law.expect(np.sqrt), rel=0.05)


# Within five standard errors (6e-7 each) and the neglected order: 1/r relative, 1/r^2 in the mean.
@pytest.mark.parametrize(("d_model", "d_head", "draws"), [(64, 8, 40000), (384, 32, 8000)])
def test_simulated_heads_have_these_cumulants(simulated, d_model, d_head, draws):
    eigenvalues = simulated(d_model, d_head, draws)
    sums = np.stack([np.sqrt(eigenvalues).sum(axis=1), (eigenvalues * np.log(eigenvalues)).sum(axis=1)])
    law = GaussianChain((d_model, d_head, d_model), normalization="sqrt_d")
    functions = [np.sqrt, lambda x: x * np.log(x)]
    found = linear_statistics(law, functions)
    sample, std = np.cov(sums), sums.std(axis=1)
    np.testing.assert_array_less(np.abs(sums.mean(axis=1) - found.mean) / std, 0.15 / d_head + 5 / math.sqrt(draws))
    np.testing.assert_allclose(found.covariance, sample, rtol=1.0 / d_head + 5 * math.sqrt(2 / draws))
    z = (sums - sums.mean(axis=1, keepdims=True)) / std[:, None]
    third = np.einsum("in,jn,kn->ijk", z, z, z) / draws * np.einsum("i,j,k->ijk", std, std, std)
    error = 5 * math.sqrt(15 / draws) * np.einsum("i,j,k->ijk", std, std, std) + np.abs(third) * 3.0 / d_head
    np.testing.assert_array_less(np.abs(found.third_cumulant - third), error)
    at = largest_eigenvalue((d_model, d_head, d_model), normalization="sqrt_d")
    covariance = np.cov(np.log(eigenvalues[:, 0]), sums)[0, 1:]
    noise = 5 * math.sqrt(at.log_cumulants()[1]) * std / math.sqrt(draws)
    # At the edge rather than where the largest eigenvalue lies: off by r^(-2/3).
    response = eigenvalue_response(law, functions, law.support[1] * (1.0 - 1e-7))
    np.testing.assert_array_less(np.abs(response - covariance), noise + d_head ** (-2 / 3) * covariance)
