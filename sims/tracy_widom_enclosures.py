"""Lower and upper bounds of moments and quantiles of the Tracy–Widom laws, in ball arithmetic.

    q'' = s q + 2 q³,  q ~ Ai as s → ∞                                      (Hastings and McLeod 1980)
    ln F_2(s) = -∫_s^∞ (t - s) q(t)² dt,  ln F_1 = (ln F_2 - ∫_s^∞ q) / 2    (Tracy and Widom 1994, 1996)

From R, where q is Ai to more than the working precision, steps s = start - τ/2, 0 ≤ τ ≤ 1, go left. Each has the first
N Taylor coefficients of q, ln F and F in τ as balls, and a bound of all that follow. With

    |c_n| ≤ A ϱ^-n / (n+1)²  for n < N,    Σ_k (k+1)^-2 (n-k+1)^-2 ≤ C (n+1)^-2,  C = 2π²/3,

the recurrence 4(n+1)(n+2) c_{n+2} = s c_n - c_{n-1}/2 + 2 Σ c_i c_j c_k gives the same for every n, if at n = N - 2

    (ϱ²/4) (n+3)² / ((n+1)(n+2)) ((|s| + 2C²A²)/(n+1)² + (ϱ/2)/n²) ≤ 1,

which falls with n; the coefficients of q² are then at most C A² ϱ^-n / (n+1)², and those of F = exp ln F at most
ϱ^-n max |F| over |τ| ≤ ϱ (Cauchy).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from operator import mul

from balls import bounded, rational, reach, root
from flint import arb, arb_poly, arb_series, ctx

_RATIO = 4  # ϱ: convergence in steps
_LAWS = (1, 2)


@dataclass(frozen=True)
class _Edge:
    """q, its slope in τ, ∫_s^∞ q, (ln F_2)' = ∫_s^∞ q² and ln F_2 where a step begins."""

    q: arb
    slope: arb
    integral: arb
    of_square: arb
    log_f2: arb


@dataclass(frozen=True)
class _Step:
    """F_1 and F_2 on s = start - τ/2, 0 ≤ τ ≤ 1: polynomials in τ with balls as coefficients, which contain them."""

    start: arb
    law: dict[int, arb_poly]

    def at(self, beta: int, s: arb) -> arb:
        """F_beta(s)."""
        return self.law[beta](2 * (self.start - s))

    def moment(self, beta: int, power: int) -> arb:
        """∫ s^power F_beta ds over the step."""
        return (arb_poly([self.start, rational(-1, 2)]) ** power * self.law[beta]).integral()(1) / 2


@dataclass(frozen=True)
class _Solution:
    """The steps from right to left, and what bounds the rest on either side."""

    right: arb
    airy: arb  # Ai at the right end
    steps: tuple[_Step, ...]
    left: arb
    of_square: arb  # (ln F_2)' at the left end

    def moment(self, beta: int, power: int) -> arb:
        """E s^k = R^k - k ∫_-∞^R s^(k-1) F ds + k ∫_R^∞ s^(k-1) (1 - F) ds.

        Right of R 1 - F ≤ -ln F < Ai(R) exp(-√R (s - R)), since Ai'² > s Ai²; left of -T F ≤ F(-T) exp(-v (-T - s)),
        v = (ln F_2)'(-T) β/2, since this slope grows to the left and q > 0 there. s^(k-1) grows at most as
        exp((k-1) |s - end| / end).
        """
        k, below = power, -self.left
        rate = self.of_square * beta / 2 - (k - 1) / below
        if not (rate > 0 and self.right > 16):
            raise ArithmeticError(f"[{self.left}, {self.right}] is too narrow")
        left = below ** (k - 1) * self.steps[-1].at(beta, self.left) / rate
        right = self.right ** (k - 1) * self.airy
        inside = sum((step.moment(beta, k - 1) for step in self.steps), arb(0))
        return self.right**k - k * inside + bounded(k * left) + bounded(k * right)

    def quantile(self, beta: int, probability: arb) -> arb:
        """Return the s with F_beta(s) = probability."""
        step = next(one for one in self.steps if one.at(beta, one.start - rational(1, 2)) < probability)
        return root(lambda s: step.at(beta, s) - probability, step.start - rational(1, 2), step.start)


def _begin(s: arb) -> _Edge:
    """q = w Ai with 1 ≤ w ≤ 1 + 3κ and 0 ≤ -w' ≤ 3 ∫_s^∞ Ai², κ = ∫_s^∞ (t - s) Ai².

    For (Ai² w')' = 2 Ai⁴ w³, and Ai falls, so that -w' ≤ 2 w³ ∫_s^∞ Ai² and w - 1 ≤ 2 max w³ κ. Both integrals are
    elementary: ∫_s^∞ Ai² = Ai'² - s Ai² and 3κ = 2s² Ai² - 2s Ai'² - Ai Ai'. ∫_s^∞ Ai ≤ -Ai'/s.

    Raises:
        ArithmeticError: where κ may not be below 1/25.
    """
    airy, slope = s.airy_ai(), s.airy_ai(derivative=1)
    square = slope**2 - s * airy**2
    kappa = (2 * s**2 * airy**2 - 2 * s * slope**2 - airy * slope) / 3
    if not 25 * kappa < 1:
        raise ArithmeticError(f"q is not near Ai at {s}")
    w = 1 + bounded(3 * kappa)
    return _Edge(
        q=airy * w,
        slope=-(slope * w + airy * bounded(3 * square)) / 2,
        integral=bounded(slope / s * w),
        of_square=bounded(square * w**2),
        log_f2=bounded(kappa * w**2),
    )


def _coefficients(edge: _Edge, start: arb, terms: int) -> tuple[list[arb], list[arb]]:
    """Coefficients of q, and of q² (two fewer)."""
    q, square = [edge.q, edge.slope], []
    for n in range(terms - 2):
        square.append(_coefficient(q, q, n))
        dividend = start * q[n] + 2 * _coefficient(q, square, n) - (q[n - 1] / 2 if n else 0)
        q.append(dividend / (4 * (n + 1) * (n + 2)))
    return q, square


def _coefficient(a: Sequence[arb], b: Sequence[arb], n: int) -> arb:
    """Coefficient of τ^n in the product of two series."""
    return sum(map(mul, a[: n + 1], b[n::-1]), arb(0))


def _majorant(q: Sequence[arb], start: arb) -> arb:
    """Bound A on all coefficients, including those that follow the given ones.

    Raises:
        ArithmeticError: if these are too few to tell.
    """
    most = arb(0)
    for n, c in enumerate(q):
        most = most.max((abs(c) * (n + 1) ** 2 * arb(_RATIO) ** n).upper())
    n = len(q) - 2
    inner = (abs(start) + 2 * _convolution() ** 2 * most**2) / (n + 1) ** 2 + rational(_RATIO, 2 * n**2)
    if not inner * _RATIO**2 * (n + 3) ** 2 / (4 * (n + 1) * (n + 2)) < 1:
        raise ArithmeticError(f"{len(q)} terms do not bound the series at {start}")
    return most


def _convolution() -> arb:
    """C."""
    return 2 * arb.pi() ** 2 / 3


def _step(edge: _Edge, start: arb, terms: int) -> tuple[_Step, _Edge]:
    """Step from ``start``, and the edge at its end."""
    q, square = _coefficients(edge, start, terms)
    most = _majorant(q, start)
    most_square = _convolution() * most**2
    beyond = arb(_RATIO) ** (2 - terms) * _RATIO / (_RATIO - 1)  # Σ ϱ^-n over n ≥ N - 2
    rest, rest_square = bounded(most * beyond), bounded(most_square * beyond)

    series, half = arb_poly(q), rational(1, 2)
    integral = series.integral() * half + edge.integral
    of_square = arb_poly(square).integral() * half + edge.of_square
    log_f2 = edge.log_f2 - of_square.integral() * half
    logs = {1: (log_f2 - integral) * half, 2: log_f2}
    beyond_logs = (most_square * _RATIO**2 + most * _RATIO) / (terms - 2) ** 2  # Σ |l_n| ϱ^n over n ≥ N
    law = {}
    for beta, log in logs.items():
        own = [log[n] for n in range(terms)]
        largest = sum((abs(c) * arb(_RATIO) ** n for n, c in enumerate(own) if n), own[0] + beyond_logs).exp()
        found = arb_series(own, prec=terms).exp()
        coefficients = [found[n] for n in range(terms)]
        coefficients[0] += bounded(largest * beyond)
        law[beta] = arb_poly(coefficients)
    after = _Edge(
        q=series(1) + rest,
        slope=series.derivative()(1) + rest,
        integral=integral(1) + rest,
        of_square=of_square(1) + rest_square,
        log_f2=log_f2(1) + rest_square,
    )
    return _Step(start, law), after


@lru_cache(maxsize=4)
def _solution(precision: int) -> _Solution:
    """Solution for a working precision of so many bits.

    An error of q grows to the left as exp((2√2/3) |s|^(3/2)); additional bits make up for it.
    """
    nats = reach()
    right, left = int((1.5 * nats) ** (2 / 3)) + 1, int((24 * nats) ** (1 / 3)) + 1
    cap, before = ctx.cap, ctx.prec
    try:
        ctx.prec = precision + int(1.4 * left**1.5) + 64
        ctx.cap = terms = ctx.prec // 2 + 24
        edge, steps = _begin(arb(right)), []
        for half in range(2 * right, -2 * left, -1):
            step, edge = _step(edge, arb(half) / 2, terms)
            steps.append(step)
        return _Solution(arb(right), arb(right).airy_ai(), tuple(steps), arb(-left), edge.of_square)
    finally:
        ctx.cap, ctx.prec = cap, before


@lru_cache(maxsize=16)
def _moments(beta: int, precision: int) -> dict[str, arb]:
    """Moments of F_beta at a working precision."""
    m1, m2, m3, m4 = (_solution(precision).moment(beta, k) for k in (1, 2, 3, 4))
    variance = m2 - m1**2
    return {
        "mean": m1,
        "variance": variance,
        "std": variance.sqrt(),
        "skewness": (m3 - 3 * m1 * m2 + 2 * m1**3) / variance ** rational(3, 2),
        "excess_kurtosis": (m4 - 4 * m1 * m3 + 6 * m1**2 * m2 - 3 * m1**4) / variance**2 - 3,
    }


def _moment(beta: int, name: str) -> arb:
    return _moments(beta, ctx.prec)[name]


def _quantile(beta: int, per_mille: int) -> arb:
    return _solution(ctx.prec).quantile(beta, rational(per_mille, 1000))


ENCLOSURES: dict[str, Callable[[], arb]] = {
    **{
        f"tracy_widom_{beta}_{name}": partial(_moment, beta, name)
        for beta in _LAWS
        for name in ("mean", "variance", "std", "skewness", "excess_kurtosis")
    },
    **{
        f"tracy_widom_{beta}_quantile_{name}": partial(_quantile, beta, per_mille)
        for beta in _LAWS
        for name, per_mille in (("50", 500), ("95", 950), ("99", 990), ("99_9", 999))
    },
}
