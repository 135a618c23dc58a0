"""Comparison of four candidates for a spectrum by one likelihood, tested by draws of each candidate."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from jaxtyping import Float
from scipy.linalg import eigvalsh_tridiagonal

from rmtbase.linalg import singular_values
from rmtbase.progress import Progress
from rmtbase.results.depth._depth_fitter import WIDEST_DRAW
from rmtbase.results.signal._spectral_likelihood import Fits, Spectra, fit_candidates, noise_law, ordered_at
from rmtbase.results.signal.schema import CANDIDATES
from rmtbase.shown import in_one_line

DRAWING_SPECTRA, DRAWING_PATHS = "drawing Gaussian spectra", "drawing residual paths"

PATH_SIGMA = 1.0
"""σ of the residual paths, as in :func:`rmtbase.results.depth.effective_depth`."""

NOISE, SPIKES, POWER_LAW, DEPTH = range(len(CANDIDATES))


@in_one_line
@dataclass(frozen=True, eq=False)
class SpectralComparison:
    """Noise, spikes on a bulk, a power law and effective depth, compared on all eigenvalues of one matrix."""

    # ℓ of each of :data:`CANDIDATES`, with Schwarz's penalty for fitted parameters; -inf for spikes if none was found,
    # or if no bulk is left below them
    log_likelihood: Float[np.ndarray, " candidate"]
    # p-value of each candidate: the probability, by draws of it, that the best of the others is as far ahead. NaN where
    # there is none.
    p_value: Float[np.ndarray, " candidate"]
    directions: int  # k, the number of spikes
    # tail, exponent: number of eigenvalues in the power law's tail, and its α, by this likelihood. Its x_min maximises
    # the likelihood of the whole spectrum, whereas ``statistics.power_law_fit`` takes the x_min of the smallest
    # distance.
    tail: int
    exponent: float
    depth: int  # L of the residual path
    level: float  # level of the tests

    @property
    def standing(self) -> tuple[str, ...]:
        """Candidates that are not ruled out at the level."""
        return tuple(name for name, p in zip(CANDIDATES, self.p_value.tolist(), strict=True) if p > self.level)

    @property
    def verdict(self) -> str:
        """Noise if it stands, else the only candidate that stands, several or none: one of ``schema.VERDICTS``.

        Among matrices that learned nothing, at most the share ``level`` is called anything but noise.
        """
        if "noise" in self.standing:
            return "noise"
        if len(self.standing) == 1:
            return self.standing[0]
        return "undecided" if self.standing else "neither"


def compare_spectrum(eigenvalues: Float[np.ndarray, " r"], setting: Setting) -> SpectralComparison:
    """Compare the candidates of :mod:`rmtbase.results.signal._spectral_likelihood` on one descending spectrum.

    Eigenvalues repel each other, so a difference of composite likelihoods does not follow a normal law (Vuong's law is
    for independent values). Its law is simulated: matrices of each fitted candidate are drawn, and all candidates are
    fitted to them anew. The p-value of candidate M is (b + 1)/(draws + 1), where b draws of M have the likeliest of the
    others as far ahead of M as the matrix has. It is exact for noise at any scale; for the other candidates it is exact
    except for the fitted parameters.

    Draws of noise are the chain's own spectra. Draws of spikes are a bulk of the chain of dims n_l - k with outliers of
    their own spread. Draws of the power law are independent values of the tail above a bulk of noise that is cut where
    the tail starts. Draws of depth are residual paths. Bulks are spectra of noise that are mapped by their distribution
    function to the bulk's law, which keeps their rigidity. Paths are drawn at most 512 wide; differences are then
    compared per eigenvalue, which makes the p-value approximate.

    Source: Q. H. Vuong, Econometrica 57, 307 (1989), for the question; D. R. Cox, J. R. Statist. Soc. B 24, 406 (1962),
        for the law of a ratio under either hypothesis.
    """
    dims, level = setting.dims, setting.level
    y = np.log(eigenvalues)[None]
    fits = fit_candidates(y, dims, level, PATH_SIGMA)
    p_value = np.full(len(CANDIDATES), np.nan)
    rank = y.shape[1]
    width = min(rank, WIDEST_DRAW)
    for candidate in range(len(CANDIDATES)):
        if candidate == SPIKES and not np.isfinite(fits.log_likelihood[0, SPIKES]):
            continue
        if candidate == NOISE:
            drawn = _noise_fits(setting).log_likelihood
        elif candidate == DEPTH:
            drawn = _path_likelihood(setting, width, int(fits.depth[0])) * (rank / width)
        else:
            moved = _spiked(setting, fits, y[0]) if candidate == SPIKES else _heavy(setting, fits, y[0])
            drawn = fit_candidates(moved, dims, level, PATH_SIGMA).log_likelihood
        p_value[candidate] = _p_value(np.vstack([fits.log_likelihood[0], drawn]), candidate)
    return SpectralComparison(
        fits.log_likelihood[0],
        p_value,
        int(fits.directions[0]),
        int(fits.tail[0]),
        1.0 + float(fits.slope[0]),
        int(fits.depth[0]),
        level,
    )


@dataclass(frozen=True)
class Setting:
    """Settings of the draws, compared without ``progress``, which does not change them."""

    dims: tuple[int, ...]  # dims of the chain, in one of its two directions (see :func:`undirected`)
    # draws, seed: number of the draws, and their seed
    draws: int
    seed: int
    level: float  # level of the sequential test for spikes
    progress: Progress = field(compare=False)  # shows the draws


def undirected(dims: tuple[int, ...]) -> tuple[int, ...]:
    """Dims of a chain or of its transpose, whichever begins with the larger one: both have the same spectra."""
    return max(dims, dims[::-1])


@lru_cache(maxsize=64)
def noise_spectra(setting: Setting) -> Spectra:
    """Draw spectra of a chain at σ = 1, as ln λ."""
    from rmtbase.ensembles import gaussian_chain
    from rmtbase.montecarlo import draw_spectra

    chunks, advance = [], setting.progress.bar(DRAWING_SPECTRA, setting.draws)
    if len(setting.dims) == 2:
        rng = np.random.default_rng((setting.seed, NOISE, *setting.dims))
        for _ in range(setting.draws):
            chunks.append(_matrix_eigenvalues(*setting.dims, rng)[None])
            advance(1)
    else:
        for chunk in draw_spectra(
            gaussian_chain(setting.dims), setting.draws, setting.seed, "x".join(map(str, setting.dims))
        ):
            chunks.append(chunk.singular_values**2)
            advance(len(chunk.singular_values))
    return np.log(np.concatenate(chunks))


def _matrix_eigenvalues(long: int, rank: int, rng: np.random.Generator) -> Float[np.ndarray, " r"]:
    """Draw the eigenvalues of one Gaussian matrix, descending, in O(r²), from B Bᵀ of its bidiagonal form B.

    B is that of ``ensembles``. A dense solver would take an hour for 99 draws of rank 4096. The smallest eigenvalue
    keeps 7 digits there.
    """
    diagonal = np.sqrt(rng.chisquare(long - np.arange(rank)))
    below = np.sqrt(rng.chisquare(np.arange(rank - 1, 0, -1)))
    squares = diagonal**2 + np.append(0.0, below**2)
    values = eigvalsh_tridiagonal(squares, diagonal[:-1] * below, lapack_driver="sterf")[::-1]
    return np.maximum(values, values[0] * np.finfo(float).eps)


@lru_cache(maxsize=64)
def _noise_fits(setting: Setting) -> Fits:
    """Fit the candidates to draws of noise."""
    y = noise_spectra(setting)
    return fit_candidates(y, setting.dims, setting.level, PATH_SIGMA)


@lru_cache(maxsize=256)
def _path_likelihood(setting: Setting, width: int, depth: int) -> Float[np.ndarray, "draw candidate"]:
    """ℓ of the candidates in draws of a residual path, multiplied in NumPy: compiling each depth would take longer."""
    advance, rng = (
        setting.progress.bar(DRAWING_PATHS, setting.draws),
        np.random.default_rng((setting.seed, DEPTH, width, depth)),
    )
    y = np.empty((setting.draws, width))
    for row in y:
        path, scale = np.eye(width), PATH_SIGMA / math.sqrt(width)
        for _ in range(depth):
            path += scale * (rng.standard_normal((width, width)) @ path)
        values = singular_values(path)
        row[:] = 2.0 * np.log(np.maximum(values, values[0] * np.finfo(float).eps))  # smaller values are rounding
        advance(1)
    dims = tuple(max(width, round(n * width / min(setting.dims))) for n in setting.dims)
    return fit_candidates(y, dims, setting.level, PATH_SIGMA).log_likelihood


def _levels(setting: Setting) -> Spectra:
    """Distribution function of noise at its own draws, descending: values as evenly spread as eigenvalues are."""
    return np.exp(noise_law(setting.dims).logcdf(noise_spectra(setting)))


def _spiked(setting: Setting, fits: Fits, y: Float[np.ndarray, " r"]) -> Spectra:
    k = int(fits.directions[0])
    law, rng = noise_law(tuple(n - k for n in setting.dims)), np.random.default_rng((setting.seed, SPIKES))
    spectra = np.empty((setting.draws, y.size))
    for row, levels in zip(spectra, _levels(setting), strict=True):
        row[:k] = y[:k] + fits.spread[0, :k] * rng.standard_normal(k)
        row[k:] = law.ppf(ordered_at(levels, y.size - k)) + fits.shift[0, SPIKES]
    return np.sort(spectra, axis=1)[:, ::-1]


def _heavy(setting: Setting, fits: Fits, y: Float[np.ndarray, " r"]) -> Spectra:
    law, rng = noise_law(setting.dims), np.random.default_rng((setting.seed, POWER_LAW))
    tail, shift = int(fits.tail[0]), float(fits.shift[0, POWER_LAW])
    start = float(y[tail - 1])
    below = math.exp(float(law.logcdf(np.array(start - shift))))
    spectra = np.empty((setting.draws, y.size))
    for row, levels in zip(spectra, _levels(setting), strict=True):
        m = int(rng.binomial(y.size, tail / y.size))
        row[:m] = start + rng.standard_exponential(m) / fits.slope[0]
        row[m:] = law.ppf(below * ordered_at(levels, y.size - m)) + shift
    return np.sort(spectra, axis=1)[:, ::-1]


def _p_value(likelihood: Float[np.ndarray, "spectrum candidate"], candidate: int) -> float:
    """p-value of a candidate for the first spectrum, by draws: that the best of the others is as far ahead."""
    ahead = np.delete(likelihood, candidate, axis=1).max(axis=1) - likelihood[:, candidate]
    return float((ahead >= ahead[0]).mean())
