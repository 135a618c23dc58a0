"""Checks of parameters that every room makes alike: the value in its own type, or a ParameterError that names it."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Iterable
from fractions import Fraction
from typing import TYPE_CHECKING, Any, SupportsFloat

from rmtbase.errors import ParameterError

if TYPE_CHECKING:  # the constants, which are checked here too, are had without NumPy
    import numpy as np
    from numpy.typing import NDArray

NORMALIZATIONS = ("none", "sqrt_d")
"""``"none"``: the raw product; ``"sqrt_d"``: the product divided by √d_model."""

INITIALIZATIONS = ("normal", "uniform", "truncated_normal", "orthogonal")
"""How a matrix can have been drawn: with normal or uniform entries, with normal ones cut at two standard deviations, or
with orthonormal rows or columns.

``trunc_normal_`` of PyTorch and transformers cuts at the absolute limits -2 and 2: at σ = 0.02 its entries are normal.
"""

_MAX_SEED = 2**63
_WIDEST = 10**12  # beyond it the laws' own accuracy is no longer that of float64
_ROUNDED_P = 1e-12  # by which the rounding of a law may take a p-value beyond 0 or 1
_SMALLEST_PRODUCT = 1e-35  # of the sigmas; beyond it and its inverse the eigenvalues squared leave the doubles


def require_positive_integer(name: str, value: object) -> int:
    """``value`` as an int, or a :class:`ParameterError` if it is not a positive integer (bool excluded)."""
    return _integer(name, value, 1, "a positive integer")


def _integer(name: str, value: object, least: int, expected: str) -> int:
    try:
        number = None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:  # what is no integer, and arrays of several
        number = None
    if number is None or number < least:
        raise ParameterError(name, value, expected)
    return number


def require_positive_number(name: str, value: object) -> float:
    """``value`` as a float, or a :class:`ParameterError` if it is not a finite positive real number."""
    return _number(name, value, 0.0, "a finite positive number")


def require_finite_number(name: str, value: object) -> float:
    """``value`` as a float, or a :class:`ParameterError` if it is not a finite real number."""
    return _number(name, value, -math.inf, "a finite number")


def _number(name: str, value: object, above: float, expected: str) -> float:
    try:
        number = float(value) if isinstance(value, SupportsFloat) and not isinstance(value, bool) else math.nan
    except (TypeError, ValueError, OverflowError):  # arrays of several numbers, integers beyond float64
        number = math.nan
    if not above < number < math.inf:
        raise ParameterError(name, value, expected)
    return number


def require_draws(value: object) -> int:
    """``value`` as an int, or a :class:`ParameterError` unless it is an integer of at least 2."""
    draws = require_positive_integer("draws", value)
    if draws < 2:
        raise ParameterError("draws", value, "at least 2 (a standard error needs a spread)")
    return draws


def require_seed(seed: object) -> int:
    """``seed`` as an int, or a :class:`ParameterError` if it is no integer in [0, 2^63)."""
    expected = "an integer from 0 to 2^63 - 1"
    number = _integer("seed", seed, 0, expected)
    if number >= _MAX_SEED:
        raise ParameterError("seed", seed, expected)
    return number


def require_head_shape(d_model: object, d_head: object) -> tuple[int, int]:
    """(d_model, d_head) as ints, or a :class:`ParameterError` unless both are positive and d_head ≤ d_model."""
    width = require_positive_integer("d_model", d_model)
    head = require_positive_integer("d_head", d_head)
    if width > _WIDEST:
        raise ParameterError("d_model", width, f"at most {_WIDEST}")
    if head > width:
        raise ParameterError("d_head", head, f"at most d_model = {width} (W_Q is d_head × d_model, of rank d_head)")
    return width, head


def require_dims(value: object) -> tuple[int, ...]:
    """The dimensions (n_0, …, n_L) of a chain, L ≥ 1, as ints, or a :class:`ParameterError`."""
    if not isinstance(value, Iterable) or isinstance(value, str | bytes):
        raise ParameterError("dims", value, "a sequence (n_0, ..., n_L) of at least two positive integers")
    dims = tuple(require_positive_integer(f"dims[{index}]", n) for index, n in enumerate(value))
    if len(dims) < 2:
        raise ParameterError("dims", dims, "at least two dimensions (n_0, ..., n_L)")
    return dims


def require_sigmas(sigmas: object, count: int) -> tuple[float, ...]:
    """One standard deviation per factor of a chain, or a :class:`ParameterError`; None means 1 for each."""
    if sigmas is None:
        return (1.0,) * count
    if not isinstance(sigmas, Iterable) or isinstance(sigmas, str | bytes):
        raise ParameterError("sigmas", sigmas, f"a sequence of {count} positive numbers, one per factor")
    checked = tuple(require_positive_number(f"sigmas[{index}]", value) for index, value in enumerate(sigmas))
    if len(checked) != count:
        raise ParameterError("sigmas", checked, f"{count} values, one per factor of the chain")
    return checked


def require_flag(name: str, value: object) -> bool:
    """``value``, or a :class:`ParameterError` unless it is a bool."""
    if not isinstance(value, bool):
        raise ParameterError(name, value, "True or False")
    return value


def require_text(name: str, value: object) -> str:
    """``value`` as it is, or a :class:`ParameterError` unless it is a text."""
    if not isinstance(value, str):
        raise ParameterError(name, value, "a text")
    return value


def require_order(k: object) -> int:
    """The order of a moment as an int, or a :class:`ParameterError` unless it is 0 or a positive integer."""
    return _integer("k", k, 0, "a non-negative integer")


def require_moderate_sigmas(sigmas: object, count: int) -> tuple[float, ...]:
    """As :func:`require_sigmas`, where the fourth power of their product, which Σλ² has, is a double."""
    checked = require_sigmas(sigmas, count)
    if not _SMALLEST_PRODUCT < math.prod(checked) < 1.0 / _SMALLEST_PRODUCT:
        raise ParameterError(
            "sigmas",
            checked,
            f"a product between {_SMALLEST_PRODUCT:g} and {1.0 / _SMALLEST_PRODUCT:g}; rescale the matrix",
        )
    return checked


def require_trim(trim: object) -> Fraction:
    """``trim`` as the rational it is written as, 0.1 as 1/10; a :class:`ParameterError` unless 0 ≤ trim < 1/2."""
    expected = "a number t with 0 <= t < 1/2, the share left out at either end"
    if not 0 <= _number("trim", trim, -math.inf, expected) < 0.5:
        raise ParameterError("trim", trim, expected)
    return trim if isinstance(trim, Fraction) else Fraction(repr(float(trim)))  # type: ignore[arg-type]


def require_normalization(normalization: object) -> str:
    """``normalization``, or a :class:`ParameterError` if it is none of :data:`NORMALIZATIONS`."""
    if not isinstance(normalization, str) or normalization not in NORMALIZATIONS:
        raise ParameterError("normalization", normalization, "'none' or 'sqrt_d'")
    return normalization


def require_independent_entries(initialization: object, what: str) -> str:
    """As :func:`require_initialization`, of independent entries only, which ``what`` needs."""
    if require_initialization(initialization) == "orthogonal":
        others = ", ".join(repr(one) for one in INITIALIZATIONS if one != "orthogonal")
        expected = f"one of {others}: {what} needs independent entries, and those of an orthogonal matrix are not"
        raise ParameterError("initialization", initialization, expected)
    return str(initialization)


def require_initialization(initialization: object) -> str:
    """``initialization``, or a :class:`ParameterError` if it is none of :data:`INITIALIZATIONS`."""
    if not isinstance(initialization, str) or initialization not in INITIALIZATIONS:
        raise ParameterError("initialization", initialization, f"one of {', '.join(INITIALIZATIONS)}")
    return initialization


def require_real_array(name: str, value: object) -> NDArray[Any]:
    """``value`` as an array in its own dtype, or a :class:`ParameterError` unless it is one of real numbers, all there.

    Arrays of JAX and tensors of torch, on any device, with or without gradients, are taken with all their bits:
    bfloat16, which NumPy lacks, as that of ml_dtypes. Refused are complex numbers, truth values, text, dates and
    objects, and masked arrays with masked entries, whose masks NumPy would drop without a word.
    """
    import numpy as np

    expected = "real numbers"
    if masked := _masked(value):
        raise ParameterError(
            name, f"{masked} masked entries", f"{expected} without masked ones; fill or leave them out"
        )
    try:
        array = _numpy_array(value)
    except (ValueError, TypeError, RuntimeError) as error:  # a ragged list, a tensor that is no NumPy array
        raise ParameterError(name, type(value).__name__, f"{expected} ({error})") from error
    # NumPy's own kinds, and the narrow floats that other packages add to them, whose kind is that of raw bytes.
    if array.dtype.kind == "b" or not np.can_cast(array.dtype, np.float64, "same_kind"):
        found = f"dtype {array.dtype}" if array.ndim else type(value).__name__  # of what is no array at all
        raise ParameterError(name, found, expected)
    return array


def _numpy_array(value: Any) -> NDArray[Any]:
    """What NumPy makes of a value; of tensors of torch too, for which nothing is imported but what made them."""
    import numpy as np

    torch = sys.modules.get("torch")
    if torch is None:
        return np.asarray(value)
    if isinstance(value, torch.Tensor):
        if value.dtype != torch.bfloat16:
            return value.numpy(force=True)
        import ml_dtypes

        return value.detach().cpu().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    if isinstance(value, list | tuple) and any(isinstance(one, torch.Tensor) for one in value):
        return np.stack([_numpy_array(one) for one in value])
    return np.asarray(value)


def require_real_numbers(name: str, value: object) -> NDArray[np.float64]:
    """As :func:`require_real_array`, in float64."""
    import numpy as np

    return np.asarray(require_real_array(name, value), dtype=np.float64)


def require_finite_numbers(name: str, value: object) -> NDArray[np.float64]:
    """As :func:`require_real_numbers`; a :class:`ParameterError` also where one of them is NaN or infinite."""
    import numpy as np

    array = require_real_numbers(name, value)
    if not np.isfinite(array).all():
        raise ParameterError(name, _not_finite(array), "finite numbers")
    return array


def require_matrices(name: str, value: object) -> NDArray[np.float64]:
    """Finite matrices ``(..., rows, columns)`` in float64, or a :class:`ParameterError`."""
    array = require_finite_numbers(name, value)
    if array.ndim < 2:
        raise ParameterError(name, f"shape {array.shape}", "matrices (..., rows, columns)")
    return array


def require_p_values(name: str, value: object) -> NDArray[np.float64]:
    """P-values in float64, NaN where a test was not made; a :class:`ParameterError` where one is outside [0, 1].

    What rounding takes beyond the ends by 1e-12 or less is put back on them.
    """
    import numpy as np

    p = require_real_numbers(name, value)
    outside = (p < -_ROUNDED_P) | (p > 1.0 + _ROUNDED_P)
    if outside.any():
        found = f"{np.count_nonzero(outside)} of {p.size} outside [0, 1], such as {p[outside].flat[0]:g}"
        raise ParameterError(name, found, "p-values from 0 to 1, NaN where a test was not made")
    return np.clip(p, 0.0, 1.0)


def require_probabilities(name: str, value: object) -> NDArray[np.float64]:
    """Probabilities in float64, or a :class:`ParameterError` unless each lies between 0 and 1."""
    p = require_real_numbers(name, value)
    if not ((p >= 0.0) & (p <= 1.0)).all():
        raise ParameterError(name, value, "numbers from 0 to 1")
    return p


def _not_finite(array: NDArray[np.float64]) -> str:
    import numpy as np

    nan, infinite = (int(np.count_nonzero(one(array))) for one in (np.isnan, np.isinf))
    return f"{nan} NaN and {infinite} infinite values among {array.size}"


def _masked(value: object) -> int:
    import numpy as np

    if isinstance(value, np.ma.MaskedArray):
        return int(np.ma.count_masked(value))
    return sum(map(_masked, value)) if isinstance(value, list | tuple) else 0


def require_interval(name: str, value: object) -> tuple[float, float]:
    """``value`` as (low, high), or a :class:`ParameterError` unless it is two finite numbers with low < high."""
    expected = "two finite numbers (low, high) with low < high"
    try:
        low, high = (float(end) for end in value)  # type: ignore[attr-defined]
    except (TypeError, ValueError, OverflowError):
        raise ParameterError(name, value, expected) from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ParameterError(name, value, expected)
    return low, high
