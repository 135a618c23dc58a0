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
from rmtbase.results.signal._spectral_likelihood import CANDIDATES, Fits, Spectra, fit_candidates, noise_law, ordered_at
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
    # p-value of each row's candidate against each column's: the probability, by draws of the first, that ℓ of the
    # second is as far ahead. NaN on the diagonal, and where there is none.
    pair_p_value: Float[np.ndarray, "candidate against"] = field(repr=False)
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
        """Noise if it stands, else the only candidate that stands, several or none: one of :data:`.TAIL_VERDICTS`.

        Among matrices that learned nothing, at most the share ``level`` is called anything but noise.
        """
        if "noise" in self.standing:
            return "noise"
        if len(self.standing) == 1:
            return self.standing[0]
        return "not told apart" if self.standing else "none of them"

    def summary(self) -> str:
        """Describe the verdict in words, and which candidates are ruled out by which p-value."""
        words = {
            "noise": "noise",
            "spikes": f"spikes on a bulk ({self.directions} direction{'s' if self.directions > 1 else ''})",
            "power law": f"a power law (exponent {self.exponent:.3g}, {self.tail} eigenvalues)",
            "effective depth": f"a residual path of depth {self.depth}",
        }
        standing = [words[name] for name in self.standing]
        out = [
            f"{words[name]} (p = {p:.2g})"
            for name, p in zip(CANDIDATES, self.p_value.tolist(), strict=True)
            if p <= self.level
        ]
        if self.verdict == "noise":
            others = standing[1:]
            return "Noise is enough" + (f"; it cannot be told from {_listed(others, 'or')}." if others else ".")
        ruled = f"ruled out: {_listed(out, 'and')}." if out else ""
        if not standing:
            best = words[CANDIDATES[int(np.argmax(self.log_likelihood))]]
            return f"None of the candidates fits; the likeliest is {best}; {ruled}"
        start = _listed(standing, "or") + (", not told apart" if len(standing) > 1 else "")
        return f"{start[0].upper()}{start[1:]}; {ruled}"


def compare_spectrum(eigenvalues: Float[np.ndarray, " r"], of: Setting) -> SpectralComparison:
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
    dims, level = of.dims, of.level
    y = np.log(eigenvalues)[None]
    fits = fit_candidates(y, dims, level, PATH_SIGMA)
    p_value = np.full(len(CANDIDATES), np.nan)
    pairs = np.full((len(CANDIDATES), len(CANDIDATES)), np.nan)
    rank = y.shape[1]
    width = min(rank, WIDEST_DRAW)
    for one in range(len(CANDIDATES)):
        if one == SPIKES and not np.isfinite(fits.log_likelihood[0, SPIKES]):
            continue
        if one == NOISE:
            drawn = _noise_fits(of).log_likelihood
        elif one == DEPTH:
            drawn = _path_likelihood(of, width, int(fits.depth[0])) * (rank / width)
        else:
            moved = _spiked(of, fits, y[0]) if one == SPIKES else _heavy(of, fits, y[0])
            drawn = fit_candidates(moved, dims, level, PATH_SIGMA).log_likelihood
        others = [other for other in range(len(CANDIDATES)) if other != one]
        p_value[one], pairs[one, others] = _p_values(fits.log_likelihood[0], drawn, one, others)
    pairs[:, ~np.isfinite(fits.log_likelihood[0])] = np.nan
    return SpectralComparison(
        fits.log_likelihood[0],
        p_value,
        pairs,
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
def noise_spectra(of: Setting) -> Spectra:
    """Draw spectra of a chain at σ = 1, as ln λ."""
    from rmtbase.ensembles import gaussian_chain
    from rmtbase.montecarlo import draw_spectra

    found, advance = [], of.progress.bar(DRAWING_SPECTRA, of.draws)
    if len(of.dims) == 2:
        rng = np.random.default_rng((of.seed, NOISE, *of.dims))
        for _ in range(of.draws):
            found.append(_matrix_eigenvalues(*of.dims, rng)[None])
            advance(1)
    else:
        for chunk in draw_spectra(gaussian_chain(of.dims), of.draws, of.seed, "x".join(map(str, of.dims))):
            found.append(chunk.singular_values**2)
            advance(len(chunk.singular_values))
    return np.log(np.concatenate(found))


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
def _noise_fits(of: Setting) -> Fits:
    """Fit the candidates to draws of noise."""
    y = noise_spectra(of)
    return fit_candidates(y, of.dims, of.level, PATH_SIGMA)


@lru_cache(maxsize=256)
def _path_likelihood(of: Setting, width: int, depth: int) -> Float[np.ndarray, "draw candidate"]:
    """ℓ of the candidates in draws of a residual path, multiplied in NumPy: compiling each depth would take longer."""
    advance, rng = of.progress.bar(DRAWING_PATHS, of.draws), np.random.default_rng((of.seed, DEPTH, width, depth))
    y = np.empty((of.draws, width))
    for row in y:
        path, scale = np.eye(width), PATH_SIGMA / math.sqrt(width)
        for _ in range(depth):
            path += scale * (rng.standard_normal((width, width)) @ path)
        values = singular_values(path)
        row[:] = 2.0 * np.log(np.maximum(values, values[0] * np.finfo(float).eps))  # smaller values are rounding
        advance(1)
    dims = tuple(max(width, round(n * width / min(of.dims))) for n in of.dims)
    return fit_candidates(y, dims, of.level, PATH_SIGMA).log_likelihood


def _levels(of: Setting) -> Spectra:
    """Distribution function of noise at its own draws, descending: values as evenly spread as eigenvalues are."""
    return np.exp(noise_law(of.dims).logcdf(noise_spectra(of)))


def _spiked(of: Setting, fits: Fits, y: Float[np.ndarray, " r"]) -> Spectra:
    k = int(fits.directions[0])
    law, rng = noise_law(tuple(n - k for n in of.dims)), np.random.default_rng((of.seed, SPIKES))
    found = np.empty((of.draws, y.size))
    for row, levels in zip(found, _levels(of), strict=True):
        row[:k] = y[:k] + fits.spread[0, :k] * rng.standard_normal(k)
        row[k:] = law.ppf(ordered_at(levels, y.size - k)) + fits.shift[0, SPIKES]
    return np.sort(found, axis=1)[:, ::-1]


def _heavy(of: Setting, fits: Fits, y: Float[np.ndarray, " r"]) -> Spectra:
    law, rng = noise_law(of.dims), np.random.default_rng((of.seed, POWER_LAW))
    tail, shift = int(fits.tail[0]), float(fits.shift[0, POWER_LAW])
    start = float(y[tail - 1])
    below = math.exp(float(law.logcdf(np.array(start - shift))))
    found = np.empty((of.draws, y.size))
    for row, levels in zip(found, _levels(of), strict=True):
        m = int(rng.binomial(y.size, tail / y.size))
        row[:m] = start + rng.standard_exponential(m) / fits.slope[0]
        row[m:] = law.ppf(below * ordered_at(levels, y.size - m)) + shift
    return np.sort(found, axis=1)[:, ::-1]


def _p_values(
    observed: Float[np.ndarray, " candidate"], drawn: Float[np.ndarray, "draw candidate"], one: int, others: list[int]
) -> tuple[float, Float[np.ndarray, " other"]]:
    """p-values of one candidate: that the best of the others is as far ahead, and that each of them is."""
    every = np.vstack([observed, drawn])
    ahead = every[:, others] - every[:, [one]]
    best = ahead.max(axis=1)
    return float((best >= best[0]).mean()), (ahead >= ahead[0]).mean(axis=0)


def _listed(words: list[str], last: str) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"
