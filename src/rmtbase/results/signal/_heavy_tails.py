"""Test of heavy tails: the power law in a matrix's eigenvalues against noise, and against other candidates."""

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.linalg import eigvalsh_tridiagonal

from rmtbase.errors import ParameterError
from rmtbase.linalg import matrix_singular_values, singular_values
from rmtbase.parameters import require_dims, require_real_array, require_repeats, require_seed
from rmtbase.progress import SILENT, Progress
from rmtbase.reasons import Reason
from rmtbase.results.depth._effective_depth import WIDEST_DRAW
from rmtbase.results.signal._spectral_likelihood import PATH_SIGMA, Fits, Spectra, fit_candidates, noise_law, ordered_at
from rmtbase.results.signal._spectral_signal import noise_left, require_level
from rmtbase.results.signal.schema import CANDIDATES
from rmtbase.shown import in_one_line
from rmtbase.statistics import PowerLawFit, power_law_fit, power_law_p_value

FEWEST = 16  # eigenvalues of a spectrum: twice as many as the shortest tail of a power law has
_EQUAL = 1e-9  # relative
_LEAST = 1e-150  # for the largest singular value: its square and that of its inverse must be doubles
_FEWEST_DRAWS = 99
_LEAST_LEVEL = 1e-4
_NOISE, _SPIKES, _POWER_LAW, _DEPTH = range(len(CANDIDATES))
_DIMS = "tail_of_dims"

Values = Float[np.ndarray, " r"]


@in_one_line
@dataclass(frozen=True, eq=False)
class SpectralComparison:
    """Noise, spikes on a bulk, a power law and effective depth, compared on all eigenvalues of one matrix."""

    # ℓ of each of ``schema.CANDIDATES`` with Schwarz's penalty; -inf for spikes if there are none, or no bulk below
    log_likelihood: Float[np.ndarray, " candidate"]
    # probability, by draws of each candidate, that the best of the others is as far ahead; NaN where there is none
    p_value: Float[np.ndarray, " candidate"]
    directions: int  # k, the number of spikes
    exponent: float  # α of the power law whose x_min maximises the likelihood of the whole spectrum
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
        if "noise" in self.standing or len(self.standing) == 1:
            return self.standing[0]
        return "undecided" if self.standing else "neither"


@in_one_line
@dataclass(frozen=True, eq=False)
class HeavyTails:
    """Power law fitted to the eigenvalues λ = s² of one spectrum, and how it compares with chance."""

    fit: PowerLawFit  #: maximum-likelihood fit with its own x_min (``statistics.power_law_fit``)
    #: p-value of a tail as heavy in noise, by the fitted exponent: (b + 1)/(draws + 1), where b draws have an exponent
    #: as small
    p_value: float
    #: p-value of the power law itself (``statistics.power_law_p_value``), which assumes independent values. Eigenvalues
    #: repel each other and lie closer to any smooth law, so a small p-value rules the power law out and a large one
    #: says little.
    goodness: float
    #: noise, spikes on a bulk, a power law and effective depth, compared by one likelihood
    comparison: SpectralComparison
    null_exponent: Float[np.ndarray, " draw"] = field(repr=False)  #: exponents of the draws of noise
    level: float  #: level of the tests

    @property
    def is_power_law(self) -> bool:
        """True if the tail is heavier than by chance (p_value ≤ level) and not ruled out (goodness > level).

        Among matrices that learned nothing, this is true of at most the share ``level``.
        """
        return self.p_value <= self.level and self.goodness > self.level


def heavy_tails(
    matrix: ArrayLike,
    draws: int = 99,
    level: float = 0.05,
    seed: int = 0,
    progress: Progress = SILENT,
    *,
    dims: tuple[int, ...] | None = None,
) -> HeavyTails:
    """Test the power law in the eigenvalues λ = s² of a matrix against noise, and compare it with other candidates.

    The exponent is the one of heavy-tailed self-regularisation (Martin and Mahoney). The fit gives an exponent for any
    matrix: for 95 % of Gaussian matrices of 60 × 90 it lies between 2.4 and 9.0. It does not change when the matrix is
    rescaled or transposed, so no σ enters. The null is simulated once for each shape, number of draws and seed.
    Matrices of one shape share these draws, so their p-values are dependent, but each is valid.

    One likelihood of all eigenvalues compares four candidates for the spectrum: noise, spikes on a bulk, a power law's
    tail on a bulk, and a residual path,

        ℓ = Σ_i ln f(ln λ_i) - (p/2) ln r,    f the candidate's density, p the number of its fitted parameters.

    Differences of ℓ are judged by draws of each candidate, to which all candidates are fitted anew. A candidate is
    ruled out if the best of the others is farther ahead of it than in all but a share ``level`` of its own draws.
    ``comparison.verdict`` is noise unless noise is ruled out; several candidates may stand, or none. Measured in
    studies/heavy_tails.

    Args:
        matrix: matrix with at least :data:`FEWEST` singular values; with ``dims``, the singular values of a product.
        draws: number of draws of each candidate; at least 1/level - 1.
        level: level of the tests and of the count of spikes; below 1/2.
        seed: seed of the draws.
        progress: shows the draws.
        dims: dims of the noise's chain, if singular values are given: (d_model, d_head, d_model) for W_QK.

    Raises:
        ParameterError: an argument is outside its domain, or the matrix is not finite or has less than full rank.

    Source: C. H. Martin and M. W. Mahoney, J. Mach. Learn. Res. 22, 165 (2021), for the exponent; A. Clauset, C. R.
        Shalizi and M. E. J. Newman, SIAM Review 51, 661 (2009), for its fit; Q. H. Vuong, Econometrica 57, 307 (1989),
        for ratios of likelihoods.
    """
    array = require_real_array("matrix", matrix).astype(np.float64)
    if not np.isfinite(array).all():
        raise ParameterError("matrix", "NaN or infinity", "finite numbers")
    if dims is None:
        if array.ndim != 2 or min(array.shape) < FEWEST:
            expected = f"a matrix of at least {FEWEST} rows and columns (or dims with it)"
            raise ParameterError("matrix", array.shape, expected)
        values, shape = matrix_singular_values(array), array.shape
    else:
        shape = require_dims(dims)
        if array.shape != (min(shape),) or (array < 0.0).any():
            expected = f"{min(shape)} singular values, the rank of dims = {shape}"
            raise ParameterError("matrix", array.shape, expected)
        values = np.sort(array)[::-1]
    if reason := no_tail(values, shape):
        raise ParameterError("dims" if dims and reason.code == _DIMS else "matrix", reason.words, "a tail to test")
    count, share = require_repeats("draws", draws), require_level(level)
    if not 1.0 / (count + 1) <= share:
        raise ParameterError("level", level, f"one that {count} draws can reach: at least 1/{count + 1}")
    setting = _Setting(max(shape, shape[::-1]), count, require_seed(seed), share, progress)
    eigenvalues, null = values**2, _noise_draws(setting).exponent
    fit = power_law_fit(eigenvalues)
    p_value = float((null <= fit.exponent).sum() + 1) / (count + 1)
    goodness = power_law_p_value(eigenvalues, count, seed)
    return HeavyTails(fit, p_value, goodness, _compared(eigenvalues, setting), null, share)


def no_tail(values: Values, dims: tuple[int, ...]) -> Reason:
    if min(dims) < FEWEST or noise_left(dims, 0).ratio is None:
        return Reason(_DIMS, {"dims": list(dims), "needed": FEWEST})
    largest = float(values[0])
    if not (_LEAST < largest < 1.0 / _LEAST or largest == 0.0):
        return Reason("tail_scale", {"largest": largest, "least": _LEAST, "most": 1.0 / _LEAST})
    rank = int((values > largest * max(dims) * np.finfo(float).eps).sum())
    if rank < values.size:
        return Reason("tail_rank", {"rank": rank, "needed": values.size})
    return Reason("tail_equal") if values[-1] >= largest * (1.0 - _EQUAL) else Reason()


def tail_draws(level: float) -> int:
    if level < _LEAST_LEVEL:
        expected = f"at least {_LEAST_LEVEL:g} for tails, whose tests take 1/level draws each"
        raise ParameterError("level", level, expected)
    return max(_FEWEST_DRAWS, math.ceil(1.0 / level - 1e-9) - 1)


def tail_values(eigenvalues: Values, dims: tuple[int, ...], level: float) -> dict[str, Any]:
    values = np.sqrt(eigenvalues)
    if reason := no_tail(values, dims):
        return {"tail_reason": str(reason)}
    tails = heavy_tails(values, tail_draws(level), level, dims=dims)
    low, middle, high = np.quantile(tails.null_exponent, (0.025, 0.5, 0.975)).tolist()
    compared = tails.comparison
    return {
        "power_law_exponent": tails.fit.exponent,
        "power_law_tail": tails.fit.tail,
        "exponent_p_value": tails.p_value,
        "exponent_goodness": tails.goodness,
        "null_exponent": middle,
        "null_exponent_low": low,
        "null_exponent_high": high,
        "path_depth": compared.depth,
        "tail_verdict": compared.verdict,
        **dict(zip((f"{name}_p_value" for name in CANDIDATES), compared.p_value, strict=True)),
        **dict(zip((f"{name}_log_likelihood" for name in CANDIDATES), compared.log_likelihood, strict=True)),
    }


@dataclass(frozen=True)
class _Setting:
    dims: tuple[int, ...]  # of the chain or its transpose, which have the same spectra: the one with the larger first
    draws: int
    seed: int
    level: float  # of the sequential test for spikes
    progress: Progress = field(compare=False)  # does not change the draws

    def fitted(self, log_eigenvalues: Spectra) -> Fits:
        return fit_candidates(log_eigenvalues, self.dims, self.level)


def _compared(eigenvalues: Values, setting: _Setting) -> SpectralComparison:
    """Compare the candidates of :mod:`rmtbase.results.signal._spectral_likelihood` on one descending spectrum.

    Eigenvalues repel each other, so Vuong's normal law of a difference of likelihoods, for independent values, does not
    hold. Its law is simulated instead, as D. R. Cox does (J. R. Statist. Soc. B 24, 406, 1962): p = (b + 1)/(draws + 1)
    where b draws of a fitted candidate, to which all are fitted anew, have the likeliest of the others as far ahead. It
    is exact for noise at any scale, and for others except for the fitted parameters. Paths are drawn at most 512 wide;
    differences are then compared per eigenvalue, which is approximate.
    """
    y = np.log(eigenvalues)[None]
    fits = setting.fitted(y)
    likelihood, width = fits.log_likelihood[0], min(y.size, WIDEST_DRAW)
    drawn = {
        _NOISE: _noise_draws(setting).log_likelihood,
        _POWER_LAW: setting.fitted(_drawn(setting, _POWER_LAW, fits, y[0])).log_likelihood,
        _DEPTH: _path_likelihood(setting, width, int(fits.depth[0])) * (y.size / width),
    }
    if np.isfinite(likelihood[_SPIKES]):
        drawn[_SPIKES] = setting.fitted(_drawn(setting, _SPIKES, fits, y[0])).log_likelihood
    p_value = np.full(len(CANDIDATES), np.nan)
    for candidate, of_draws in drawn.items():
        spectra = np.vstack([likelihood, of_draws])
        ahead = np.delete(spectra, candidate, axis=1).max(axis=1) - spectra[:, candidate]
        p_value[candidate] = float((ahead >= ahead[0]).mean())
    depth, directions = int(fits.depth[0]), int(fits.directions[0])
    return SpectralComparison(likelihood, p_value, directions, 1.0 + float(fits.slope[0]), depth, setting.level)


class _NoiseDraws(NamedTuple):
    log_eigenvalues: Spectra
    log_likelihood: Float[np.ndarray, "draw candidate"]
    exponent: Float[np.ndarray, " draw"]


@lru_cache(maxsize=64)
def _noise_draws(setting: _Setting) -> _NoiseDraws:
    """Draw spectra of a chain at σ = 1, and fit the candidates and a power law to each."""
    from rmtbase.ensembles import gaussian_chain
    from rmtbase.montecarlo import draw_spectra

    chunks, advance = [], setting.progress.bar("drawing Gaussian spectra", setting.draws)
    if len(setting.dims) == 2:
        rng = np.random.default_rng((setting.seed, _NOISE, *setting.dims))
        for _ in range(setting.draws):
            chunks.append(_matrix_eigenvalues(*setting.dims, rng)[None])
            advance(1)
    else:
        name = "x".join(map(str, setting.dims))
        for chunk in draw_spectra(gaussian_chain(setting.dims), setting.draws, setting.seed, name):
            chunks.append(chunk.singular_values**2)
            advance(len(chunk.singular_values))
    y = np.log(np.concatenate(chunks))
    exponents = np.array([power_law_fit(eigenvalues).exponent for eigenvalues in np.exp(y)])
    return _NoiseDraws(y, setting.fitted(y).log_likelihood, exponents)


def _matrix_eigenvalues(long: int, rank: int, rng: np.random.Generator) -> Values:
    """Draw the eigenvalues of one Gaussian matrix, descending, in O(r²), from B Bᵀ of its bidiagonal form B.

    A dense solver would take an hour for 99 draws of rank 4096, where the smallest eigenvalue keeps 7 digits.
    """
    diagonal = np.sqrt(rng.chisquare(long - np.arange(rank)))
    below = np.sqrt(rng.chisquare(np.arange(rank - 1, 0, -1)))
    squares = diagonal**2 + np.append(0.0, below**2)
    values = eigvalsh_tridiagonal(squares, diagonal[:-1] * below, lapack_driver="sterf")[::-1]
    return np.maximum(values, values[0] * np.finfo(float).eps)


@lru_cache(maxsize=256)
def _path_likelihood(setting: _Setting, width: int, depth: int) -> Float[np.ndarray, "draw candidate"]:
    """ℓ of the candidates in draws of a residual path, multiplied in NumPy: compiling each depth would take longer."""
    advance = setting.progress.bar("drawing residual paths", setting.draws)
    rng = np.random.default_rng((setting.seed, _DEPTH, width, depth))
    y = np.empty((setting.draws, width))
    for row in y:
        path, scale = np.eye(width), PATH_SIGMA / math.sqrt(width)
        for _ in range(depth):
            path += scale * (rng.standard_normal((width, width)) @ path)
        values = singular_values(path)
        row[:] = 2.0 * np.log(np.maximum(values, values[0] * np.finfo(float).eps))  # smaller values are rounding
        advance(1)
    dims = tuple(max(width, round(n * width / min(setting.dims))) for n in setting.dims)
    return replace(setting, dims=dims).fitted(y).log_likelihood


def _drawn(setting: _Setting, candidate: int, fits: Fits, y: Values) -> Spectra:
    """Draw spectra of fitted spikes, each with its spread, or of a power law's independent tail, on a bulk of noise.

    The bulk is a spectrum of noise that its distribution function maps to the bulk's law, which keeps its rigidity.
    """
    k, tail, shift = int(fits.directions[0]), int(fits.tail[0]), float(fits.shift[0, candidate])
    law, start, rng = noise_law(setting.dims), float(y[tail - 1]), np.random.default_rng((setting.seed, candidate))
    spikes = candidate == _SPIKES
    bulk = noise_law(tuple(n - k for n in setting.dims)) if spikes else law
    below = 1.0 if spikes else math.exp(float(law.logcdf(np.array(start - shift))))
    spectra = np.empty((setting.draws, y.size))
    for row, levels in zip(spectra, np.exp(law.logcdf(_noise_draws(setting).log_eigenvalues)), strict=True):
        m = k if spikes else int(rng.binomial(y.size, tail / y.size))
        if spikes:
            row[:m] = y[:m] + fits.spread[0, :m] * rng.standard_normal(m)
        else:
            row[:m] = start + rng.standard_exponential(m) / fits.slope[0]
        row[m:] = bulk.ppf(below * ordered_at(levels, y.size - m)) + shift
    return np.sort(spectra, axis=1)[:, ::-1]
