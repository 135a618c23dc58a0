"""Maximum likelihood fit of the Weibull law to a sample of weights, by Newton's method in the shape."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from rmtbase.errors import FitError, ParameterError
from rmtbase.parameters import require_real_array
from rmtbase.statistics._signed_bins import SignedBins, signed_bins

_BLOCK = 1 << 17  # numbers widened to float64 at a time, so that they stay in the cache
_SAMPLE = 1 << 17  # numbers used for the first steps
_CLOSE = 1e-3  # relative range below which logarithms of magnitudes are computed from differences
_STEPS = 50
_LAST_STEP = 1e-7  # relative step of k; the next Newton step would be of the order of its square


class WeibullLikelihoodFit(NamedTuple):
    """Maximum likelihood fit of the Weibull law to N weights."""

    shape: float  #: k̂
    scale: float  #: λ̂, in the units of the weights
    log_likelihood: float  #: ln of the density of all the magnitudes
    number: int  #: N


Sums = Callable[[float], tuple[float, float, float]]  # k → the means of e^{ky}, y e^{ky} and y² e^{ky}


def weibull_likelihood_fit(sample: ArrayLike) -> WeibullLikelihoodFit:
    """Fit the Weibull law to the magnitudes of a sample of weights by maximum likelihood.

    k̂ solves 1/k = Σ |w|^k ln |w| / Σ |w|^k − mean ln |w|, and λ̂^k̂ = mean |w|^k̂. The left side falls and the right side
    rises with k, so there is one solution. The first steps use the counts of :func:`signed_bins`; the last ones use all
    numbers, widened block by block without a copy.

    Args:
        sample: weights of any shape and real dtype, with or without signs.

    Raises:
        ParameterError: the sample is not an array of finite real numbers, has fewer than two different magnitudes, or
            contains a zero.
    """
    flat = require_real_array("sample", sample).reshape(-1)
    if flat.size < 2:
        raise ParameterError("sample", f"{flat.size} weights", "at least two")
    smallest, largest, finite = math.inf, 0.0, 0
    for first in range(0, flat.size, _BLOCK):
        block = np.abs(flat[first : first + _BLOCK].astype(np.float64))
        finite += int(np.count_nonzero(np.isfinite(block)))
        smallest, largest = min(smallest, float(block.min())), max(largest, float(block.max()))
    if finite < flat.size:
        raise ParameterError("sample", f"{flat.size - finite} of {flat.size} weights not finite", "finite weights")
    if smallest == 0.0 or smallest == largest:
        expected = "positive magnitudes, two of them different (leave out exact zeros)"
        raise ParameterError("sample", f"magnitudes from {smallest:g} to {largest:g}", expected)
    # For nearly equal magnitudes, differences of the logarithms would lose digits.
    origin = smallest if largest - smallest < _CLOSE * smallest else None
    unit = sum(float(block.sum()) for block in _logarithms(flat, origin)) / flat.size
    start = 0.0
    if origin is None:
        sample = flat[:: -(-flat.size // _SAMPLE) | 1]
        with suppress(ParameterError, FitError):
            start = weibull_likelihood_of_bins(signed_bins(np.ascontiguousarray(sample))).shape
    if not start:  # counts do not separate the magnitudes: π/√6 over sd(ln |w|)
        square = sum(float(np.square(block - unit).sum()) for block in _logarithms(flat, origin))
        start = math.pi / math.sqrt(6.0 * square / flat.size)

    def sums(k: float) -> tuple[float, float, float]:
        totals = np.zeros(3)
        for block in _logarithms(flat, origin):
            block -= unit
            power = np.exp(k * block)
            first = power * block
            totals += power.sum(), first.sum(), first @ block
        return tuple(totals / flat.size)

    return _fitted(sums, start, (math.log(origin) if origin else 0.0) + unit, flat.size)


def weibull_likelihood_of_bins(bins: SignedBins) -> WeibullLikelihoodFit:
    bins = bins.magnitudes
    n = int(bins.end[-1])
    mean, variance = bins.mantissas
    if bins.number[0] == 0 or (len(bins.number) == 1 and bins.count[0] > 1 and bins.tied[0]):
        raise ParameterError("sample", "zeros, or one magnitude", "positive magnitudes, two of them different")
    spread = variance / mean**2
    y = np.log(mean) - spread / 2.0 + bins.octave * math.log(2.0)
    weight = bins.count / n
    unit = float(weight @ y)
    y = y - unit

    def sums(k: float) -> tuple[float, float, float]:
        power = weight * np.exp(k * y) * (1.0 + k * k * spread / 2.0)
        first = power * (y + k * spread)
        return float(power.sum()), float(first.sum()), float(first @ y + power @ spread)

    return _fitted(sums, 1.2, unit, n)


def _logarithms(flat: np.ndarray, origin: float | None) -> Iterator[Float[np.ndarray, " number"]]:
    for start in range(0, flat.size, _BLOCK):
        magnitude = np.abs(flat[start : start + _BLOCK].astype(np.float64))
        yield np.log(magnitude) if origin is None else np.log1p((magnitude - origin) / origin)


def _fitted(sums: Sums, k: float, unit: float, n: int) -> WeibullLikelihoodFit:
    """Find the k with 1/k = Σ y e^{ky}/Σ e^{ky}, y = ln |w| − unit with mean 0."""
    for _ in range(_STEPS):
        zeroth, first, second = sums(k)
        mean = first / zeroth
        step = (1.0 / k - mean) / (1.0 / k**2 + second / zeroth - mean**2)
        k = k + step if step > -k else k / 2.0
        if abs(step) < _LAST_STEP * k:
            break
    else:
        raise FitError("Weibull", f"no maximum of the likelihood within {_STEPS} steps")
    # ln of the mean of e^{ky} at the new k, to second order in the last step.
    log_power = math.log(zeroth) + mean * step + 0.5 * (second / zeroth - mean**2) * step**2
    log_scale = unit + log_power / k
    likelihood = n * (math.log(k) - log_power - unit - 1.0)  # k ln λ̂ minus k times the mean of ln |w| is log_power
    return WeibullLikelihoodFit(float(k), math.exp(log_scale), float(likelihood), n)
