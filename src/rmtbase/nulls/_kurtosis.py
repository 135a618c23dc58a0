"""Null of independent entries with the excess kurtosis of each head's own entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Shaped

from rmtbase.errors import ParameterError
from rmtbase.nulls._gaussian import Gaussian
from rmtbase.nulls._head_null import HeadNull, NullModel
from rmtbase.nulls._kurtosis_null import KurtosisNull, kurtosis_range, mean_kurtosis, own_kurtosis
from rmtbase.nulls._null import HeadShape, Null
from rmtbase.progress import Progress
from rmtbase.reasons import Reason


@dataclass(frozen=True, kw_only=True)
class Kurtosis(Null):
    """Independent entries of any law, with the excess kurtosis of each head's own entries, to first order in it.

    Heads whose kurtosis lies outside :func:`kurtosis_range` are not scored. :class:`Signs` is exact for those.

    Args:
        base: null of normal entries that is moved: a :class:`Gaussian`, :class:`Table` or :class:`Analytic`; by default
            a :class:`Gaussian` with these draws and this seed.
        draws, seed: as for :class:`Gaussian`; if a base is given, its draws and seed are used.
    """

    name: ClassVar[str] = "kurtosis"
    base: Gaussian | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        initial = self.initialization if self.base is None else self.base.initialization
        if initial != "normal":
            raise ParameterError("initialization", initial, "none with the null of each head's own kurtosis")

    @property
    def independent(self) -> Gaussian:
        """Null of normal entries that is moved."""
        return Gaussian(draws=self.draws, seed=self.seed) if self.base is None else self.base

    def prepare(self, factors: Sequence[Shaped[np.ndarray, "group member rank width"]]) -> Sequence[Any]:
        """Return the excess kurtosis of each factor of each head, (head, factor)."""
        kurtoses = np.stack(np.broadcast_arrays(*(own_kurtosis(factor) for factor in factors)), axis=-1)
        return list(kurtoses.reshape(-1, len(factors)))

    def prepare_groups(
        self,
        each: Shaped[np.ndarray, "group member rank width"],
        shared: Shaped[np.ndarray, "group one rank other_width"],
        sigmas: Float[np.ndarray, "group member"],
    ) -> Sequence[Any]:
        """Return the mean excess kurtosis of the A_i, and that of B, (group, factor)."""
        return list(np.stack([own_kurtosis(factor).mean(axis=1) for factor in (each, shared)], axis=-1))

    def unscored(self, dims: tuple[int, ...], prepared: Sequence[Any] | None) -> dict[int, Reason]:
        if prepared is None:
            return {}
        kurtosis, (low, high) = mean_kurtosis(dims, list(np.array(prepared).T)), kurtosis_range(dims)
        limits = {"low": low, "high": high, "dims": "x".join(map(str, dims))}
        return {
            head: Reason("kurtosis_out_of_range", {"kurtosis": float(kurtosis[head]), **limits})
            for head in np.flatnonzero((kurtosis < low) | (kurtosis > high)).tolist()
        }

    def options(self) -> dict[str, Any]:
        return {**self.independent.options(), "name": self.name}

    def require_shape(self, shape: HeadShape) -> None:
        super().require_shape(shape)
        if shape.is_of_products:
            reason = "W_Q and W_K are products of matrices, whose elements are not independent"
            raise ParameterError("null", self.name, f"'gaussian' or 'axes': {reason}")
        self.independent.require_shape(shape)

    def _for_heads(self, shape: HeadShape, progress: Progress) -> NullModel:
        base = self.independent.of_normal_entries(shape, progress)
        assert isinstance(base, HeadNull)  # latent attention is refused above
        return KurtosisNull(base)
