"""Heavy tails, tested: the power law in a matrix's eigenvalues beside that in matrices that learned nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from rmtbase.errors import ParameterError
from rmtbase.linalg import matrix_singular_values
from rmtbase.parameters import require_positive_integer, require_positive_number, require_real_array, require_seed
from rmtbase.progress import SILENT, Progress
from rmtbase.shown import in_one_line
from rmtbase.statistics import PowerLawFit, hill_exponent, power_law_fit, power_law_p_value

DRAWING_SPECTRA = "drawing Gaussian spectra"

_FEWEST = 20  # eigenvalues: of fewer the largest tenth is one
_HILL_SHARE = 0.1


@in_one_line
@dataclass(frozen=True, eq=False)
class HeavyTails:
    """The power law that is fitted to the eigenvalues λ = s² of one matrix, and how it stands to chance.

    Attributes:
        fit: by maximum likelihood with its own x_min (:func:`rmtbase.statistics.power_law_fit`).
        hill: Hill's exponent of the largest tenth of the eigenvalues.
        p_value: of a tail as heavy, by the fitted exponent, in a Gaussian matrix of the shape: (b + 1)/(draws + 1), b
            of the draws with an exponent as small.
        hill_p_value: the same by Hill's exponent.
        goodness: the p-value of the power law itself (:func:`rmtbase.statistics.power_law_p_value`), of independent
            values: eigenvalues repel each other and lie closer to any smooth law, so that a small one rules the power
            law out and a large one says little.
        null_exponent, null_hill: the exponents of the draws.
        shape, draws, level: of the matrix, and as asked for.
    """

    fit: PowerLawFit
    hill: float
    p_value: float
    hill_p_value: float
    goodness: float
    null_exponent: Float[np.ndarray, " draw"] = field(repr=False)
    null_hill: Float[np.ndarray, " draw"] = field(repr=False)
    shape: tuple[int, int]
    draws: int
    level: float

    @property
    def is_power_law(self) -> bool:
        """Heavier than chance makes it (p_value ≤ level), and not ruled out (goodness > level).

        Of matrices that learned nothing at most the share ``level`` is called so.
        """
        return self.p_value <= self.level and self.goodness > self.level

    def summary(self) -> str:
        """The finding in words."""
        low, middle, high = np.quantile(self.null_exponent, (0.025, 0.5, 0.975))
        found = (
            f"The {self.fit.tail} largest eigenvalues have the exponent {self.fit.exponent:.3g} "
            f"(Gaussian matrices of this shape: {middle:.3g}, 95 % from {low:.3g} to {high:.3g}; "
            f"p = {self.p_value:.2g})."
        )
        if self.p_value > self.level:
            return f"{found} No heavier a tail than chance makes."
        verdict = "and a power law is not ruled out" if self.is_power_law else "but no power law"
        return f"{found} A heavier tail than chance makes, {verdict} (p = {self.goodness:.2g})."


def heavy_tails(
    matrix: ArrayLike, draws: int = 99, level: float = 0.05, seed: int = 0, progress: Progress = SILENT
) -> HeavyTails:
    """Fit a power law to the eigenvalues λ = s² of a matrix, and test it against Gaussian matrices of its shape.

    The exponent is that of heavy-tailed self-regularisation (Martin and Mahoney), which a fit gives of any matrix: of
    95 % of Gaussian ones of 60 × 90 one between 2.4 and 9.0. It does not change when the matrix is rescaled or
    transposed, so that no σ enters. The null is simulated once for each shape, number of draws and seed; what matrices
    of one shape share of it makes their p-values dependent, each valid.

    Args:
        matrix: of at least 20 singular values.
        draws: of Gaussian matrices, and of the power law; at least 1/level - 1.
        level: of the tests.
        seed: of the draws.
        progress: shows the draws.

    Raises:
        ParameterError: an argument outside its domain; a matrix that is not finite, or of less than full rank.

    Source: C. H. Martin and M. W. Mahoney, J. Mach. Learn. Res. 22, 165 (2021), for the exponent.
    """
    array = require_real_array("matrix", matrix).astype(np.float64)
    if array.ndim != 2 or min(array.shape) < _FEWEST:
        raise ParameterError("matrix", array.shape, f"a matrix of at least {_FEWEST} rows and columns")
    if not np.isfinite(array).all():
        raise ParameterError("matrix", "NaN or infinity", "finite numbers")
    count, share = require_positive_integer("draws", draws), require_positive_number("level", level)
    if not 1.0 / (count + 1) <= share < 1.0:
        raise ParameterError("level", level, f"a number below 1, and one that {count} draws can reach: 1/{count + 1}")
    values = matrix_singular_values(array)
    rank = int((values > values[0] * max(array.shape) * np.finfo(float).eps).sum())
    if rank < values.size:
        raise ParameterError("matrix", f"rank {rank}", f"{values.size}: no eigenvalue that is zero")
    rows, columns = array.shape
    null = _null_exponents(_Draws(max(rows, columns), min(rows, columns), count, require_seed(seed), progress))
    exponent, hill = _exponents(values)
    return HeavyTails(
        fit=power_law_fit(values**2),
        hill=hill,
        p_value=float((null[0] <= exponent).sum() + 1) / (count + 1),
        hill_p_value=float((null[1] <= hill).sum() + 1) / (count + 1),
        goodness=power_law_p_value(values**2, count, seed),
        null_exponent=null[0],
        null_hill=null[1],
        shape=(rows, columns),
        draws=count,
        level=share,
    )


def _exponents(values: Float[np.ndarray, " value"]) -> tuple[float, float]:
    """The fitted exponent and Hill's, of singular values."""
    eigenvalues = values**2
    return power_law_fit(eigenvalues).exponent, hill_exponent(eigenvalues, math.ceil(_HILL_SHARE * values.size))


@dataclass(frozen=True)
class _Draws:
    """Which draws; how their progress is told makes no other ones."""

    long: int
    short: int
    draws: int
    seed: int
    progress: Progress = field(compare=False)


@lru_cache(maxsize=64)
def _null_exponents(of: _Draws) -> Float[np.ndarray, "exponent draw"]:
    from rmtbase.ensembles import gaussian_matrix
    from rmtbase.montecarlo import draw_spectra

    found, advance = [], of.progress.bar(DRAWING_SPECTRA, of.draws)
    for chunk in draw_spectra(gaussian_matrix(of.long, of.short), of.draws, of.seed, f"{of.long}x{of.short}"):
        found += [_exponents(one) for one in chunk.singular_values]
        advance(len(chunk.singular_values))
    return np.array(found).T
