"""Checks of the parameters that the laws share."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import SupportsIndex

from rmtbase.errors import ParameterError
from rmtbase.parameters import require_positive_number

_SMALLEST_PRODUCT = 1e-35  # of the sigmas; beyond it and its inverse the eigenvalues squared leave the doubles


def checked_sigmas(sigmas: object, count: int) -> tuple[float, ...]:
    """Return one standard deviation per factor; None means 1 for each."""
    if sigmas is None:
        return (1.0,) * count
    if not isinstance(sigmas, Iterable) or isinstance(sigmas, str | bytes):
        raise ParameterError("sigmas", sigmas, f"a sequence of {count} positive numbers, one per factor")
    checked = tuple(require_positive_number(f"sigmas[{index}]", value) for index, value in enumerate(sigmas))
    if len(checked) != count:
        raise ParameterError("sigmas", checked, f"{count} values, one per factor of the chain")
    return checked


def checked_flag(name: str, value: object) -> bool:
    """Return a bool as it is, and nothing else for one."""
    if not isinstance(value, bool):
        raise ParameterError(name, value, "True or False")
    return value


def checked_order(k: object) -> int:
    """Return the order of a moment as an int, or a ParameterError unless it is 0, 1, 2, ..."""
    if isinstance(k, bool) or not isinstance(k, SupportsIndex) or operator.index(k) < 0:
        raise ParameterError("k", k, "a non-negative integer")
    return operator.index(k)


def moderate_sigmas(sigmas: object, count: int) -> tuple[float, ...]:
    """Return the standard deviations where the fourth power of their product, which sum lambda^2 has, is a double."""
    checked = checked_sigmas(sigmas, count)
    if not _SMALLEST_PRODUCT < math.prod(checked) < 1.0 / _SMALLEST_PRODUCT:
        raise ParameterError(
            "sigmas",
            checked,
            f"a product between {_SMALLEST_PRODUCT:g} and {1.0 / _SMALLEST_PRODUCT:g}; rescale the matrix",
        )
    return checked


def variance_factor(dims: Sequence[int], sigmas: Sequence[float], normalization: str) -> Fraction:
    """Return, exactly, what multiplies the eigenvalues of the sigma = 1, raw chain.

    It is prod sigma_l^2, divided by n_0 for ``sqrt_d``, which divides the product by sqrt(n_0).
    """
    factor = math.prod((Fraction(sigma) ** 2 for sigma in sigmas), start=Fraction(1))
    return factor / dims[0] if normalization == "sqrt_d" else factor


def as_float(value: Fraction) -> float:
    """Return the nearest double, inf where the value is too large."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
