"""Every digit that is shipped or computed is right."""

from dataclasses import replace
from decimal import Decimal

import pytest
from balls import bounded, rational
from flint import acb, acb_mat, arb, ctx
from mpmath import mp

from exhaustive import mostly_exhaustive
from rmtbase import constants
from rmtbase.constants import PrecisionError
from rmtbase.errors import ParameterError

EVERY = {constant.name: constant for constant in constants.constants()}
PRECISIONS = (32, 42)


def computed(constant, **changes):
    return replace(constant, published="", **changes)


@pytest.mark.parametrize("name", mostly_exhaustive(EVERY, always=4))
def test_shipped_digits_are_recomputed_at_two_precisions(name):
    constant = EVERY[name]
    if constant.uncertainty == "exact":
        assert computed(constant).digits(100) == constant.digits(100)
    for digits in PRECISIONS:
        with mp.workdps(digits + 10):
            found = constant.compute()
            assert abs(found / mp.mpf(constant.digits(50)) - 1) < mp.mpf(10) ** -digits


# Bornemann (2010).
BORNEMANN = {
    "tracy_widom_1_mean": "-1.2065335745820", "tracy_widom_1_variance": "1.607781034581",
    "tracy_widom_1_skewness": "0.29346452408", "tracy_widom_1_excess_kurtosis": "0.1652429384",
    "tracy_widom_2_mean": "-1.7710868074116", "tracy_widom_2_variance": "0.8131947928329",
    "tracy_widom_2_skewness": "0.224084203610", "tracy_widom_2_excess_kurtosis": "0.0934480876",
}  # fmt: skip


@pytest.mark.parametrize("beta", [1, 2])
def test_tracy_widom_constants_agree_with_the_law_in_double_precision(beta):
    from rmtbase.laws import TracyWidom

    law = TracyWidom(beta)
    of = {name: constants.find(f"tracy_widom_{beta}_{name}").value for name in ("mean", "variance", "std")}
    assert law.mean() == pytest.approx(of["mean"], abs=2e-12)
    assert law.var() == pytest.approx(of["variance"], abs=2e-12)
    assert law.std() == pytest.approx(of["std"], abs=2e-12)
    for percent in ("50", "95", "99", "99.9"):
        quantile = constants.find(f"tracy_widom_{beta}_quantile_{percent.replace('.', '_')}").value
        assert law.sf(quantile) == pytest.approx(1 - float(percent) / 100, rel=1e-11)
    v = 30.0
    power = {1: v**3 / 24 + v**1.5 / (3 * 2**0.5), 2: v**3 / 12}[beta]
    tail = constants.find(f"tracy_widom_{beta}_left_tail").value
    # The next term of the tail is of relative order v^(-3/2) for beta = 1, v^-3 for beta = 2.
    assert law.logcdf(-v) + power + {1: 1 / 16, 2: 1 / 8}[beta] * float(mp.log(v)) == pytest.approx(
        float(mp.log(tail)), abs={1: 0.01, 2: 1e-4}[beta]
    )


MATH = {
    "half_normal_anchor_shape": "1.205434319017451087", "half_normal_anchor_scale": "0.887487039832266288",
    "half_normal_anchor_trim_05_shape": "1.190922610383650000", "half_normal_anchor_r_squared": "0.997740367232652",
    "half_normal_anchor_trim_05_scale": "0.880887883490032409", "body_tail_gap": "0.0543677",
    "half_normal_anchor_untrimmed_shape": "1.15106659071825", "gamma_closure_ratio": "1.152682",
    "half_normal_anchor_untrimmed_scale": "0.874835116855485", "gamma_closure_ratio_root_mean_square": "1.085416",
    "noise_optimal_probability": "0.79681213002002004616", "noise_optimal_variance": "1.54413865237",
    "noise_ratio_at_trim": "6.48209544", "half_normal_likelihood_shape": "1.262757",
    "half_normal_likelihood_scale": "0.855417", "half_normal_moment_shape": "1.337057",
    "half_normal_moment_scale": "0.868598", "element_divergence_1": "0.21484",
    "element_divergence_64": "1.68354e-4", "element_divergence_128": "4.3797e-5",
}  # fmt: skip


@pytest.mark.parametrize("published", [BORNEMANN, MATH], ids=["Bornemann", "independent"])
def test_values_that_others_found(published):
    for name, text in published.items():  # whose digits may be cut or rounded: one unit of the last
        unit = Decimal((0, (1,), Decimal(text).as_tuple().exponent))
        assert abs(Decimal(EVERY[name].digits(30)) - Decimal(text)) <= unit, name


def test_digits_continue_the_table_or_are_refused():
    for name in ("square_product_entropy_deficit_singular", "zeta_prime_minus_one", "noise_optimal_probability"):
        assert constants.find(name).digits(140).startswith(constants.find(name).digits(100)[:-2])
    for digits in (0, -3, 2.5, "30", True, 101):
        with pytest.raises(ParameterError, match="digits"):
            constants.tracy_widom_1_mean.digits(digits)
    cancelling = computed(constants.square_product_upper_edge, compute=lambda: mp.sqrt(1 + mp.mpf(10) ** -30) - 1)
    assert cancelling.digits(12) == "5.00000000000e-31"
    with pytest.raises(PrecisionError, match=r"5 digits: found 165\.00 and 185\.00") as caught:
        computed(constants.square_product_upper_edge, compute=lambda: mp.dps).digits(5)
    assert caught.value.digits == 5
    assert float(constants.noise_optimal_probability) == 0.79681213002002004616  # the nearest double


@pytest.mark.parametrize(
    ("value", "digits", "shown"),
    [
        ("6.75", 5, "6.7500"),
        ("6.75", 1, "7"),
        ("-1.20653357", 4, "-1.207"),
        ("9.9999", 3, "10.0"),
        ("49152", 3, "4.92e+4"),
        ("49152", 5, "49152"),
        ("0.00000123456", 3, "1.23e-6"),
        ("0", 7, "0"),
    ],
)
def test_significant_digits_are_rounded_and_padded(value, digits, shown):
    assert computed(constants.square_product_upper_edge, compute=lambda: mp.mpf(value)).digits(digits) == shown


BOUND_DIGITS = 14
"""The proved bounds of the Tracy–Widom constants against Fredholm determinants: no Painlevé equation, no shared code.

    F_1(s) = det(I - A),  F_2(s) = det(I - A) det(I + A),  A(x, y) = Ai(x + y + s) on x, y ≥ 0  (Ferrari and Spohn 2005)

A is ∫ f(z) exp(-z(x + y)) dz / 2πi along Re z = c, f = exp(z³/3 - z s). By the trapezoidal rule of step h it is of
finite rank, det(δ_jl ∓ w_j / (z_j + z_l)) its determinant. The trace norm of exp(-z(x + y)) is 1/(2 Re z), and the
error of the rule an integral along Re z = c ± a with a factor of at most 1/(exp(2πa/h) - 1), so that all is bounded by

    ‖A‖ ≤ N(c) = ∫ |f(c + iy)| dy / (4π c) = exp(c³/3 - c s) / (4 √π c^(3/2)),
    |det(I - A) - det(I - B)| ≤ ‖A - B‖ exp(1 + ‖A‖ + ‖B‖)                                       (Simon 1977).
"""


def norm(c: arb, s: arb) -> arb:
    """N(c)."""
    return (c**3 / 3 - c * s).exp() / (4 * arb.pi().sqrt() * c ** rational(3, 2))


def determinants(s: arb) -> tuple[arb, arb]:
    """det(I ∓ A)."""
    c, a, h, most = arb(2), rational(7, 4), rational(3, 16), 26
    nodes = [acb(c, h * j) for j in range(-most, most + 1)]
    weights = [(z**3 / 3 - z * s).exp() * h / (2 * arb.pi()) for z in nodes]
    off = sum(norm(c + side * a, s) for side in (1, -1)) / ((2 * arb.pi() * a / h).exp() - 1)
    # |w_j| = |w_0| exp(-c (hj)²) falls at least geometrically beyond the last.
    off += 2 * abs(weights[-1]) / (2 * c) / (1 - (-2 * c * h**2 * most).exp())
    whole = norm(rational(3, 4), s)
    error = bounded(off * (1 + 2 * whole + off).exp())
    found = []
    for sign in (-1, 1):
        rows = [
            [(1 if j == k else 0) + sign * weights[j] / (nodes[j] + nodes[k]) for k in range(len(nodes))]
            for j in range(len(nodes))
        ]
        found.append(acb_mat(rows).det().real + error)
    return found[0], found[1]


@pytest.mark.parametrize("per_mille", mostly_exhaustive([500, 950, 990, 999], always=1))
@pytest.mark.parametrize("beta", [1, 2])
def test_fredholm_determinants_are_the_probabilities_at_the_quantiles(beta, per_mille):
    name = {500: "50", 950: "95", 990: "99", 999: "99_9"}[per_mille]
    one = constants.v1.find(f"tracy_widom_{beta}_quantile_{name}")
    with ctx.workdps(45):
        unit = arb(10) ** -BOUND_DIGITS
        for end, sign in zip(one.enclosure, (-1, 1), strict=True):
            minus, plus = determinants(arb(end) + sign * unit)
            law = minus if beta == 1 else minus * plus
            excess = sign * (law - rational(per_mille, 1000))
            assert 0 < excess < unit
