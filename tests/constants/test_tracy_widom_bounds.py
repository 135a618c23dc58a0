"""The proved bounds of the Tracy–Widom constants against Fredholm determinants: no Painlevé equation, no shared code.

    F_1(s) = det(I - A),  F_2(s) = det(I - A) det(I + A),  A(x, y) = Ai(x + y + s) on x, y ≥ 0  (Ferrari and Spohn 2005)

A is ∫ f(z) exp(-z(x + y)) dz / 2πi along Re z = c, f = exp(z³/3 - z s). By the trapezoidal rule of step h it is of
finite rank, det(δ_jl ∓ w_j / (z_j + z_l)) its determinant. The trace norm of exp(-z(x + y)) is 1/(2 Re z), and the
error of the rule an integral along Re z = c ± a with a factor of at most 1/(exp(2πa/h) - 1), so that all is bounded by

    ‖A‖ ≤ N(c) = ∫ |f(c + iy)| dy / (4π c) = exp(c³/3 - c s) / (4 √π c^(3/2)),
    |det(I - A) - det(I - B)| ≤ ‖A - B‖ exp(1 + ‖A‖ + ‖B‖)                                       (Simon 1977).
"""

import pytest
from balls import bounded, rational
from flint import acb, acb_mat, arb, ctx

from exhaustive import mostly_exhaustive
from rmtbase.constants import v1

DIGITS = 14


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
    one = v1.find(f"tracy_widom_{beta}_quantile_{name}")
    with ctx.workdps(45):
        unit = arb(10) ** -DIGITS
        for end, sign in zip(one.enclosure, (-1, 1), strict=True):
            minus, plus = determinants(arb(end) + sign * unit)
            law = minus if beta == 1 else minus * plus
            excess = sign * (law - rational(per_mille, 1000))
            assert 0 < excess < unit
