"""Integrals, roots and cut ends in ball arithmetic."""

from collections.abc import Callable

from flint import acb, arb, ctx, fmpq

HALF_PI = 1.5707963  # a little less
Integrand = Callable[[acb, bool], acb]


def rational(numerator: int, denominator: int) -> arb:
    """Ball around a fraction."""
    return arb(fmpq(numerator, denominator))


def nan() -> acb:
    """Value of an integrand where it may not be analytic."""
    return acb(float("nan"))


def bounded(most: arb) -> arb:
    """Ball of all numbers whose modulus is at most that of ``most``."""
    return arb(0, abs(most).upper())


def reach() -> float:
    """Nats: exp(-reach) is below the working precision."""
    return 0.6932 * ctx.prec + 10


def tiny_end() -> arb:
    """Return an ε > 0 so small that ε ln² ε is below the working precision."""
    return (-arb(int(reach()) + 30)).exp()


def log(z: acb, analytic: bool) -> acb:
    """Principal logarithm; not finite where it must be analytic and is not."""
    return z.log(analytic=analytic)


def integral(integrand: Integrand, low: arb, high: arb) -> arb:
    """∫ over [low, high] of a function that is real there."""
    return acb.integral(integrand, acb(low), acb(high), eval_limit=10**7).real


def half_line(integrand: Integrand, low: arb, high: arb) -> arb:
    """Integrate a function with a logarithm at 0: on x = exp(u), where |Im u| < π/2 so that Re x > 0."""

    def on_logarithms(u: acb, analytic: bool) -> acb:
        if analytic and not abs(u.imag) < HALF_PI:
            return nan()
        x = u.exp()
        return x * integrand(x, analytic)

    return integral(on_logarithms, low.log(), high.log())


def root(increasing: Callable[[arb], arb], low: arb, high: arb) -> arb:
    """Find the root of an increasing function between two exact numbers, to the point where rounding hides its sign.

    Raises:
        ArithmeticError: unless it is negative at ``low`` and positive at ``high``.
    """
    if not (increasing(low) < 0 and increasing(high) > 0):
        raise ArithmeticError(f"no root between {low} and {high}")
    while True:
        middle = ((low + high) / 2).mid()
        value = increasing(middle)
        if value > 0:
            high = middle
        elif value < 0:
            low = middle
        else:
            return low.union(high)
        if not (low < middle or middle < high):
            return low.union(high)
