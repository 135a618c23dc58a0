"""Spectra of whole weight matrices, computed while the matrices are read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Shaped

from rmtbase.linalg import appended_rows, matrix_singular_values
from rmtbase.models import MatrixName
from rmtbase.results.signal._noise import Noise, NoiseOfHead


class MatrixSpectrum(NamedTuple):
    """Spectrum of a whole matrix: its shape, its eigenvalues, and its noise."""

    shape: tuple[int, int]
    eigenvalues: Float[np.ndarray, " r"]
    noise: NoiseOfHead


class MatrixSpectrumTaker:
    """Collector of the spectra of layers' matrices, each with its noise."""

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
        kurtosis = math.prod(shape) * fourths / squares**2 - 3.0 if squares**2 > 0.0 else math.nan
        count = None if flips is None else flips.count(np.concatenate(list(blocks)), map_draws=map_spans)
        noise = self._noise.of_head(shape, 1, (kurtosis,) if count is None else count)
        self.spectra[name] = MatrixSpectrum(shape, matrix_singular_values(triangle) ** 2, noise)
