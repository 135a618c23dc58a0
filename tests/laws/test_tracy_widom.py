"""The Tracy-Widom laws."""

import math

import mpmath
import numpy as np
import pytest

from rmtbase.laws import TracyWidom

# s, F_1, 1 - F_1, F_2, 1 - F_2: determinants of Gauss-Legendre quadrature, 48 points and 50 digits from -6 to 10, 80 to
# 100 points and 70 digits to the left of it, 56 points and 70 digits to the right.
# F_1(0) and F_2(0) have the digits that Bornemann (2010) gives.
REFERENCE = [
    (-10.0, 3.1590379031995637107e-22, 1.0, 4.2122590096599025318e-37, 1.0),
    (-8.0, 1.8068279211854166513e-12, 0.9999999999981932, 1.9859004257636574793e-19, 1.0),
    (-7.0, 5.4828625915597060222e-9, 0.9999999945171374, 2.6396147672460622595e-13, 0.9999999999997360),
    (-6.0, 2.70731932530478305e-6, 0.9999972926806747, 1.06225467412445151e-8, 0.9999999893774533),
    (-4.0, 0.00756767859879640050, 0.9924323214012036, 0.00354455359550920030, 0.9964554464044908),
    (-2.0, 0.274320197909217857672, 0.7256798020907821423, 0.413224142505122554689, 0.5867758574948774453),
    (0.0, 0.831908066202951927462, 0.1680919337970480725, 0.969372828355262668350, 0.0306271716447373317),
    (2.0, 0.989597571084826992073, 0.01040242891517300793, 0.999887553698309172925, 1.124463016908270750e-4),
    (5.0, 0.999977128481955679562, 2.287151804432043776e-5, 0.999999999468220673667, 5.317793263332426396e-10),
    (9.9, 0.999999999976414296062, 2.358570393765675766e-11, 1.0, 5.602318707484810395e-22),
    (12.0, 1.0, 1.9765729575215767384e-14, 1.0, 3.9282154898035873617e-28),
    (15.0, 1.0, 2.7603038033005249205e-19, 1.0, 7.6498755644955350885e-38),
]


@pytest.mark.parametrize("row", REFERENCE, ids=lambda row: str(row[0]))
def test_cdf_and_sf_agree_with_high_precision_digits(row):
    s, f1, one_minus_f1, f2, one_minus_f2 = row
    for beta, cdf, sf in ((1, f1, one_minus_f1), (2, f2, one_minus_f2)):
        law = TracyWidom(beta)
        assert law.cdf(s) == pytest.approx(cdf, rel=1e-12, abs=0)
        assert law.sf(s) == pytest.approx(sf, rel=1e-12, abs=0)
        assert law.logcdf(s) == pytest.approx(math.log(cdf) if cdf < 0.5 else math.log1p(-sf), rel=1e-12, abs=0)
        assert law.logsf(s) == pytest.approx(math.log(sf) if sf < 0.5 else math.log1p(-cdf), rel=1e-12, abs=0)


@pytest.mark.exhaustive
def test_cdf_agrees_with_an_independent_determinant_in_30_digits():
    # The kernel Ai((x + y)/2)/2 on (s, s + 26) and tanh-sinh quadrature, in place of Ai(x + y + s) and Gauss-Legendre;
    # the step leaves a relative error below 1e-12.
    s = 1.0
    with mpmath.workdps(30):
        step = mpmath.mpf("0.1")
        nodes, weights = [], []
        for k in range(-32, 33):
            u = mpmath.pi / 2 * mpmath.sinh(k * step)
            nodes.append(s + 13 * (1 + mpmath.tanh(u)))
            weights.append(13 * step * mpmath.pi / 2 * mpmath.cosh(k * step) / mpmath.cosh(u) ** 2)
        size = len(nodes)
        matrix = mpmath.eye(size)
        for i in range(size):
            for j in range(i, size):
                value = mpmath.sqrt(weights[i] * weights[j]) * mpmath.airyai((nodes[i] + nodes[j]) / 2) / 2
                matrix[i, j] -= value
                matrix[j, i] -= value if i != j else 0
        determinant = float(mpmath.det(matrix))
    assert TracyWidom(1).cdf(s) == pytest.approx(determinant, rel=1e-11)


@pytest.mark.parametrize(
    ("beta", "mean", "variance", "skewness", "kurtosis"),
    [
        (1, -1.2065335745820, 1.6077810345810, 0.29346452408, 0.1652429384),
        (2, -1.7710868074116, 0.8131947928329, 0.224084203610, 0.0934480876),
    ],
)
def test_moments_have_bornemanns_digits(beta, mean, variance, skewness, kurtosis):
    law = TracyWidom(beta)
    assert (law.mean(), law.var()) == pytest.approx((mean, variance), abs=2e-12)
    assert law.std() == math.sqrt(law.var())
    m1, m2, m3, m4 = (law.moment(k) for k in range(1, 5))
    assert (m3 - 3 * m2 * m1 + 2 * m1**3) / law.std() ** 3 == pytest.approx(skewness, abs=1e-11)
    fourth = (m4 - 4 * m3 * m1 + 6 * m2 * m1**2 - 3 * m1**4) / law.var() ** 2 - 3
    assert fourth == pytest.approx(kurtosis, abs=1e-10)
    assert law.moment(0) == pytest.approx(1.0, rel=1e-15)


def test_both_equations_of_painleve_hold_between_the_pieces():
    # From the law's own density: q = 2 (ln F_1)' - (ln F_2)' has (ln F_2)'' = -q^2 on either side of -1 and of -16.
    one, two = TracyWidom(1), TracyWidom(2)

    def slope(law, s):
        return law.pdf(s) / law.cdf(s)

    h = 1e-3
    for s in (-16.0, -9.0, -1.0, 0.5):
        around = slope(two, s + h * np.array([-2.0, -1.0, 1.0, 2.0]))
        second = (around[0] - 8 * around[1] + 8 * around[2] - around[3]) / (12 * h)
        q = 2 * slope(one, s) - slope(two, s)
        assert second == pytest.approx(-(q**2), rel=1e-8)


@pytest.mark.parametrize("beta", [1, 2])
def test_the_density_joins_and_is_the_derivative_of_the_cdf(beta):
    law = TracyWidom(beta)
    nodes, weights = np.polynomial.legendre.leggauss(30)
    for low, high in [(-20.0, -16.5), (-16.5, -15.5), (-7.5, -6.5), (-5.0, -3.5), (-2.0, 0.0), (0.0, 1.0)]:
        s = 0.5 * (low + high) + 0.5 * (high - low) * nodes
        mass = 0.5 * (high - low) * np.sum(weights * law.pdf(s))
        assert mass == pytest.approx(law.cdf(high) - law.cdf(low), rel=1e-11)
    # In the right tail from the survival function, relative to itself.
    for low, high in [(3.0, 4.5), (8.0, 12.0), (40.0, 41.0)]:
        s = 0.5 * (low + high) + 0.5 * (high - low) * nodes
        mass = 0.5 * (high - low) * np.sum(weights * law.pdf(s))
        assert mass == pytest.approx(law.sf(low) - law.sf(high), rel=1e-11)
    for s in (-16.0, -1.0, 4.0, 10.0):
        left, right = np.nextafter(s, -100), np.nextafter(s, 100)
        assert law.cdf(left) == pytest.approx(law.cdf(right), rel=1e-12)
        assert law.sf(left) == pytest.approx(law.sf(right), rel=1e-12)
        assert law.pdf(left) == pytest.approx(law.pdf(right), rel=1e-11)
    s = 400.0
    constant = 1 / (4 * math.sqrt(math.pi)) if beta == 1 else 1 / (16 * math.pi)
    leading = math.log(constant) - 2 * beta / 3 * s**1.5 - 0.75 * beta * math.log(s)
    assert law.logsf(s) == pytest.approx(leading, abs=5e-4)  # the next term is of order s^(-3/2) = 1e-4
