"""Common checks of parameters: each returns the value in its proper type, or raises a ParameterError that names it."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Iterable
from fractions import Fraction
from typing import TYPE_CHECKING, Any, SupportsFloat

from rmtbase.errors import ParameterError

if TYPE_CHECKING:  # the constants also use these checks, and do not import NumPy
    import numpy as np
    from numpy.typing import NDArray

NORMALIZATIONS = ("none", "sqrt_d")
DEFAULT_NORMALIZATION = "sqrt_d"  # of products, in laws, tables and commands
"""``"none"``: the raw product; ``"sqrt_d"``: the product divided by √d_model."""

INITIALIZATIONS = ("normal", "uniform", "truncated_normal", "orthogonal")
"""Initializations of a matrix: independent normal or uniform entries, normal entries cut off at two standard
deviations, or orthonormal rows or columns.

``trunc_normal_`` of PyTorch and transformers cuts at the absolute limits -2 and 2, so at σ = 0.02 its entries are
normal.
"""

_MAX_SEED = 2**63
_WIDEST = 10**12  # beyond it the laws lose float64 accuracy
_HIGHEST_ORDER = 10_000  # of a moment
_ROUNDED_P = 1e-12  # rounding error by which a p-value may exceed 0 or 1
_SMALLEST_PRODUCT = 1e-35  # of the sigmas; beyond it or its inverse, squared eigenvalues are out of range of float64


def require_positive_integer(name: str, value: object, most: int = 2**53) -> int:
    """Return an integer from 1 to ``most``, by default that up to which float64 counts; booleans are no integers."""
    _integer(name, value, 1, math.inf, "a positive integer")
    return _integer(name, value, 1, most, f"at most {most}")


def require_bins(value: object) -> int:
    """Return a number of bins, an integer from 1 to a million."""
    return require_positive_integer("bins", value, 1_000_000)


def require_repeats(name: str, value: object) -> int:
    """Return a number of repetitions that are all made here, an integer from 1 to ten million."""
    return require_positive_integer(name, value, 10_000_000)


def require_integer(name: str, value: object, least: int, most: int, expected: str = "an integer") -> int:
    """Return an integer from ``least`` to ``most``."""
    return _integer(name, value, least, most, f"{expected} from {least} to {most}")


def _integer(name: str, value: object, least: int, most: float, expected: str) -> int:
    try:
        number = None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:  # not an integer, or an array of several
        number = None
    if number is None or not least <= number <= most:
        raise ParameterError(name, value, expected)
    return number


def require_positive_number(name: str, value: object) -> float:
    """Return a finite positive real number."""
    return _number(name, value, 0.0, "a finite positive number")


def require_finite_number(name: str, value: object) -> float:
    """Return a finite real number."""
    return _number(name, value, -math.inf, "a finite number")


def _number(name: str, value: object, above: float, expected: str) -> float:
    try:
        number = float(value) if isinstance(value, SupportsFloat) and not isinstance(value, bool) else math.nan
    except (TypeError, ValueError, OverflowError):  # arrays of several numbers, integers beyond float64
        number = math.nan
    if not above < number < math.inf:
        raise ParameterError(name, value, expected)
    return number


def require_probability(name: str, value: object, below: float = 1.0) -> float:
    """Return a number between 0 and ``below``."""
    expected = f"a number between 0 and {Fraction(below)}, both excluded"
    number = _number(name, value, 0.0, expected)
    if not number < below:
        raise ParameterError(name, value, expected)
    return number


def require_draws(value: object) -> int:
    """Return an integer of at least 2."""
    require_positive_integer("draws", value)
    return _integer("draws", value, 2, math.inf, "at least 2 (a standard error needs a spread)")


def require_seed(seed: object) -> int:
    """Return an integer in [0, 2^63)."""
    return _integer("seed", seed, 0, _MAX_SEED - 1, "an integer from 0 to 2^63 - 1")


def require_head_shape(d_model: object, d_head: object) -> tuple[int, int]:
    """Return positive integers (d_model, d_head), d_head ≤ d_model."""
    width, head = require_positive_integer("d_model", d_model, _WIDEST), require_positive_integer("d_head", d_head)
    expected = f"at most d_model = {width} (W_Q is d_head × d_model, of rank d_head)"
    return width, _integer("d_head", head, 1, width, expected)


def require_dims(value: object) -> tuple[int, ...]:
    """Return the dimensions (n_0, …, n_L) of a chain, L ≥ 1."""
    if not isinstance(value, Iterable) or isinstance(value, str | bytes):
        raise ParameterError("dims", value, "a sequence (n_0, ..., n_L) of at least two positive integers")
    dims = tuple(require_positive_integer(f"dims[{index}]", n) for index, n in enumerate(value))
    if len(dims) < 2:
        raise ParameterError("dims", dims, "at least two dimensions (n_0, ..., n_L)")
    return dims


def require_sigmas(sigmas: object, count: int) -> tuple[float, ...]:
    """Return the standard deviation of each factor of a chain; None means 1."""
    if sigmas is None:
        return (1.0,) * count
    if not isinstance(sigmas, Iterable) or isinstance(sigmas, str | bytes):
        raise ParameterError("sigmas", sigmas, f"a sequence of {count} positive numbers, one per factor")
    checked = tuple(require_positive_number(f"sigmas[{index}]", value) for index, value in enumerate(sigmas))
    if len(checked) != count:
        raise ParameterError("sigmas", checked, f"{count} values, one per factor of the chain")
    return checked


def require_order(k: object) -> int:
    """Return the order of a moment, a nonnegative integer."""
    _integer("k", k, 0, math.inf, "a non-negative integer")
    return _integer("k", k, 0, _HIGHEST_ORDER, f"at most {_HIGHEST_ORDER}")


def require_moderate_sigmas(sigmas: object, count: int) -> tuple[float, ...]:
    """Check as :func:`require_sigmas`, and that the fourth power of the product, the scale of Σλ², fits in float64."""
    checked = require_sigmas(sigmas, count)
    if not _SMALLEST_PRODUCT < math.prod(checked) < 1.0 / _SMALLEST_PRODUCT:
        expected = f"a product between {_SMALLEST_PRODUCT:g} and {1.0 / _SMALLEST_PRODUCT:g}; rescale the matrix"
        raise ParameterError("sigmas", checked, expected)
    return checked


def require_trim(trim: object, name: str = "trim") -> Fraction:
    """Return a share in [0, 1/2) as an exact fraction, 0.1 as 1/10."""
    expected = "a number t with 0 <= t < 1/2, the share left out at either end"
    if not 0 <= _number(name, trim, -math.inf, expected) < 0.5:
        raise ParameterError(name, trim, expected)
    return trim if isinstance(trim, Fraction) else Fraction(repr(float(trim)))  # type: ignore[arg-type]


def require_normalization(normalization: object) -> str:
    """Return one of :data:`NORMALIZATIONS`."""
    if not isinstance(normalization, str) or normalization not in NORMALIZATIONS:
        raise ParameterError("normalization", normalization, "'none' or 'sqrt_d'")
    return normalization


def require_initialization(initialization: object, name: str = "initialization") -> str:
    """Return one of :data:`INITIALIZATIONS`."""
    if not isinstance(initialization, str) or initialization not in INITIALIZATIONS:
        raise ParameterError(name, initialization, f"one of {', '.join(INITIALIZATIONS)}")
    return initialization


def require_independent_entries(initialization: object, purpose: str, name: str = "initialization") -> str:
    """Check as :func:`require_initialization`, and that the entries are independent, as a ``purpose`` needs."""
    if require_initialization(initialization, name) == "orthogonal":
        independent = ", ".join(map(repr, INITIALIZATIONS[:-1]))
        reason = f"{purpose} needs independent entries, and those of an orthogonal matrix are not"
        raise ParameterError(name, initialization, f"one of {independent}: {reason}")
    return str(initialization)


def require_real_array(name: str, value: object) -> NDArray[Any]:
    """Return real numbers in their own dtype, of JAX and torch without loss; masks would be silently dropped."""
    import numpy as np

    expected = "real numbers"
    if masked := _masked(value):
        raise ParameterError(name, f"{masked} masked entries", f"{expected} without masked ones; fill or omit them")
    try:
        array = _numpy_array(value)
    except (ValueError, TypeError, RuntimeError) as error:  # a ragged list, or a tensor that NumPy cannot convert
        raise ParameterError(name, type(value).__name__, f"{expected} ({error})") from error
    # NumPy's own kinds, and narrow floats added by other packages, whose kind is that of raw bytes.
    if array.dtype.kind == "b" or not np.can_cast(array.dtype, np.float64, "same_kind"):
        found = f"dtype {array.dtype}" if array.ndim else type(value).__name__  # the type, if it is not an array at all
        raise ParameterError(name, found, expected)
    return array


def _numpy_array(value: Any) -> NDArray[Any]:
    import numpy as np

    torch = sys.modules.get("torch")
    if torch is None:
        return np.asarray(value)
    if isinstance(value, torch.Tensor):
        if value.dtype != torch.bfloat16:
            return value.numpy(force=True)
        import ml_dtypes

        return value.detach().cpu().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    if isinstance(value, list | tuple) and any(isinstance(item, torch.Tensor) for item in value):
        return np.stack([_numpy_array(item) for item in value])
    return np.asarray(value)


def require_real_numbers(name: str, value: object) -> NDArray[np.float64]:
    """Check as :func:`require_real_array`, and convert to float64."""
    import numpy as np

    return np.asarray(require_real_array(name, value), dtype=np.float64)


def require_finite_numbers(name: str, value: object) -> NDArray[np.float64]:
    """Check as :func:`require_real_numbers`, and that no number is NaN or infinite."""
    import numpy as np

    array = require_real_numbers(name, value)
    if not np.isfinite(array).all():
        nan, infinite = np.count_nonzero(np.isnan(array)), np.count_nonzero(np.isinf(array))
        found = f"{nan} NaN and {infinite} infinite values among {array.size}"
        raise ParameterError(name, found, "finite numbers")
    return array


def require_matrices(name: str, value: object) -> NDArray[np.float64]:
    """Return finite matrices ``(..., rows, columns)`` in float64."""
    array = require_finite_numbers(name, value)
    if array.ndim < 2:
        raise ParameterError(name, f"shape {array.shape}", "matrices (..., rows, columns)")
    return array


def require_p_values(name: str, value: object) -> NDArray[np.float64]:
    """Return p-values in float64, those beyond 0 or 1 by rounding clipped; NaN means no test was made."""
    import numpy as np

    p = require_real_numbers(name, value)
    outside = (p < -_ROUNDED_P) | (p > 1.0 + _ROUNDED_P)
    if outside.any():
        found = f"{np.count_nonzero(outside)} of {p.size} outside [0, 1], such as {p[outside].flat[0]:g}"
        raise ParameterError(name, found, "p-values from 0 to 1, NaN where a test was not made")
    return np.clip(p, 0.0, 1.0)


def require_probabilities(name: str, value: object) -> NDArray[np.float64]:
    """Return probabilities in float64."""
    p = require_real_numbers(name, value)
    if not ((p >= 0.0) & (p <= 1.0)).all():
        raise ParameterError(name, value, "numbers from 0 to 1")
    return p


def _masked(value: object) -> int:
    import numpy as np

    if isinstance(value, np.ma.MaskedArray):
        return int(np.ma.count_masked(value))
    return sum(map(_masked, value)) if isinstance(value, list | tuple) else 0


def require_interval(name: str, value: object) -> tuple[float, float]:
    """Return finite numbers (low, high), low < high."""
    expected = "two finite numbers (low, high) with low < high"
    try:
        low, high = () if _masked(value) else (float(end) for end in value)  # type: ignore[attr-defined]
    except (TypeError, ValueError, OverflowError):
        raise ParameterError(name, value, expected) from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ParameterError(name, value, expected)
    return low, high
