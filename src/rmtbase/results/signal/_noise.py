"""Noise in which directions are looked for, made from a null."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Shaped

from rmtbase.errors import ParameterError
from rmtbase.heads.read_sites import Preparation
from rmtbase.nulls import KURTOSIS, Gaussian, Kurtosis, Null, Signs, mean_kurtosis, own_kurtosis
from rmtbase.parameters import require_independent_entries
from rmtbase.reasons import Reason
from rmtbase.results.signal._sign_flips import SignCount, SignFlips, sign_flips

_PRODUCT = Reason("dependent_elements")


class NoiseOfHead(NamedTuple):
    """Noise of one head, or of one group of heads."""

    kurtosis: float  # excess kurtosis of its entries; NaN if unknown
    counted: SignCount | None = None  # directions counted by sign flips, or None
    reason: Reason = Reason()  # why nothing can be said of the head


class Noise(ABC):
    """Noise in which directions are looked for."""

    @property
    def flips(self) -> SignFlips | None:
        """Sign flips that count directions, or None."""
        return None

    @property
    def preparation(self) -> Preparation | None:
        """Computes what ``of_head`` needs to know about each head; None if nothing."""
        return self.flips

    @abstractmethod
    def of_head(self, dims: tuple[int, ...], n_factors: int, prepared: Any) -> NoiseOfHead:
        """Return the noise of a head with ``n_factors`` factors, whose noise is a chain of ``dims``."""

    @abstractmethod
    def kurtosis(self, dims: tuple[int, ...], matrices: Sequence[Shaped[np.ndarray, "row column"]]) -> float:
        """Return the excess kurtosis of the noise in a product of matrices."""


@dataclass(frozen=True)
class EntryNoise(Noise):
    """Independent entries with a known excess kurtosis."""

    entry_kurtosis: float

    def of_head(self, dims: tuple[int, ...], n_factors: int, prepared: Any) -> NoiseOfHead:
        """Return the known kurtosis."""
        return NoiseOfHead(self.entry_kurtosis)

    def kurtosis(self, dims: tuple[int, ...], matrices: Sequence[Shaped[np.ndarray, "row column"]]) -> float:
        """Return the known kurtosis."""
        return self.entry_kurtosis


@dataclass(frozen=True)
class OwnKurtosisNoise(Noise):
    """Independent entries with the excess kurtosis of the head or matrix itself."""

    null: Kurtosis

    @property
    def preparation(self) -> Kurtosis:
        """The null, which computes the kurtosis of each factor."""
        return self.null

    def of_head(self, dims: tuple[int, ...], n_factors: int, prepared: Any) -> NoiseOfHead:
        """Return the mean kurtosis of the factors."""
        if len(dims) != n_factors + 1:
            return NoiseOfHead(math.nan, reason=_PRODUCT)
        return NoiseOfHead(float(mean_kurtosis(dims, list(prepared))))

    def kurtosis(self, dims: tuple[int, ...], matrices: Sequence[Shaped[np.ndarray, "row column"]]) -> float:
        """Return the mean kurtosis of the matrices."""
        return float(mean_kurtosis(dims, [own_kurtosis(matrix) for matrix in matrices]))


@dataclass(frozen=True)
class SignNoise(Noise):
    """Independent entries of any laws symmetric about 0: directions are counted against random sign flips."""

    counter: SignFlips

    @property
    def flips(self) -> SignFlips:
        """Sign flips that count directions."""
        return self.counter

    def of_head(self, dims: tuple[int, ...], n_factors: int, prepared: Any) -> NoiseOfHead:
        """Return the directions that were counted."""
        return NoiseOfHead(0.0, prepared, Reason() if len(dims) == n_factors + 1 else _PRODUCT)

    def kurtosis(self, dims: tuple[int, ...], matrices: Sequence[Shaped[np.ndarray, "row column"]]) -> float:
        """Return 0: nothing depends on it."""
        return 0.0


def noise_of(null: Null, level: float) -> Noise:
    """Return the noise of a null, whose directions are tested at a level."""
    if isinstance(null, Signs):
        if null.initialization != "normal":
            expected = "none with the null of sign flips, which needs no law of the entries"
            raise ParameterError("initialization", null.initialization, expected)
        return SignNoise(sign_flips(level, null.draws, null.seed))
    if isinstance(null, Kurtosis):
        return OwnKurtosisNoise(null)
    if isinstance(null, Gaussian):
        return EntryNoise(KURTOSIS[require_independent_entries(null.initialization, "the noise")])
    raise ParameterError("null", null.name, "one of gaussian, kurtosis, signs")
