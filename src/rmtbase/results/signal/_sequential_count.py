"""Sequential test of spectra: the number of learned directions, and why there is none."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from rmtbase.results.signal._remaining_noise import Values, noise_left
from rmtbase.results.signal.schema import ALL_OF_THE_NORM, NO_LAW_LEFT, TOO_FEW_LEFT, ZEROS_LEFT

Spectra = Float[np.ndarray, "spectrum r"]
PerSpectrum = Float[np.ndarray, " spectrum"]
Counts = Int[np.ndarray, " spectrum"]
Mask = Bool[np.ndarray, " spectrum"]

LEAST_REST = 8
"""Smallest number of eigenvalues that must be left; with fewer, the law of the largest of them is not known."""


class CountedDirections(NamedTuple):
    """Result of the sequential test of spectra."""

    number: Counts  # number of directions
    kept: Mask  # whether a hypothesis was kept; False if all that can be tested were rejected
    p_value: Float[np.ndarray, "spectrum hypothesis"]  # p-values of H_0, H_1, ..., as far as they were tested
    scale: PerSpectrum  # v of the noise
    deflation: PerSpectrum  # deflation of the sum of the rest by the directions found, at v = 1
    # code of ``schema.NO_NUMBER`` where the test went on to where none can be made; "" otherwise
    no_number: Shaped[np.ndarray, " spectrum"]


def count_directions(values: Spectra, dims: tuple[int, ...], level: float) -> CountedDirections:
    """Run the sequential test of :func:`spectral_signal` on checked eigenvalues (spectrum, r)."""
    sums = np.cumsum(values[:, ::-1], axis=1)[:, ::-1]  # of λ_k and all below
    number, kept = np.zeros(len(values), dtype=np.int64), np.zeros(len(values), dtype=bool)
    deflation, no_number = np.zeros(len(values)), np.full(len(values), "", dtype=object)
    p_values: list[Values] = []
    rows = np.flatnonzero(values[:, 0] > 0.0)
    for k in range(min(dims) - LEAST_REST + 1):
        noise = noise_left(dims, k)
        positive, beyond = values[rows, k] > 0.0, deflation[rows] >= noise.total
        no_number[rows[beyond]], no_number[rows[~positive]] = ALL_OF_THE_NORM, ZEROS_LEFT
        rows = rows[positive & ~beyond]
        total = sums[rows, k] / (1.0 - deflation[rows] / noise.total)
        p_value = noise.p_value(values[rows, k], total - values[rows, k])
        if not rows.size or p_value is None:
            no_number[rows] = NO_LAW_LEFT
            break
        p_values.append(np.full(len(values), np.nan))
        p_values[-1][rows] = p_value
        rejected = p_value <= level
        kept[rows[~rejected]] = True
        rows = rows[rejected]
        number[rows] += 1
        scale = _scale(sums, dims, rows, k + 1, deflation)
        without = rows[scale <= 0.0]
        no_number[without] = np.where(sums[without, k + 1] > 0.0, ALL_OF_THE_NORM, ZEROS_LEFT)
        rows, scale = rows[scale > 0.0], scale[scale > 0.0]
        deflation[rows] += noise.deflation(noise.spike.outlier(values[rows, k] / scale).excess)
    else:
        no_number[rows] = TOO_FEW_LEFT
    columns = np.stack(p_values, axis=1) if p_values else np.empty((len(values), 0))
    counted = at_last_scale(values, sums, dims, kept, number, deflation)
    return counted._replace(p_value=columns, no_number=np.where(kept, counted.no_number, no_number))


def at_last_scale(
    values: Spectra, sums: Spectra, dims: tuple[int, ...], kept: Mask, number: Counts, deflation: PerSpectrum
) -> CountedDirections:
    """Evaluate all directions at the scale of the noise that remains without all of them; without p-values."""
    scale = _scales(sums, dims, kept, number, deflation)
    deflation = np.zeros(len(values))
    for k in range(int(number[kept].max(initial=0))):
        rows, noise = np.flatnonzero(kept & (number > k)), noise_left(dims, k)
        deflation[rows] += noise.deflation(noise.spike.outlier(values[rows, k] / scale[rows]).excess)
    scale = _scales(sums, dims, kept, number, deflation)
    no_number = np.where(kept & ~(scale > 0.0), ALL_OF_THE_NORM, "")
    kept = kept & (scale > 0.0)
    no_p_value = np.empty((len(values), 0))
    return CountedDirections(number, kept, no_p_value, np.where(kept, scale, np.nan), deflation, no_number)


def _scales(sums: Spectra, dims: tuple[int, ...], kept: Mask, number: Counts, deflation: PerSpectrum) -> PerSpectrum:
    """Estimate v of each kept spectrum from the eigenvalues below its directions."""
    scale = np.full(len(sums), np.nan)
    for k in np.unique(number[kept]).tolist():
        rows = np.flatnonzero(kept & (number == k))
        scale[rows] = _scale(sums, dims, rows, k, deflation)
    return scale


def _scale(
    sums: Spectra, dims: tuple[int, ...], rows: Int[np.ndarray, " row"], k: int, deflation: PerSpectrum
) -> Float[np.ndarray, " row"]:
    """Estimate v from the eigenvalues below the k-th; it is not positive if the directions account for all of them."""
    if k >= sums.shape[1]:
        return np.zeros(rows.size)
    return sums[rows, k] / (math.prod(n - k for n in dims) - deflation[rows])
