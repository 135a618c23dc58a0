"""Noise in which directions are looked for, made from a null, and spectra of whole matrices with it."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Shaped

from rmtbase.errors import ParameterError
from rmtbase.heads.read_sites import Preparation
from rmtbase.linalg import appended_rows, matrix_singular_values
from rmtbase.models import MatrixName
from rmtbase.nulls import KURTOSIS, LARGEST_KURTOSIS, Gaussian, Kurtosis, Null, Signs, mean_kurtosis
from rmtbase.parameters import require_independent_entries
from rmtbase.reasons import Reason
from rmtbase.results.signal._learned_bound import ShareBound
from rmtbase.results.signal._sign_flips import SignCount, SignFlips, sign_flips
from rmtbase.results.signal._spectral_signal import no_law_at


class Spectrum(NamedTuple):
    """Spectrum of one head, group of heads or matrix, with what its test needs."""

    eigenvalues: Float[np.ndarray, " r"]
    dims: tuple[int, ...]  # of the chain of its noise
    bound: ShareBound  # on its learned share
    reason: Reason  # why nothing can be said of it
    kurtosis: float = math.nan  # excess kurtosis of the entries of its noise; NaN if unknown
    counted: SignCount | None = None  # directions counted by sign flips, or None
    shares: Float[np.ndarray, "direction member"] | None = None  # of each head of a group in each direction

    @property
    def uncounted(self) -> Reason:
        if self.reason:
            return self.reason
        no_law = no_law_at(self.dims) if self.counted is None else self.counted.untested
        if no_law or self.kurtosis <= LARGEST_KURTOSIS:
            return no_law
        return Reason("heavy_entries", {"largest": LARGEST_KURTOSIS})


@dataclass(frozen=True)
class Noise:
    """Noise in which directions are looked for: its entries are independent."""

    entry_kurtosis: float | None = 0.0  # excess kurtosis of its entries; None for that of the head or matrix itself
    preparation: Preparation | None = None  # computes what :meth:`spectrum` needs to know about each head
    flips: SignFlips | None = None  # count directions in noise of any laws that are symmetric about 0

    def spectrum(
        self, values: Float[np.ndarray, " r"], dims: tuple[int, ...], n_factors: int, prepared: Any, reason: Reason
    ) -> Spectrum:
        """Return the spectrum of singular values, whose noise is a chain of ``dims``."""
        if self.preparation is not None and len(dims) != n_factors + 1:
            reason = reason or Reason("dependent_elements")
        eigenvalues = values**2
        reason = reason or Reason("" if eigenvalues.any() else "all_zeros")
        spectrum = Spectrum(eigenvalues, dims, ShareBound(reason="product"), reason)
        if reason:
            return spectrum
        if self.flips is not None:
            return spectrum._replace(kurtosis=0.0, counted=prepared)
        own = self.entry_kurtosis is None
        return spectrum._replace(kurtosis=float(mean_kurtosis(dims, list(prepared))) if own else self.entry_kurtosis)


def noise_of(null: Null, level: float) -> Noise:
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


class MatrixSpectrumTaker:
    """Collector of the spectra of layers' matrices, each with its noise, while they are read."""

    def __init__(self, noise: Noise) -> None:
        self.spectra: dict[MatrixName, Spectrum] = {}
        self._noise = noise

    def add(
        self,
        name: MatrixName,
        blocks: Iterable[Shaped[np.ndarray, "row column"]],
        shape: tuple[int, int],
        map_spans: Callable[..., Iterable[Any]] = map,
    ) -> None:
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
        spectrum = self._noise.spectrum(matrix_singular_values(triangle), shape, 1, prepared, Reason())
        self.spectra[name] = spectrum._replace(bound=ShareBound(reason="whole_matrix"))
