"""Likelihood of a whole spectrum under four candidates: noise, spikes on a bulk, a power law, effective depth.

The data are y_i = ln λ_i, for all r eigenvalues of one matrix. Each candidate is a density f on the whole line, and

    ℓ = Σ_i ln f(y_i) - (p/2) ln r,    p the number of fitted parameters

is its log-likelihood for independent values (composite, as eigenvalues repel each other), with Schwarz's penalty. Let
g(y; q) = 1/r Σ_i K((y - q_i)/h_i)/h_i be a law's density smeared by its own spacing, with q_i its quantiles at
(i - ½)/r, h_i their spacing and K the logistic density of variance 1. Then f is

    noise        g(y - s; chain)                                                             p = 1: s
    spikes       (1 - k/r) g(y - s; chain of dims n_l - k) + 1/r Σ_j N(y; y_j, τ_j²)         p = 1 + k
    power law    (1 - m/r) g(y - s; chain)/G(y_m - s) below y_m, the m-th largest,
                 m/r (α - 1) e^(-(α - 1)(y - y_m)) from it on                                p = 4: s, m, α, y_m
    depth        g(y - s; residual path of depth L)                                          p = 2: s, L

The shift s, L, m and y_m maximise ℓ; k comes from the sequential test of
:func:`rmtbase.results.signal.spectral_signal`. Spike j stands at y_j, the j-th largest value, with the spread τ_j of
that eigenvalue.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.special import expit

from rmtbase import laws
from rmtbase.results.depth._effective_depth import MAX_DEPTH
from rmtbase.results.signal._spectral_signal import count_directions, noise_left
from rmtbase.results.signal.schema import CANDIDATES

PATH_SIGMA = 1.0  # σ of the residual paths, as in :func:`rmtbase.results.depth.effective_depth`
_LEAST_TAIL = 8  # fewest eigenvalues in a power law's tail: fewer could equally well be spikes

Values = Float[np.ndarray, "..."]
Spectra = Float[np.ndarray, "draw r"]
PerDraw = Float[np.ndarray, " draw"]
CountPerDraw = Int[np.ndarray, " draw"]

_KERNEL = math.sqrt(3.0) / math.pi  # the scale of the logistic density of standard deviation 1
_DENSE = 128  # quantiles at either end, and between, at which a table has nodes
_BLOCK = 2**22  # numbers in one array
_BEYOND = np.geomspace(0.05, 400.0, 60)
_COARSE, _FINE, _REFINEMENTS = 33, 9, 3
_DEPTHS, _TRIED = (1, 2, 4, 8, 16, MAX_DEPTH), 3
_LOWEST = -600.0  # ln λ relative to the largest, so that ratios stay finite


@dataclass(frozen=True, eq=False)
class SmearedLaw:
    """Law of y = ln λ as one matrix of r eigenvalues shows it: each quantile smeared by the spacing there."""

    quantile: Float[np.ndarray, " r"]  # quantiles at (i - ½)/r, descending
    # places in y, ascending: ln g and ln G are linear between them and beyond, as the tails of the kernels are
    node: Float[np.ndarray, " node"]
    log_density: Float[np.ndarray, " node"]
    log_cdf: Float[np.ndarray, " node"]

    @classmethod
    def from_quantiles(cls, quantile: Float[np.ndarray, " r"]) -> SmearedLaw:
        """Tabulate a law from its quantiles; ln g is good to 0.01 between nodes."""
        spacing = np.abs(np.gradient(quantile))
        scale = np.maximum(_KERNEL * spacing, 1e-9)
        end = min(_DENSE, quantile.size)
        places = np.arange(quantile.size)
        chosen = np.unique(np.concatenate([places[:end], places[-end:], places[:: max(1, quantile.size // _DENSE)]]))
        inside = (quantile[chosen, None] + spacing[chosen, None] * np.array([-0.5, -0.25, 0.0, 0.25])).ravel()
        node = np.unique(np.concatenate([inside, quantile[0] + _BEYOND, quantile[-1] - _BEYOND]))
        density, mass = np.empty(node.size), np.empty(node.size)
        step = max(1, _BLOCK // quantile.size)
        for first in range(0, node.size, step):
            part = slice(first, first + step)
            z = (node[part, None] - quantile) / scale
            small = np.exp(-np.abs(z))
            density[part] = (small / (scale * (1.0 + small) ** 2)).mean(axis=1)
            mass[part] = expit(z).mean(axis=1)
        tiny = np.finfo(float).tiny
        return cls(quantile, node, np.log(np.maximum(density, tiny)), np.log(np.maximum(mass, tiny)))

    def logpdf(self, y: Values) -> Values:
        return np.interp(y, self.node, self.log_density)

    def logcdf(self, y: Values) -> Values:
        return np.interp(y, self.node, self.log_cdf)

    def ppf(self, mass: Values) -> Values:
        level, first = np.unique(self.log_cdf, return_index=True)  # log_cdf is flat where nothing is left above
        return np.interp(np.log(mass), level, self.node[first])

    @property
    def edge_width(self) -> float:
        return float(self.quantile[0] - self.quantile[1])


@lru_cache(maxsize=1024)
def noise_law(dims: tuple[int, ...]) -> SmearedLaw:
    levels = (np.arange(min(dims)) + 0.5) / min(dims)
    return SmearedLaw.from_quantiles(np.log(laws.GaussianChain(dims=dims, normalization="none").isf(levels)))


@lru_cache(maxsize=256)
def path_law(rank: int, depth: int) -> SmearedLaw:
    levels = (np.arange(rank) + 0.5) / rank
    log_quantile = np.asarray(laws.ResidualPath(depth, PATH_SIGMA).log_eigenvalue.isf(levels))
    return SmearedLaw.from_quantiles(np.maximum(log_quantile, log_quantile[0] + _LOWEST))


class Fits(NamedTuple):
    """Candidates fitted to spectra of one shape."""

    log_likelihood: Float[np.ndarray, "draw candidate"]  # ℓ; -inf for spikes without one, or without a bulk below
    shift: Float[np.ndarray, "draw candidate"]  # s of each candidate
    directions: CountPerDraw  # k
    spread: Float[np.ndarray, "draw r"]  # τ of each eigenvalue; NaN if it is not a spike
    tail: CountPerDraw  # m
    slope: PerDraw  # α - 1
    depth: CountPerDraw  # L


def fit_candidates(log_eigenvalues: Spectra, dims: tuple[int, ...], level: float) -> Fits:
    """Fit every candidate to descending spectra."""
    y, bulk = log_eigenvalues, noise_law(dims)
    draws, rank = y.shape
    likelihood, shift = np.empty((2, draws, len(CANDIDATES)))
    likelihood[:, 0], shift[:, 0] = _shifted(y, bulk)
    likelihood[:, 1], shift[:, 1], directions, spread = _spikes(y, dims, level)
    likelihood[:, 2], shift[:, 2], tail, slope = _power_law(y, bulk)
    likelihood[:, 3], shift[:, 3], depth = _depth(y)
    fitted = np.stack([np.ones(draws), 1.0 + directions, np.full(draws, 4.0), np.full(draws, 2.0)], axis=1)
    return Fits(likelihood - 0.5 * math.log(rank) * fitted, shift, directions, spread, tail, slope, depth)


def _shifted(y: Spectra, law: SmearedLaw) -> tuple[PerDraw, PerDraw]:
    """Return (Σ ln g(y_i - s), s) at the best s, which lies among the shifts that align one quantile each."""
    likelihood, shift = np.empty((2, len(y)))
    apart = np.sort(y - law.quantile[: y.shape[1]], axis=1)
    step = law.edge_width
    for row, spectrum in enumerate(y):
        grid = np.linspace(apart[row, 0] - step, apart[row, -1] + step, _COARSE)
        # Nine tenths of the differences usually lie close together: the grid is dense there.
        grid = np.union1d(grid, np.quantile(apart[row], np.linspace(0.05, 0.95, _COARSE)))
        for _ in range(_REFINEMENTS):
            total = law.logpdf(spectrum - grid[:, None]).sum(axis=1)
            best = int(total.argmax())
            likelihood[row], shift[row] = total[best], grid[best]
            low, high = grid[max(best - 1, 0)], grid[min(best + 1, grid.size - 1)]
            grid = np.append(np.linspace(low, high, _FINE), grid[best])
    return likelihood, shift


def _spikes(y: Spectra, dims: tuple[int, ...], level: float) -> tuple[PerDraw, PerDraw, CountPerDraw, Spectra]:
    """Return (Σ ln f, s, k, τ); -inf without a spike, or where the sequential test kept no hypothesis."""
    eigenvalues = np.exp(np.maximum(y - y[:, :1], _LOWEST))  # in any unit
    counted = count_directions(eigenvalues, dims, level)
    likelihood, shift, spread = np.full(len(y), -np.inf), np.full(len(y), np.nan), np.full(y.shape, np.nan)
    number = np.where(counted.kept, counted.number, 0)
    units = eigenvalues / np.where(counted.kept, counted.scale, 1.0)[:, None]
    spike = np.arange(y.shape[1]) < number[:, None]
    if spike.any():
        _, std = noise_left(dims, 0).direction(units[spike])  # laws without the other spikes hardly differ
        spread[spike] = np.fmax(std / units[spike], noise_law(dims).edge_width)
    for row in np.flatnonzero(number > 0).tolist():
        k = int(number[row])
        law = noise_law(tuple(n - k for n in dims))
        shift[row] = _shifted(y[row : row + 1, k:], law)[1][0]
        likelihood[row] = spiked_density(y[row], y[row, :k], spread[row, :k], law, float(shift[row]), y.shape[1]).sum()
    return likelihood, shift, number, spread


def spiked_density(y: Values, at: Values, spread: Values, bulk: SmearedLaw, shift: float, rank: int) -> Values:
    """ln f(y) for spikes at given places above a bulk, in a spectrum of ``rank`` eigenvalues."""
    kernels = np.exp(-0.5 * ((y[..., None] - at) / spread) ** 2) / (math.sqrt(2.0 * math.pi) * spread)
    density = (1.0 - at.size / rank) * np.exp(bulk.logpdf(y - shift)) + kernels.sum(axis=-1) / rank
    return np.log(np.maximum(density, np.finfo(float).tiny))


def heavy_density(y: Values, start: float, slope: float, share: float, bulk: SmearedLaw, shift: float) -> Values:
    """ln f(y) for a power law λ^-(slope + 1) that holds ``share`` from ``start`` on, above a bulk that ends there."""
    with np.errstate(divide="ignore"):  # all may be tail
        below = np.log(1.0 - share) + bulk.logpdf(y - shift) - bulk.logcdf(np.array(start - shift))
    return np.where(y >= start, np.log(share * slope) - slope * (y - start), below)


def _power_law(y: Spectra, bulk: SmearedLaw) -> tuple[PerDraw, PerDraw, CountPerDraw, PerDraw]:
    """Return (Σ ln f, s, m, α - 1) at the best s and m."""
    rank, fitted, tail = y.shape[1], np.empty((3, len(y))), np.empty(len(y), dtype=np.int64)
    m = np.arange(_LEAST_TAIL, rank + 1)
    below = rank - m
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = m * np.log(m / rank) + np.where(below > 0, below * np.log(below / rank), 0.0)
    apart = np.sort(y - bulk.quantile, axis=1)
    for row, spectrum in enumerate(y):
        above = np.cumsum(spectrum)[m - 1] - m * spectrum[m - 1]
        slope = m / np.maximum(above, np.finfo(float).tiny)
        of_tail = shares + m * np.log(slope) - m
        grid = np.linspace(apart[row, 0] - 2.0, apart[row, -1] + bulk.edge_width, 2 * _COARSE)
        best: tuple[float, float, int] = (-math.inf, math.nan, 0)
        for _ in range(_REFINEMENTS):
            moved = spectrum - grid[:, None]
            density = bulk.logpdf(moved)
            rest = density.sum(axis=1, keepdims=True) - np.cumsum(density, axis=1)[:, m - 1]
            rest[:, below == 0] = 0.0
            total = of_tail + rest - below * bulk.logcdf(moved[:, m - 1])
            i, j = np.unravel_index(int(total.argmax()), total.shape)
            if total[i, j] > best[0]:
                best = float(total[i, j]), float(grid[i]), int(j)
            grid = np.linspace(grid[max(i - 1, 0)], grid[min(i + 1, grid.size - 1)], _FINE)
        _, shift, place = best
        tail[row] = m[place]
        tail_law = float(spectrum[m[place] - 1]), float(slope[place]), int(m[place]) / rank
        fitted[:, row] = heavy_density(spectrum, *tail_law, bulk, shift).sum(), shift, slope[place]
    return fitted[0], fitted[1], tail, fitted[2]


def _depth(y: Spectra) -> tuple[PerDraw, PerDraw, CountPerDraw]:
    """Return (Σ ln g, s, L) at the best s and L; the likeliest depths are searched for with the medians aligned."""

    def aligned(rows: Int[np.ndarray, " row"], depth: int) -> Float[np.ndarray, " row"]:
        law = path_law(y.shape[1], depth)
        return law.logpdf(y[rows] - np.median(y[rows] - law.quantile, axis=1)[:, None]).sum(axis=1)

    every = np.arange(len(y))
    nearest = np.argmax([aligned(every, depth) for depth in _DEPTHS], axis=0)  # a factor of 2 off at most
    fitted, best = np.full((2, len(y)), -np.inf), np.zeros(len(y), dtype=np.int64)
    for place in np.unique(nearest).tolist():
        rows = np.flatnonzero(nearest == place)
        depths = np.arange(_DEPTHS[max(place - 1, 0)], _DEPTHS[min(place + 1, len(_DEPTHS) - 1)] + 1)
        likely = np.argsort([-aligned(rows, depth) for depth in depths.tolist()], axis=0)[:_TRIED]
        for place_of_depth in np.unique(likely).tolist():
            chosen = rows[(likely == place_of_depth).any(axis=0)]
            likelihood, shift = _shifted(y[chosen], path_law(y.shape[1], int(depths[place_of_depth])))
            better = likelihood > fitted[0, chosen]
            fitted[:, chosen[better]] = likelihood[better], shift[better]
            best[chosen[better]] = depths[place_of_depth]
    return fitted[0], fitted[1], best


def ordered_at(levels: NDArray[np.float64], count: int) -> Float[np.ndarray, " count"]:
    """Resample ordered values to ``count`` of them with the same rigidity, interpolating between neighbours."""
    place = (np.arange(count) + 0.5) * (levels.size / max(count, 1)) - 0.5
    return np.interp(place, np.arange(levels.size), levels)
