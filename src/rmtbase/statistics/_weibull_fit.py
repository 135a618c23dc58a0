"""Weibull fits of weights, or of their counts in bins: least squares on the plot of order statistics, likelihood."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int, Shaped
from numpy.typing import ArrayLike, NDArray
from scipy import special

from rmtbase.errors import FitError, ParameterError
from rmtbase.linalg import available_cores
from rmtbase.parameters import require_real_array, require_trim
from rmtbase.statistics._signed_bins import SignedBins, signed_bins

Trim = float | Fraction

_BLOCK = 1 << 17  # numbers widened to float64 at a time, so that they stay in the cache
_ALONE = 1 << 21  # largest number of weights that are sorted without threads
_NODES = 100
_OUTER = 16  # ranks at either end of the sample whose plotting positions are summed one by one
_SAMPLE = 1 << 17  # numbers used for the first steps of Newton's method
_CLOSE = 1e-3  # relative range below which logarithms of magnitudes are computed from differences
_STEPS = 50
_LAST_STEP = 1e-7  # relative step of k; the next Newton step would be of the order of its square


class WeibullFit(NamedTuple):
    """Weibull fit of N weights; :func:`rmtbase.laws.weibull_null` gives its law for independent weights."""

    shape: float  #: k̂
    scale: float  #: λ̂, in the units of the weights
    r_squared: float  #: R² of the line
    rms: float  #: root mean square of all N weights
    number: int  #: N


def weibull_fit(sample: ArrayLike, trim: float | Fraction = 0.1) -> WeibullFit:
    """Fit the Weibull law to the magnitudes of a sample of weights.

    The i-th smallest of N magnitudes is plotted at p_i = (i − 1/2)/N: Y_i = ln(−ln(1 − p_i)) is regressed on
    X_i = ln |w|_(i) over the i with t ≤ p_i ≤ 1 − t, with the same weight for every order statistic and without
    binning.

    Args:
        sample: weights of any shape and real dtype, with or without signs; one copy is made and sorted, in that dtype,
            in as many parts as the process has cores.
        trim: t, 0 ≤ t < 1/2, the share left out at either end.

    Returns:
        k̂ = Cov(X, Y)/Var(X), λ̂ = exp(mean X − mean Y/k̂), R², the root mean square and N. O(N log N) time.

    Raises:
        ParameterError: the sample is not an array of finite real numbers, has fewer than two different magnitudes or a
            zero between the trims, or the trim is outside [0, 1/2).
    """
    t = require_trim(trim)
    flat = require_real_array("sample", sample).reshape(-1)
    n = flat.size
    with ThreadPoolExecutor(available_cores()) if n > _ALONE else nullcontext() as threads:
        over = map if threads is None else threads.map
        magnitude = _ascending_magnitudes(flat, over)
        if n and not np.isfinite(magnitude[-1]):
            bad = int((~np.isfinite(magnitude)).sum())
            raise ParameterError("sample", f"{bad} of {n} not finite", "finite weights")
        dropped = trimmed_ranks(n, t)
        middle_part = magnitude[dropped : n - dropped]
        if middle_part[0] == 0 or middle_part[0] == middle_part[-1]:
            raise ParameterError(
                "sample",
                f"magnitudes from {float(middle_part[0])} to {float(middle_part[-1])} between the trims",
                "positive magnitudes, two of them different (leave out exact zeros, or raise the trim)",
            )
        largest, middle = float(magnitude[-1]), n // 2
        x_origin, y_origin = math.log(magnitude[middle]), float(plotting_positions(middle, middle + 1, n)[0])

        def plotted(first: int) -> NDArray[np.float64]:
            last = min(first + _BLOCK, n - dropped)
            x = np.log(magnitude[first:last].astype(np.float64)) - x_origin
            y = plotting_positions(first, last, n) - y_origin
            return np.array([x.sum(), y.sum(), x @ y, x @ x, y @ y])

        def squares(first: int) -> float:
            relative = magnitude[first : first + _BLOCK].astype(np.float64) / largest
            return float(relative @ relative)

        square = math.fsum(over(squares, range(0, n, _BLOCK)))
        sums = np.sum(list(over(plotted, range(dropped, n - dropped, _BLOCK))), axis=0) / middle_part.size
    x_mean, y_mean = sums[:2]
    covariance, x_variance, y_variance = sums[2:] - np.outer(sums[:2], sums[:2])[(0, 0, 1), (1, 0, 1)]
    shape = float(covariance / x_variance)
    scale = math.exp(x_origin + x_mean - (y_origin + y_mean) / shape)
    return WeibullFit(shape, scale, float(shape * covariance / y_variance), largest * math.sqrt(square / n), n)


def weibull_fit_of_bins(bins: SignedBins, rms: float, trim: Trim = 0.1, unrounded: bool = False) -> WeibullFit:
    """Fit as :func:`weibull_fit` from bins: ln(-ln(1 - p)) regressed on ln |w| between the trims."""
    # As measured, k̂ and λ̂ differ by a relative 5e-8 at most for 1000 to 4 million numbers, and by 5e-7 for fewer:
    # only the positions within a bin of relative width 2^-10, beyond mean and variance, are unknown.
    bins = bins.magnitudes
    n = int(bins.end[-1])
    dropped = trimmed_ranks(n, require_trim(trim))
    inside = (bins.end > dropped) & (bins.end - bins.count < n - dropped)
    count, last = bins.count[inside], bins.end[inside]
    first = last - count
    low, high = np.maximum(first, dropped), np.minimum(last, n - dropped)  # the ranks that are kept
    if bins.number[inside][0] == 0 or not np.isfinite(bins.mean[inside][-1]):
        raise ParameterError(
            "sample",
            f"magnitudes {'of zero' if bins.number[inside][0] == 0 else 'from 2^24 on'} between the trims",
            "positive, finite magnitudes there (rescale the weights, leave out exact zeros, or raise the trim)",
        )
    mean = bins.mantissas[0][inside]
    # Magnitudes of a bin are taken as equally spaced, also if a trim removes some of them.
    spacing = np.ldexp((bins.unrounded_spacing if unrounded else bins.spacing)[inside], -bins.octave[inside])
    mean = mean + 0.5 * (low + high - first - last) * spacing
    number = (high - low).astype(float)
    evenly = (number**2 - 1.0) / 12.0
    variance = spacing**2 * evenly
    weight = number / number.sum()
    x = np.log(mean) - variance / (2.0 * mean**2) + bins.octave[inside] * math.log(2.0)
    x_variance = variance / mean**2
    y = np.diff(_plotting_sums(np.append(low, high[-1]), n)) / number
    y_variance = evenly * _plotting_slope(0.5 * (low + high) / n) ** 2 / n**2
    x_mean, y_mean = weight @ x, weight @ y
    covariance = weight @ ((x - x_mean) * (y - y_mean) + np.sqrt(x_variance * y_variance))
    spread = weight @ ((x - x_mean) ** 2 + x_variance)
    if spread <= 0.0:
        raise ParameterError("sample", "one magnitude between the trims", "two different ones there")
    shape = float(covariance / spread)
    r_squared = float(shape * covariance / _plotting_variance(n, dropped))
    return WeibullFit(shape, math.exp(x_mean - y_mean / shape), r_squared, rms, n)


def trimmed_ranks(n: int, trim: Fraction) -> int:
    """Count the ranks i of n with (i − 1/2)/n below the trim; a :class:`ParameterError` if fewer than two are left."""
    dropped = max(0, math.ceil(n * trim - Fraction(1, 2)))
    if n - 2 * dropped < 2:
        raise ParameterError("sample", f"{n} weights", f"at least two between the trims of {float(trim):g}")
    return dropped


def plotting_positions(first: int, last: int, n: int) -> Float[np.ndarray, " rank"]:
    """Y_i = ln(−ln(1 − p_i)) at p_i = (i + 1/2)/n for the ranks i = first, …, last − 1."""
    return np.log(-np.log1p(-(np.arange(first, last) + 0.5) / n))


def _ascending_magnitudes(flat: Shaped[np.ndarray, " number"], over: Callable[..., Iterable[Any]]) -> NDArray[Any]:
    floats = np.issubdtype(flat.dtype, np.floating) or flat.dtype.kind == "V"
    if floats and flat.dtype.itemsize == 2 and flat.dtype.isnative:
        bits = flat.view(np.uint16) & np.uint16(0x7FFF)
        # For positive numbers, the order of the bits is the order of the numbers.
        bits.sort(kind="stable")
        return bits.view(flat.dtype)
    magnitude = np.abs(flat if flat.dtype in (np.float32, np.float64) else flat.astype(np.float64))
    parts = available_cores() if flat.size > _ALONE else 1
    cuts = [flat.size * part // parts for part in range(1, parts)]
    if cuts:
        magnitude.partition(cuts)
    for _ in over(np.ndarray.sort, np.split(magnitude, cuts)):
        pass
    return magnitude


def _plotting_slope(p: Float[np.ndarray, " rank"]) -> Float[np.ndarray, " rank"]:
    return 1.0 / ((1.0 - p) * -np.log1p(-p))


def _plotting_sums(ranks: Int[np.ndarray, " rank"], n: int) -> Float[np.ndarray, " rank"]:
    """Σ_{i < rank} Y_i up to a constant, by Euler–Maclaurin from ∫ Y dp = -(1 - p) ln u - E₁(u), u = -ln(1 - p)."""
    outer = min(_OUTER, n // 2)
    inner = np.clip(ranks, outer, n - outer)
    u = -np.log1p(-inner / n)
    sums = -n * (np.exp(-u) * np.log(u) + special.exp1(u)) - _plotting_slope(inner / n) / (24.0 * n)
    below = np.append(0.0, np.cumsum(plotting_positions(0, outer, n)[::-1]))  # from rank `outer` downwards
    above = np.append(0.0, np.cumsum(plotting_positions(n - outer, n, n)))
    return sums - below[np.maximum(outer - ranks, 0)] + above[np.maximum(ranks - (n - outer), 0)]


@lru_cache(maxsize=64)
def _plotting_variance(n: int, dropped: int) -> float:
    if n <= _BLOCK:
        return float(plotting_positions(dropped, n - dropped, n).var())
    outer = max(dropped, _OUTER)
    low, high = outer / n, 1.0 - outer / n
    start, stop = math.log(-math.log1p(-low)), math.log(-math.log(low))
    node, weight = np.polynomial.legendre.leggauss(_NODES)
    y = 0.5 * (start + stop) + 0.5 * (stop - start) * node
    share = 0.5 * (stop - start) * weight * np.exp(y - np.exp(y))
    slopes = _plotting_slope(np.array([low, high]))
    ends = np.append(plotting_positions(dropped, outer, n), plotting_positions(n - outer, n - dropped, n))
    first = n * float(share @ y) - (slopes[1] - slopes[0]) / (24.0 * n) + ends.sum()
    second = n * float(share @ y**2) - (stop * slopes[1] - start * slopes[0]) / (12.0 * n) + ends @ ends
    number = n - 2 * dropped
    return float(second / number - (first / number) ** 2)


class WeibullLikelihoodFit(NamedTuple):
    """Maximum likelihood fit of the Weibull law to N weights."""

    shape: float  #: k̂
    scale: float  #: λ̂, in the units of the weights
    log_likelihood: float  #: ln of the density of all the magnitudes
    number: int  #: N


Sums = Callable[[float], tuple[float, float, float]]  # k → the means of e^{ky}, y e^{ky} and y² e^{ky}


def weibull_likelihood_fit(sample: ArrayLike) -> WeibullLikelihoodFit:
    """Fit the Weibull law to the magnitudes of a sample of weights by maximum likelihood.

    k̂ solves 1/k = Σ |w|^k ln |w| / Σ |w|^k − mean ln |w|, which has one solution, and λ̂^k̂ = mean |w|^k̂. The first steps
    use the counts of :func:`signed_bins`; the last ones use all numbers, widened block by block without a copy.

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
