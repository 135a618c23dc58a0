"""Decimal digits of an mpmath computation, correctly rounded to any requested number."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any

from mpmath import mp

from rmtbase.errors import RmtbaseError

Number = Any  #: An mpf; mpmath has no types

Computation = Callable[[], Number]  #: Function that returns a value at mpmath's working precision

_GUARDS = (10, 40, 160)
_BETWEEN = 20


class PrecisionError(RmtbaseError, ArithmeticError):
    """Error of a computation whose digits do not agree at two precisions.

    Attributes:
        digits: number of digits asked for.
        found: values at the last two working precisions.
    """

    def __init__(self, digits: int, found: tuple[str, str]) -> None:
        self.digits, self.found = digits, found
        super().__init__(f"{digits} digits: found {found[0]} and {found[1]} at two precisions; ask for fewer")


def agreed_digits(compute: Computation, digits: int) -> str:
    """Round to digits on which two precisions agree, 10 and 30 digits beyond; higher ones if they differ."""
    low = high = ""
    for guard in _GUARDS:
        ends = []
        for working in (digits + guard, digits + guard + _BETWEEN):
            with mp.workdps(working):
                ends.append(significant(Decimal(str(mp.nstr(mp.mpf(compute()), working))), digits))
        low, high = ends
        if low == high:
            return high
    raise PrecisionError(digits, (low, high))


def significant(value: Decimal, digits: int) -> str:
    """Round ``value`` to ``digits`` significant digits and keep trailing zeros: 6.75 to five digits is 6.7500."""
    if not value:
        return "0"
    rounded = Context(prec=digits).plus(value)
    exponent = rounded.adjusted()
    padded = rounded.quantize(Decimal((0, (1,), exponent - digits + 1)), context=Context(prec=digits))
    return f"{padded:f}" if -5 <= exponent < digits else f"{padded:e}"
