"""The law of tr(P O Q Oᵀ): exact moments by other ways, tails against exact laws and direct draws."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from rmtbase.laws import HaarTrace


def second_and_third(law):
    """Variance and third cumulant, from which the tails are made."""
    return [cumulant[0, 0] for cumulant in law._cumulants[1:]]


def rising(a, k):
    return math.prod((a + i for i in range(k)), start=Fraction(1))


@pytest.mark.parametrize(("d", "s"), [(16, 1), (16, 7), (64, 3), (768, 64), (4096, 128)])
def test_a_direction_and_a_subspace_meet_as_a_beta_variable(d, s):
    # Σ_(j ≤ s) u_j² of a point u of the sphere is Beta(s/2, (d-s)/2).
    half, whole = Fraction(s, 2), Fraction(d, 2)
    first, second, third = (rising(half, k) / rising(whole, k) for k in (1, 2, 3))
    expected = float(second - first**2), float(third - 3 * second * first + 2 * first**3)
    law = HaarTrace(np.ones((1, 1)), np.ones((1, s)), d)
    assert law.mean()[0, 0] == s / d
    assert second_and_third(law) == pytest.approx(expected, rel=1e-9)


def test_moments_have_their_closed_forms_and_symmetries():
    rng, d = np.random.default_rng(1), 40
    p, q = rng.chisquare(2, (3, 6)), rng.chisquare(2, (4, 9))

    def spread(x):
        return (x**2).sum(axis=1) - x.sum(axis=1) ** 2 / d

    expected = 2.0 / ((d - 1) * (d + 2)) * np.multiply.outer(spread(p), spread(q))
    np.testing.assert_allclose(HaarTrace(p, q, d).var(), expected, rtol=1e-12)
    np.testing.assert_allclose(HaarTrace(q, p, d)._cumulants[2], HaarTrace(p, q, d)._cumulants[2].T, rtol=1e-9)
    # diag(a, b) against diag(c, e) turned by φ: T - E T = (a - b)(c - e)/2 cos 2φ.
    law = HaarTrace([[3.0, 1.0]], [[2.0, 0.5]], 2)
    assert second_and_third(law) == pytest.approx([1.5**2 / 2, 0.0], rel=1e-12, abs=1e-12)
    # P + c I adds c tr Q, whatever the rotation.
    p, q = np.array([[5.0, 2.0, 1.0, 0.0]]), np.array([[3.0, 1.0, 1.0, 0.2]])
    shifted, plain = HaarTrace(p + 2.0, q, 4), HaarTrace(p, q, 4)
    assert second_and_third(shifted) == pytest.approx(second_and_third(plain), rel=1e-10)
    assert HaarTrace(p + 2.0, q, 4).mean() == pytest.approx(HaarTrace(p, q, 4).mean() + 2.0 * q.sum())
    law = HaarTrace(np.full((1, 6), 0.3), [[2.0, 1.0]], 6)
    assert law.var()[0, 0] == 0.0
    assert np.isnan(law.sf(law.mean())).all()
    p, q = np.array([[4.0, 1.0]]), np.array([[2.0, 2.0, 0.5]])
    with_zeros = HaarTrace(np.append(p, np.zeros((1, 5)), axis=1), q[:, ::-1], 20)
    x = np.linspace(0.1, 2.0, 9)[:, None, None]
    np.testing.assert_allclose(with_zeros.sf(x), HaarTrace(p, q, 20).sf(x), rtol=1e-9)


def drawn(p, q, d, n, rng):
    """n values of tr(P O Q Oᵀ) from the first columns of orthogonal matrices."""
    frame = np.linalg.qr(rng.standard_normal((n, d, p.size)))[0][:, : q.size]
    return np.einsum("nji,i,j->n", frame**2, p, q)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("p", "q", "d"),
    [
        (np.arange(1, 7.0), np.ones(5), 24),
        (2.0 ** -np.arange(8), 2.0 ** -np.arange(8), 32),
        (np.ones(14), np.arange(1, 13.0), 16),
    ],
    ids=["even", "falling", "nearly full"],
)
def test_p_values_of_rotations_are_uniform(p, q, d):
    # 20 000 draws each: a share of p ≤ level beyond 4.5 standard errors is one seed in 100 000. The law's own error at
    # these sizes, by 2 000 000 draws: 6 % at 0.01 and 0.1.
    rng = np.random.default_rng(3)
    x = drawn(p, q, d, 20_000, rng)
    law = HaarTrace(p[None], q[None], d)
    assert x.mean() == pytest.approx(law.mean()[0, 0], abs=4.5 * law.std()[0, 0] / math.sqrt(x.size))
    upper, lower = law.sf(x[:, None, None]), law.cdf(x[:, None, None])
    for level in (0.01, 0.1):
        margin = 4.5 * math.sqrt(level / x.size) + 0.06 * level
        assert abs((upper <= level).mean() - level) < margin
        assert (lower <= level).mean() < level + margin
    np.testing.assert_allclose(upper + lower, 1.0, rtol=1e-12)


@pytest.mark.parametrize(("d", "worst"), [(256, 1.25), (1024, 1.2), (4096, 1.2)])
def test_the_upper_tail_of_a_direction_is_not_too_light(d, worst):
    # Of one direction against one the law is farthest from a sum of many; exact: Beta(1/2, (d-1)/2).
    exact = stats.beta(0.5, 0.5 * (d - 1))
    law = HaarTrace(np.ones((1, 1)), np.ones((1, 1)), d)
    for mass in (0.05, 1e-2, 1e-3, 1e-4):
        assert 0.93 < law.sf(exact.isf(mass))[0, 0] / mass < worst + 0.05 * (mass < 1e-3)


def test_tails_fall_and_meet_at_the_mean():
    p, q = np.array([[9.0, 1.0, 1.0, 0.5]]), np.array([[3.0, 2.0, 2.0]])
    law = HaarTrace(p, q, 64)
    x = law.mean() + law.std() * np.r_[np.linspace(-1.5, 12.0, 1200), np.linspace(-0.01, 0.01, 401)][:, None, None]
    order = np.argsort(x[:, 0, 0])
    assert (np.diff(law.sf(x)[order, 0, 0]) < 1e-9).all()
    assert 0.0 < law.sf(x).min() < 1e-6
