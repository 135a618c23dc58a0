"""Exact finite-size moments of the traces, against Wick's theorem by brute force and against simulation."""

import math
from collections import Counter
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest
from oracles import chain_gram, partitions

from rmtbase.laws import (
    DimensionPolynomial,
    normalized_participation_ratio,
    participation_ratio,
    trace_cumulant,
    trace_cumulants,
    trace_moment,
    trace_moment_polynomial,
)
from rmtbase.laws._parameters import own_variance_moment

RAW = {"normalization": "none"}


def _pairings(items: list[int]):
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for index, other in enumerate(rest):
        for remaining in _pairings(rest[:index] + rest[index + 1 :]):
            yield [(first, other), *remaining]


def _wick(mu: tuple[int, ...], factors: int) -> Counter[tuple[int, ...]]:
    """E prod tr (W^T W)^m by Wick's theorem, as a polynomial {powers of (n_0, ..., n_L): how many pairings}.

    Every pairing of the entries of each factor glues their row and their column indices; what stays free counts.
    """
    entries: list[list[tuple[int, int]]] = [[] for _ in range(factors)]  # per factor: (row index, column index)
    levels: list[int] = []

    def new_index(level: int) -> int:
        levels.append(level)
        return len(levels) - 1

    for m in mu:
        first = current = new_index(factors)
        for repeat in range(m):
            for level in range(factors - 1, -1, -1):  # W^T = X_L^T ... X_1^T
                following = new_index(level)
                entries[level].append((following, current))
                current = following
            for level in range(1, factors + 1):  # W = X_1 ... X_L
                last = level == factors and repeat == m - 1
                following = first if last else new_index(level)
                entries[level - 1].append((current, following))
                current = following
    terms: Counter[tuple[int, ...]] = Counter()
    for choice in product(*(list(_pairings(list(range(len(e))))) for e in entries)):
        glued = list(range(len(levels)))
        for entry, pairs in zip(entries, choice, strict=True):
            for a, b in pairs:
                for one, other in zip(entry[a], entry[b], strict=True):
                    while glued[one] != one:
                        one = glued[one]
                    while glued[other] != other:
                        other = glued[other]
                    glued[one] = other
        free = Counter(level for index, level in enumerate(levels) if glued[index] == index)
        terms[tuple(free[level] for level in range(factors + 1))] += 1
    return terms


@pytest.mark.parametrize("factors", [1, 2])
@pytest.mark.parametrize("mu", [mu for k in (1, 2, 3, 4) for mu in partitions(k)])
def test_trace_moments_are_wicks_to_degree_four(mu, factors):
    symbols = tuple(f"n_{level}" for level in range(factors + 1))
    wick = _wick(mu, factors)
    assert dict(trace_moment_polynomial(mu, symbols).terms) == wick
    for dims in [(5, 3, 4), (2, 7, 2), (1, 6, 2)]:
        counted = sum(count * math.prod(map(pow, dims, powers)) for powers, count in wick.items())
        assert trace_moment(mu, dims=dims[: factors + 1], **RAW) == counted


@pytest.mark.parametrize("mu", [mu for k in (1, 2, 3) for mu in partitions(k)])
def test_trace_moments_of_three_factors_are_wicks(mu):
    assert dict(trace_moment_polynomial(mu, ("a", "b", "c", "d")).terms) == _wick(mu, 3)


@pytest.mark.parametrize("k", range(1, 9))
def test_rank_one_and_powers_of_the_trace_give_the_moments_of_chi_square(k):
    chi_square = [math.prod(n + 2 * i for i in range(k)) for n in (5, 7)]
    for mu in partitions(k):
        assert trace_moment(mu, dims=(5, 1), **RAW) == chi_square[0]
        assert trace_moment(mu, (5, 1, 7), **RAW) == math.prod(chi_square)
        assert trace_moment(mu, (5, 1, 7), self_normalized=True, **RAW) == 35**k
    # Of n p degrees of freedom. With n and p above k all partitions of k take part, each with its own constants.
    assert trace_moment((1,) * k, dims=(10, 9), **RAW) == math.prod(90 + 2 * i for i in range(k))


def test_traces_have_their_closed_forms_and_reference_values():
    assert trace_moment((), dims=(3, 2), **RAW) == 1
    assert trace_moment((1, 3, 2), dims=(3, 2), **RAW) == trace_moment((3, 2, 1), dims=(3, 2), **RAW)
    assert trace_cumulant((1, 3, 2), dims=(3, 2), **RAW) == trace_cumulant((3, 2, 1), dims=(3, 2), **RAW)
    for d, h in [(768, 64), (7, 3), (5, 5), (9, 1)]:
        assert trace_moment((2,), (d, h, d), **RAW) == d * d * h * (d * d + 2 * d * h + 2 * d + h + 3)
    trace, square = (trace_cumulants(power, d_model=768, d_head=64) for power in (1, 2))
    assert trace.mean == 49152.0
    assert trace.std == pytest.approx(452.68974, abs=5e-6)
    assert square.mean == 44142784.0
    assert square.std == pytest.approx(866074.17, abs=5e-3)


def test_cumulants_are_those_of_chi_square_and_sums_over_set_partitions():
    # tr M is chi^2 of N = n_0 n_1 degrees of freedom: kappa_k = 2^(k-1) (k-1)! N.
    for k in range(1, 9):
        assert trace_cumulant((1,) * k, dims=(5, 3), **RAW) == 2 ** (k - 1) * math.factorial(k - 1) * 15

    def moment(*powers):
        return trace_moment(powers, (4, 2, 5), **RAW)

    a, b, c = (trace_moment((power,), (4, 2, 5), **RAW) for power in (3, 2, 1))
    assert trace_cumulant((3, 2), (4, 2, 5), **RAW) == moment(3, 2) - a * b
    assert trace_cumulant((3, 2, 1), (4, 2, 5), **RAW) == (
        moment(3, 2, 1) - moment(3, 2) * c - moment(3, 1) * b - moment(2, 1) * a + 2 * a * b * c
    )
    second = trace_cumulant((2, 2), (4, 2, 5), **RAW)
    central = sum(math.comb(4, i) * (-b) ** (4 - i) * moment(*(2,) * i) for i in range(5))
    assert trace_cumulant((2, 2, 2, 2), (4, 2, 5), **RAW) == central - 3 * second**2


def test_self_normalization_divides_by_chi_squares():
    assert own_variance_moment(1, (3, 4, 5)) == 1
    assert own_variance_moment(3, (3, 4, 5)) == Fraction(12 * 14 * 16, 12**3) * Fraction(20 * 22 * 24, 20**3)
    moments = trace_cumulants(1, dims=(5, 3), self_normalized=True, **RAW)
    assert (moments.mean, moments.std) == (15.0, 0.0)
    assert math.isnan(moments.skewness) and math.isnan(moments.excess_kurtosis)


@pytest.mark.parametrize("dims", [(4, 3), (3, 2, 4), (3, 4, 2, 3)])
def test_self_normalized_moments_times_those_of_the_scales_are_the_raw_ones(dims):
    entries = [n * m for n, m in pairwise(dims)]
    for k in range(1, 6):
        scales = math.prod(Fraction(n + 2 * i, n) for n in entries for i in range(k))
        for mu in partitions(k):
            assert trace_moment(mu, dims=dims, self_normalized=True, **RAW) * scales == trace_moment(
                mu, dims=dims, **RAW
            )


@pytest.mark.parametrize("powers", [(1,), (2,), (1, 1), (2, 2), (2, 1), (2, 1, 1)])
def test_sigmas_and_normalization_scale_exactly(powers):
    head, factor = {"d_model": 24, "d_head": 6}, Fraction(9, 4 * 24)
    raw = trace_cumulant(powers, **head, **RAW)
    assert trace_cumulant(powers, **head, sigma_q=0.5, sigma_k=3.0) == factor ** sum(powers) * raw
    assert trace_moment(powers, **head, sigma_q=0.5, sigma_k=3.0) == factor ** sum(powers) * trace_moment(
        powers, **head, **RAW
    )


def test_trace_cumulants_are_the_exact_ones_rounded():
    head = {"d_model": 24, "d_head": 6, "sigma_q": 0.5, "sigma_k": 3.0}
    for power in (1, 2):
        moments = trace_cumulants(power, **head)
        assert moments.mean == float(trace_moment((power,), **head))
        assert moments.std == pytest.approx(math.sqrt(trace_cumulant((power, power), **head)), rel=1e-15)
    square, raw = trace_cumulants(2, **head), trace_cumulants(2, d_model=24, d_head=6, **RAW)
    assert (square.skewness, square.excess_kurtosis) == (raw.skewness, raw.excess_kurtosis)
    own, unit = (trace_cumulants(2, **of, self_normalized=True) for of in (head, {"d_model": 24, "d_head": 6}))
    assert own == unit
    assert own.std < trace_cumulants(2, d_model=24, d_head=6).std


# Moments about the exact mean within 5 standard errors: the first two of each sum, and all four of the trace of up to
# two factors, whose tails are light enough for their standard errors to be those of the sample.
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize(("dims", "draws"), [((6, 4), 20000), ((9, 4, 7), 20000), ((6, 4, 5, 4), 20000)])
def test_simulated_chains_have_the_stated_shape(simulated_chain, dims, draws, own):
    eigenvalues, own_variance = simulated_chain(dims, draws)
    if own:
        eigenvalues = eigenvalues / own_variance[:, None]
    for power in (1, 2):
        moments = trace_cumulants(power, dims=dims, self_normalized=own, **RAW)
        sample = (eigenvalues**power).sum(axis=1)
        if moments.std == 0.0:
            np.testing.assert_allclose(sample, moments.mean, rtol=1e-12)
            continue
        z = (sample - moments.mean) / moments.std
        shape = (0.0, 1.0, moments.skewness, 3.0 + moments.excess_kurtosis)
        for order, expected in enumerate(shape[: 4 if power == 1 and len(dims) < 4 else 2], start=1):
            assert abs((z**order).mean() - expected) < 5 * (z**order).std() / math.sqrt(draws)


def test_participation_ratios_of_w_qk_of_one_eigenvalue_and_of_few():
    # The leading order of the standard deviation is 0.0040127; the next lowers it by 1.0e-6 of the ratio's own.
    moments = normalized_participation_ratio(768, 64)
    assert moments.mean == pytest.approx(0.8552522, abs=5e-8)
    assert moments.std == pytest.approx(0.0040087, abs=5e-8)
    assert 0 < moments.error < 1e-9 and 0 < moments.std_error < 1e-8
    whole, part = participation_ratio(96, 12), normalized_participation_ratio(96, 12)
    for name in ("mean", "std", "error", "std_error"):
        assert getattr(whole, name) == pytest.approx(12 * getattr(part, name), rel=1e-15)
    assert (whole.skewness, whole.excess_kurtosis) == (part.skewness, part.excess_kurtosis)
    for moments in (participation_ratio(50, 1), participation_ratio((7, 1, 5, 4))):
        assert (moments.mean, moments.std, moments.error, moments.std_error) == (1.0, 0.0, 0.0, 0.0)
        assert moments.method == "exact"
    for dims in [(3,) * 20, (2,) * 30, (4,) * 9]:
        moments = participation_ratio(dims=dims)
        assert 1.0 <= moments.mean < min(dims) and 0.0 < moments.std <= moments.std_error


def test_one_factor_agrees_with_the_exact_moments_of_its_inverse():
    # For one factor the trace is independent of the ratio: E (1/PR)^k = E (tr M^2)^k / E (tr M)^(2k), exactly.
    dims = (300, 40)
    inverse, square = (
        float(trace_moment((2,) * k, dims=dims, **RAW) / trace_moment((1, 1) * k, dims=dims, **RAW)) for k in (1, 2)
    )
    relative = (square - inverse**2) / inverse**2
    moments = participation_ratio(dims=dims)
    # E PR = (1 + v + O(v^(3/2))) / E (1/PR), v the relative variance of 1/PR, here 1.4e-5.
    assert moments.mean * inverse == pytest.approx(1.0 + relative, abs=5 * relative**1.5)
    assert (moments.std * inverse) ** 2 == pytest.approx(relative, rel=20 * relative**0.5 + 1e-2)


# Means and spreads within 5 standard errors (chance 6e-7 each) and the stated error; third and fourth moments, where
# they are known, within 5 errors of a normal sample's.
def agrees(sample, moments):
    draws = len(sample)
    z = (sample - sample.mean()) / sample.std()
    spread = math.sqrt((np.mean(z**4) - 1.0) / draws) / 2
    assert abs(sample.mean() - moments.mean) < 5 * moments.std / math.sqrt(draws) + moments.error
    assert abs(sample.std() - moments.std) < 5 * spread * moments.std + moments.std_error
    if moments.std_error < 0.003 * moments.std:  # what is claimed, but of few eigenvalues
        assert abs(np.mean(z**3) - moments.skewness) < 5 * math.sqrt(6.0 / draws) + 0.03
        assert abs(np.mean(z**4) - 3.0 - moments.excess_kurtosis) < 5 * math.sqrt(24.0 / draws) + 0.03


SETTLED = [(384, 32, 8000), (64, 64, 2000), (64, 8, 40000), (16, 16, 10000), (64, 4, 40000), (16, 8, 20000)]
FEW = [(*shape, 20000) for shape in [(8, 8), (4, 4), (2, 2), (3, 2), (8, 2)]]


@pytest.mark.parametrize(("d_model", "d_head", "draws"), [*SETTLED, *FEW])
def test_simulated_heads_have_the_stated_moments(simulated, d_model, d_head, draws):
    eigenvalues, moments = simulated(d_model, d_head, draws), participation_ratio(d_model, d_head)
    agrees(eigenvalues.sum(axis=1) ** 2 / (eigenvalues**2).sum(axis=1), moments)
    # Of few eigenvalues few orders settle, and the stated errors are larger by orders of magnitude.
    assert (moments.std_error > 0.02 * moments.std) == ((d_model, d_head, draws) in FEW)


@pytest.mark.parametrize(
    "dims",
    [(50, 20, 70, 30), (40, 40, 12, 60, 25), (60, 30, 40, 20, 50, 35, 45), (48, 16), (30, 10, 24), (24, 12, 16, 24)],
)
def test_simulated_chains_have_the_stated_moments(dims):
    gram = chain_gram(dims, 10000)
    agrees(np.trace(gram, axis1=1, axis2=2) ** 2 / (gram**2).sum(axis=(1, 2)), participation_ratio(dims=dims))


HEAD = ("d", "h", "d")


@pytest.mark.parametrize("powers", [(1,), (2, 1), (3, 3), (2, 2, 2, 2), (8,), (1,) * 8])
def test_polynomials_have_the_exact_values(powers):
    moment = trace_moment_polynomial(powers, HEAD)
    for d, h in [(768, 64), (5, 3), (1, 1)]:
        assert moment(d=d, h=h) == trace_moment(powers, (d, h, d), **RAW)


def test_moments_count_pairings():
    # All (2k - 1)!! pairings of each factor are counted, each by one monomial with a positive integer before it.
    for powers in [(4,), (3, 2, 1), (1, 1, 1, 1)]:
        polynomial = trace_moment_polynomial(powers, ("a", "b", "c"))
        assert all(c > 0 and c.denominator == 1 for _, c in polynomial.terms)
        assert polynomial(a=1, b=1, c=1) == math.prod(range(1, 2 * sum(powers), 2)) ** 2


def test_print_is_factored_and_valid_python():
    second = trace_moment_polynomial((2,), HEAD)
    assert str(second) == "d**2*h*(d**2 + 2*d*h + 2*d + h + 3)"
    assert second.latex() == r"d^{2} h \left(d^{2} + 2 d h + 2 d + h + 3\right)"
    assert str(trace_moment_polynomial((1,), HEAD)) == "d**2*h"
    assert str(trace_moment_polynomial((), HEAD)) == "1"
    chain = trace_moment_polynomial((2,), ("n_0", "d_model", "rank"))
    assert chain.latex().startswith(r"n_{0} d_{\mathrm{model}} \mathrm{rank} \left(")
    polynomial = trace_moment_polynomial((3, 2), HEAD)
    assert eval(str(polynomial), {"d": 11, "h": 4}) == polynomial(d=11, h=4)
    polynomial = DimensionPolynomial.from_coefficients(
        ("x", "y"), {(1, 0): Fraction(-1, 2), (0, 1): Fraction(3, 4), (0, 0): 0}
    )
    assert str(polynomial) == "1/4*(-2*x + 3*y)"
    assert polynomial.latex() == r"\frac{1}{4} \left(-2 x + 3 y\right)"
    nothing = DimensionPolynomial.from_coefficients(("x",), {})
    assert str(nothing) == "0" == nothing.latex()
    assert str(DimensionPolynomial.from_coefficients(("x",), {(0,): -3})) == "3*(-1)"
