"""Tracy–Widom laws to any number of digits, from the Hastings-McLeod solution of the second Painlevé equation.

    q'' = s q + 2 q³,   q(s) ~ Ai(s) as s → ∞,
    (ln F_2)'' = -q²,   F_1² = F_2 exp(-∫_s^∞ q)        (Tracy & Widom 1994, 1996)

are solved from right to left by Taylor series on steps of length 1/2, as by Prähofer & Spohn (2004). With
s = s_0 - τ/2 the coefficients of q in τ obey 8 (n+1)(n+2) q_{n+2} = 2 s_0 q_n - q_{n-1} + 4 [q³]_n. All numbers are
integers, in units of 2^-bits.

To the left q is unstable: an error made at s > 0 grows as Ai(0)/Ai(s) = exp(2/3 s^(3/2)) up to 0, and from there to -t
as exp((2√2/3) t^(3/2)). The computation carries as many additional digits. The mass beyond the ends,
1 - F_1 ~ exp(-2/3 s^(3/2)) and F_1 ~ exp(-t³/24), is below the digits asked for.
"""

import math
from collections.abc import Callable
from functools import lru_cache, partial
from operator import mul

from mpmath import mp

from rmtbase.constants._digits import Number

_GUARD = 14  # digits: the fourth moment weighs the tails with s⁴, up to 10⁷
_SETTLED = 4  # number of successive terms, zero to rounding, that ends a series


Step = tuple[int, tuple[list[int], list[int]]]
"""Start and Taylor coefficients of F_1 and F_2 in τ on s = start/2 - τ/2, 0 ≤ τ ≤ 1, in units of 2^-bits."""


def tracy_widom_moments(beta: int) -> tuple[Number, Number, Number, Number]:
    """Mean, variance, skewness and excess kurtosis of TW_beta, β = 1 or 2, at mpmath's working precision."""
    bits, steps = _solution(mp.dps)
    totals = [0] * 5  # 2^k E s^k
    for start, both in steps:
        series = both[beta - 1]
        # dF = Σ n f_n τ^(n-1) dτ, and F falls along τ.
        of_power = [-sum(n * f // (n + j) for n, f in enumerate(series) if n) for j in range(5)]
        for k in range(5):
            totals[k] += sum(math.comb(k, j) * start ** (k - j) * (-1) ** j * of_power[j] for j in range(k + 1))
    with mp.workprec(bits):
        m1, m2, m3, m4 = (mp.ldexp(total, -bits - k) for k, total in enumerate(totals) if k)
        variance = m2 - m1**2
        third = m3 - 3 * m1 * m2 + 2 * m1**3
        fourth = m4 - 4 * m1 * m3 + 6 * m1**2 * m2 - 3 * m1**4
        moments = m1, variance, third / variance ** mp.mpf("1.5"), fourth / variance**2 - 3
    return +moments[0], +moments[1], +moments[2], +moments[3]


def tracy_widom_quantile(beta: int, percent: str) -> Number:
    """Solve F_beta(s) = percent/100, not too far in the tails, at mpmath's working precision."""
    probability, (bits, steps) = mp.mpf(percent) / 100, _solution(mp.dps)
    with mp.workprec(bits):
        target = int(mp.ldexp(probability, bits))
        start, series = next((start, both[beta - 1]) for start, both in steps if sum(both[beta - 1]) < target)
        falling = [mp.ldexp(coefficient, -bits) for coefficient in reversed(series)]
        tau, tolerance = mp.mpf(1) / 2, mp.mpf(10) ** (-mp.dps // 2)
        while True:
            value, slope = mp.polyval(falling, tau, derivative=True)
            change = (value - probability) / slope
            tau -= change
            if abs(change) < tolerance:  # the next Newton step squares it
                break
        value, slope = mp.polyval(falling, tau, derivative=True)
        root = (start - tau + (value - probability) / slope) / 2
    return +root


@lru_cache(maxsize=8)
def _solution(digits: int) -> tuple[int, tuple[Step, ...]]:
    """(bits, steps from right to left) that give moments to ``digits`` digits."""
    nats = math.log(10) * (digits + _GUARD)
    right, left = math.ceil((1.5 * nats) ** (2 / 3)), math.ceil((24 * nats) ** (1 / 3))
    growth = 2 / 3 * right**1.5 + 2 * math.sqrt(2) / 3 * left**1.5
    bits = math.ceil((nats + growth) / math.log(2))
    with mp.workprec(bits + 32):
        q = [int(mp.ldexp(mp.airyai(right), bits)), int(mp.ldexp(-mp.airyai(right, derivative=1) / 2, bits))]
    integral = of_square = log_f2 = 0
    f1 = f2 = 1 << bits
    steps = []
    for start in range(2 * right, -2 * left, -1):
        q, square = _hastings_mcleod(q, start, bits)
        # ∫_s^∞ q, ∫_s^∞ q² = (ln F_2)' and ln F_2 = -∫_s^∞ (ln F_2)'; ds = -dτ/2.
        integrals, of_squares = _primitive(q, integral), _primitive(square, of_square)
        logs = _primitive([-c for c in of_squares], log_f2)
        halves = [(a - b) // 2 for a, b in zip(logs, integrals, strict=True)]
        steps.append((start, (_exponential(halves, f1, bits), _exponential(logs, f2, bits))))
        integral, of_square, log_f2 = sum(integrals), sum(of_squares), sum(logs)
        f1, f2 = map(sum, steps[-1][1])
        q = [sum(q), sum(n * c for n, c in enumerate(q))]
    return bits, tuple(steps)


def _hastings_mcleod(start_values: list[int], start: int, bits: int) -> tuple[list[int], list[int]]:
    """Taylor coefficients of q and q² in τ, from q and dq/dτ at τ = 0."""
    q, square = list(start_values), []
    settled = 0
    while settled < _SETTLED:
        n = len(square)
        square.append(_coefficient(q, q, n) >> bits)
        dividend = start * q[n] - (q[n - 1] if n else 0) + 4 * (_coefficient(q, square, n) >> bits)
        q.append(dividend // (8 * (n + 1) * (n + 2)))
        settled = settled + 1 if abs(q[-1]) <= 2 else 0
    return q[: len(square)], square


def _coefficient(a: list[int], b: list[int], n: int) -> int:
    """Coefficient of τ^n in the product of two series."""
    return sum(map(mul, a[: n + 1], b[n::-1]))


def _primitive(series: list[int], constant: int) -> list[int]:
    """Half the primitive of a series, because ∫_s^∞ grows by dτ/2 as s falls."""
    return [constant, *(c // (2 * (n + 1)) for n, c in enumerate(series[:-1]))]


def _exponential(log: list[int], constant: int, bits: int) -> list[int]:
    """Series F with value ``constant`` at τ = 0 and ln F = log + constant', from n F_n = Σ k log_k F_{n-k}."""
    weighted = [k * c for k, c in enumerate(log)]
    series = [constant]
    for n in range(1, len(log)):
        series.append(_coefficient(weighted[1:], series, n - 1) // (n << bits))
    return series


def _moment(beta: int, place: int) -> Number:
    return tracy_widom_moments(beta)[place]


_MOMENTS = ("mean", "variance", "skewness", "excess_kurtosis")
CONSTANTS: dict[str, Callable[..., Number]] = {
    **{f"tracy_widom_{b}_{name}": partial(_moment, b, k) for b in (1, 2) for k, name in enumerate(_MOMENTS)},
    **{f"tracy_widom_{beta}_std": mp.sqrt for beta in (1, 2)},
    **{
        f"tracy_widom_{beta}_quantile_{percent.replace('.', '_')}": partial(tracy_widom_quantile, beta, percent)
        for beta in (1, 2)
        for percent in ("50", "95", "99", "99.9")
    },
    "zeta_prime_minus_one": lambda: mp.zeta(-1, derivative=1),
    "tracy_widom_1_left_tail": lambda zeta: mp.mpf(2) ** (mp.mpf(-11) / 48) * mp.exp(zeta / 2),
    "tracy_widom_2_left_tail": lambda zeta: mp.mpf(2) ** (mp.mpf(1) / 24) * mp.exp(zeta),
}
