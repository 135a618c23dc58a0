"""Test of heavy tails: the power law in a matrix's eigenvalues against noise, and against other candidates."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from rmtbase.errors import ParameterError
from rmtbase.linalg import matrix_singular_values
from rmtbase.parameters import require_dims, require_real_array, require_repeats, require_seed
from rmtbase.progress import SILENT, Progress
from rmtbase.reasons import Reason
from rmtbase.results.signal._remaining_noise import noise_left
from rmtbase.results.signal._spectral_comparison import (
    Setting,
    SpectralComparison,
    compare_spectrum,
    noise_spectra,
    undirected,
)
from rmtbase.results.signal._spectral_signal import require_level
from rmtbase.shown import in_one_line
from rmtbase.statistics import PowerLawFit, power_law_fit, power_law_p_value

FEWEST = 16
"""Fewest eigenvalues of a spectrum: twice as many as the shortest tail of a power law has."""

_EQUAL = 1e-9  # relative
_LEAST = 1e-150  # for the largest singular value: its square and that of its inverse must be doubles

Values = Float[np.ndarray, " r"]


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
    #: shape, draws, level: shape of the matrix (dims of a chain), and the number of draws and level asked for
    shape: tuple[int, ...]
    draws: int
    level: float

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
    values, shape = _require_values(matrix, dims)
    count, share = require_repeats("draws", draws), require_level(level)
    if not 1.0 / (count + 1) <= share:
        raise ParameterError("level", level, f"one that {count} draws can reach: at least 1/{count + 1}")
    setting = Setting(undirected(shape), count, require_seed(seed), share, progress)
    null, eigenvalues = _null_exponents(setting), values**2
    fit = power_law_fit(eigenvalues)
    return HeavyTails(
        fit=fit,
        p_value=float((null <= fit.exponent).sum() + 1) / (count + 1),
        goodness=power_law_p_value(eigenvalues, count, seed),
        comparison=compare_spectrum(eigenvalues, setting),
        null_exponent=null,
        shape=shape,
        draws=count,
        level=share,
    )


def _require_values(array: ArrayLike, dims: tuple[int, ...] | None) -> tuple[Values, tuple[int, ...]]:
    """Check the matrix or singular values; return singular values, descending, and the dims of their noise."""
    checked = require_real_array("matrix", array).astype(np.float64)
    if not np.isfinite(checked).all():
        raise ParameterError("matrix", "NaN or infinity", "finite numbers")
    if dims is None:
        if checked.ndim != 2 or min(checked.shape) < FEWEST:
            expected = f"a matrix of at least {FEWEST} rows and columns (or dims with it)"
            raise ParameterError("matrix", checked.shape, expected)
        values, shape = matrix_singular_values(checked), checked.shape
    else:
        shape = require_dims(dims)
        if checked.shape != (min(shape),) or (checked < 0.0).any():
            expected = f"{min(shape)} singular values, the rank of dims = {shape}"
            raise ParameterError("matrix", checked.shape, expected)
        values = np.sort(checked)[::-1]
    if reason := no_tail(values, shape):
        raise ParameterError("dims" if dims and reason.code == _DIMS else "matrix", reason.words, "a tail to test")
    return values, shape


_DIMS = "tail_of_dims"


def no_tail(values: Values, dims: tuple[int, ...]) -> Reason:
    """Return the reason why the tail of descending singular values cannot be tested, if any."""
    if min(dims) < FEWEST or noise_left(dims, 0).ratio is None:
        return Reason(_DIMS, {"dims": list(dims), "needed": FEWEST})
    largest = float(values[0])
    if not (_LEAST < largest < 1.0 / _LEAST or largest == 0.0):
        return Reason("tail_scale", {"largest": largest, "least": _LEAST, "most": 1.0 / _LEAST})
    rank = int((values > largest * max(dims) * np.finfo(float).eps).sum())
    if rank < values.size:
        return Reason("tail_rank", {"rank": rank, "needed": values.size})
    return Reason("tail_equal") if values[-1] >= largest * (1.0 - _EQUAL) else Reason()


@lru_cache(maxsize=64)
def _null_exponents(setting: Setting) -> Float[np.ndarray, " draw"]:
    return np.array([power_law_fit(eigenvalues).exponent for eigenvalues in np.exp(noise_spectra(setting))])
