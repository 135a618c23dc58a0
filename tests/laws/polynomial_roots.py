"""The roots of a polynomial by mpmath, whichever of its versions: later ones begin with the lowest power."""

import inspect
from typing import Any

import mpmath

LOWEST_FIRST = "asc" in inspect.signature(mpmath.polyroots).parameters


def polynomial_roots(coefficients: list[Any], **how: Any) -> list[Any]:
    """Of Σ c_k x^(n - k), the coefficient of the highest power first, with the keywords of ``mpmath.polyroots``."""
    if LOWEST_FIRST:
        return mpmath.polyroots(coefficients[::-1], asc=True, **how)
    return mpmath.polyroots(coefficients, **how)
