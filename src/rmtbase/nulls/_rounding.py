"""What rounding adds to the difference of two stored matrices.

A number x with 2^(e-1) ≤ |x| < 2^e is stored by p significant bits (8 of bfloat16) as the nearest multiple of the
spacing u = 2^(e-p). What is lost is uniform within ±u/2 and has the variance u²/12: 2^(2e-16)/12 of bfloat16. Of the
difference D of two stored numbers whose true difference is δ,

    E D = δ,    Var D = u² f (1 - f),    f the fraction of |δ|/u,

because x lies anywhere in its cell with equal probability: each rounded by itself where δ is larger than u, so that
Var D is u²/6 on average, and where it is smaller together, to no difference at all or to a whole u. With δ ~ N(0, s²)

    Var D = u² [1/6 - π^(-2) Σ_k k^(-2) e^(-2 π² k² s²/u²)],    ≈ u s √(2/π) for s ≪ u.

So rounding is the larger part of a difference up to s ≈ 0.6 u, and all but independent from element to element: a null
of i.i.d. elements stands, at the σ̂ of the difference as it is stored, and what was learned must be seen above it.
Elements of several binades have variances of their own, which adds excess kurtosis to the elements.

Source: B. Widrow and I. Kollár, Quantization Noise (2008), ch. 5 for the uniform error and ch. 19 for dither.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike, DTypeLike

from rmtbase.errors import ParameterError
from rmtbase.parameters import require_finite_numbers

_TERMS = np.arange(1, 21)
_SMALL = 0.2  # s/u, below which |δ| > u for one change in a million


def spacing(values: ArrayLike, dtype: DTypeLike) -> Float[np.ndarray, "..."]:
    """The distance u between neighbouring numbers of a floating-point type where the values lie.

    Raises:
        ParameterError: values that are not finite real numbers.
    """
    kind = ml_dtypes.finfo(np.dtype(dtype))
    x = np.abs(require_finite_numbers("values", values))
    if (x > float(kind.max)).any():
        raise ParameterError("values", f"magnitudes up to {x.max():.3g}", f"numbers that {np.dtype(dtype)} can hold")
    _, exponent = np.frexp(np.maximum(x, float(kind.smallest_normal)))
    return np.ldexp(1.0, exponent - (kind.nmant + 1))


def difference_rounding_variance(first: ArrayLike, second: ArrayLike, sigma: float, dtype: DTypeLike) -> float:
    """The variance that rounding adds to an element of the difference of two stored matrices, on average over them.

    Each element has the mean of Var D at the spacings of both, which differ where a change leaves its binade.

    Args:
        first: a matrix as it is stored.
        second: the other, of the same shape.
        sigma: standard deviation s of the true differences, at least 0.
        dtype: in which they are stored.
    """
    both = np.concatenate([np.ravel(spacing(matrix, dtype)) for matrix in (first, second)])
    sizes, counts = np.unique(both, return_counts=True)
    steps = sigma / sizes
    series = np.exp(-2.0 * np.pi**2 * np.multiply.outer(steps**2, _TERMS**2)) @ (1.0 / _TERMS**2)
    large, small = 1.0 / 6.0 - series / np.pi**2, np.sqrt(2.0 / np.pi) * steps - steps**2
    return float(np.average(sizes**2 * np.where(steps < _SMALL, small, large), weights=counts))
