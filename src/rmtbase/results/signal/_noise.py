"""Noise in which directions are looked for, made from a null, and spectra of whole matrices with it."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Shaped

from rmtbase.errors import ParameterError
from rmtbase.heads.read_sites import Preparation
from rmtbase.linalg import appended_rows, matrix_singular_values
from rmtbase.models import MatrixName
from rmtbase.nulls import KURTOSIS, Gaussian, Kurtosis, Null, Signs, mean_kurtosis, own_kurtosis
from rmtbase.parameters import require_independent_entries
from rmtbase.reasons import Reason
from rmtbase.results.signal._sign_flips import SignCount, SignFlips, sign_flips


class NoiseOfHead(NamedTuple):
    """Noise of one head, or of one group of heads."""

    kurtosis: float  # excess kurtosis of its entries; NaN if unknown
    counted: SignCount | None = None  # directions counted by sign flips, or None
    reason: Reason = Reason()  # why nothing can be said of the head


@dataclass(frozen=True)
class Noise:
    """Noise in which directions are looked for.

    Its entries are independent: with a known excess kurtosis, with that of the head or matrix itself, or of any laws
    that are symmetric about 0, when directions are counted against random sign flips.
    """

    entry_kurtosis: float | None = 0.0  # None for that of the head or matrix itself
    preparation: Preparation | None = None  # computes what ``of_head`` needs to know about each head
    flips: SignFlips | None = None  # count directions

    def of_head(self, dims: tuple[int, ...], n_factors: int, prepared: Any) -> NoiseOfHead:
        """Return the noise of a head with ``n_factors`` factors, whose noise is a chain of ``dims``."""
        if self.preparation is None:
            assert self.entry_kurtosis is not None
            return NoiseOfHead(self.entry_kurtosis)
        reason = Reason("" if len(dims) == n_factors + 1 else "dependent_elements")
        if self.flips is not None:
            return NoiseOfHead(0.0, prepared, reason)
        return NoiseOfHead(math.nan if reason else float(mean_kurtosis(dims, list(prepared))), reason=reason)

    def kurtosis(self, dims: tuple[int, ...], matrices: Sequence[Shaped[np.ndarray, "row column"]]) -> float:
        """Return the excess kurtosis of the noise in a product of matrices."""
        if self.entry_kurtosis is not None:
            return self.entry_kurtosis
        return float(mean_kurtosis(dims, [own_kurtosis(matrix) for matrix in matrices]))


def noise_of(null: Null, level: float) -> Noise:
    """Return the noise of a null, whose directions are tested at a level."""
    if isinstance(null, Signs):
        if null.initialization != "normal":
            expected = "none with the null of sign flips, which needs no law of the entries"
            raise ParameterError("initialization", null.initialization, expected)
        flips = sign_flips(level, null.draws, null.seed)
        return Noise(preparation=flips, flips=flips)
    if isinstance(null, Kurtosis):
        return Noise(None, null)
    if isinstance(null, Gaussian):
        return Noise(KURTOSIS[require_independent_entries(null.initialization, "the noise")])
    raise ParameterError("null", null.name, "one of gaussian, kurtosis, signs")


class MatrixSpectrum(NamedTuple):
    """Spectrum of a whole matrix: its shape, its eigenvalues, and its noise."""

    shape: tuple[int, int]
    eigenvalues: Float[np.ndarray, " r"]
    noise: NoiseOfHead


class MatrixSpectrumTaker:
    """Collector of the spectra of layers' matrices, each with its noise, while they are read."""

    def __init__(self, noise: Noise) -> None:
        self.spectra: dict[MatrixName, MatrixSpectrum] = {}
        self._noise = noise

    def add(
        self,
        name: MatrixName,
        blocks: Iterable[Shaped[np.ndarray, "row column"]],
        shape: tuple[int, int],
        map_spans: Callable[..., Iterable[Any]] = map,
    ) -> None:
        """Add the spectrum of one matrix, given in blocks of rows."""
        triangle: Float[np.ndarray, "row column"] | None = None
        squares = fourths = 0.0
        flips = self._noise.flips
        blocks = blocks if flips is None else list(blocks)
        for block in blocks:
            triangle = appended_rows(triangle, block)
            square = np.square(block, dtype=np.float64)
            squares, fourths = squares + float(square.sum()), fourths + float(np.vdot(square, square))
        assert triangle is not None
        if flips is None:
            prepared = (math.prod(shape) * fourths / squares**2 - 3.0 if squares**2 > 0.0 else math.nan,)
        else:
            prepared = flips.count(np.concatenate(list(blocks)), map_draws=map_spans)
        noise = self._noise.of_head(shape, 1, prepared)
        self.spectra[name] = MatrixSpectrum(shape, matrix_singular_values(triangle) ** 2, noise)
