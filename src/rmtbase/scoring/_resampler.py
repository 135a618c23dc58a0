"""Nulls made of each head's own matrices: their elements shuffled, or their directions rotated against each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields

import numpy as np
import xarray as xr
from jaxtyping import Float
from numpy.typing import ArrayLike

from rmtbase.linalg import DTYPE, PRNG_IMPLEMENTATION
from rmtbase.nulls import PROBABILITIES, Heads, HeadScores, ResampledNull, ScoredHeads, edge_rank, unscored_head
from rmtbase.progress import Progress
from rmtbase.tables import SCORES_SCHEMA, describe

RESAMPLINGS = {
    "permutation": ("the head's own W_Q and W_K, the elements of each in random order", "permuted_head"),
    "haar": (
        "the head's own W_Q and W_K, rotated against each other at random in the head's space",
        "haar_aligned_head",
    ),
}
"""By name: how other heads are drawn from a head's own matrices, in words, and the name in :mod:`rmtbase.ensembles` of
what makes the ensemble of W_Q and W_K."""


@dataclass(frozen=True)
class Resampler:
    """Scores heads one by one, each against draws from its own matrices: a :class:`rmtbase.nulls.NullModel`.

    A head's draws are a function of its matrices, the seed and their index alone: not of its place, nor of other heads.

    Attributes:
        name: how, one of :data:`RESAMPLINGS`.
        draws: of each head.
        seed: of the draws.
    """

    name: str
    draws: int
    seed: int
    source = "each head's own matrices"
    method = "resampled"

    @property
    def description(self) -> str:
        """What the null is, its name first."""
        return f"{self.name}: {RESAMPLINGS[self.name][0]}"

    @property
    def p_value_floor(self) -> float:
        """2 / (n + 1); half of it for all statistics together."""
        return 2.0 / (self.draws + 1)

    @property
    def edge_level(self) -> float:
        """Probability with which a null head has an eigenvalue beyond an edge quantile: k/(n + 1)."""
        return edge_rank(self.draws) / (self.draws + 1)

    def score_heads(self, heads: Heads, progress: Progress) -> ScoredHeads:
        """Score heads against their own nulls. A head whose product is zero has no shape and is not scored: NaN."""
        advance = progress.bar("drawing the null", self.draws * heads.sigma_q.size)
        layers = [list(self._layer(heads, layer, advance)) for layer in range(len(heads.sigma_q))]
        scores = _stacked([_stacked([scored for scored, _ in layer]) for layer in layers])

        def null_group() -> xr.Dataset:
            spectra = [xr.concat([spectrum for _, spectrum in layer], dim="head") for layer in layers]
            group: xr.Dataset = xr.concat(spectra, dim="layer")  # type: ignore[assignment]  # datasets make a dataset
            places = {name: np.arange(group.sizes[name]) for name in ("layer", "head", "index")}
            group = group.assign_coords({"probability": np.array(PROBABILITIES), **places})
            return describe(group, SCORES_SCHEMA["own_null"])

        return ScoredHeads(scores, null_group)

    def record(self) -> dict[str, object]:
        """What provenance says of the nulls."""
        return {
            "resampler": self.name,
            "draws_per_head": self.draws,
            "seed": self.seed,
            "key": "fold_in(fold_in(key(seed), crc32(ensemble with its shape and the sha256 of W_Q and W_K)), draw)",
            "solver": "svd",
            "dtype": DTYPE,
            "prng": PRNG_IMPLEMENTATION,
        }

    def _layer(
        self, heads: Heads, layer: int, advance: Callable[[int], None]
    ) -> Iterator[tuple[HeadScores, xr.Dataset]]:
        """The scores of each head of a layer, and its part of the ``/null`` group."""
        w_q, w_k = heads.factors(layer)
        group = len(w_q) // len(w_k)
        for head, values in enumerate(heads.singular_values[layer]):
            if values[0] == 0:
                yield unscored_head(values.size)
                advance(self.draws)
                continue
            scale = float(heads.sigma_q[layer, head] * heads.sigma_k[layer, head]) ** 2
            drawn = self._draw(w_q[head], w_k[head // group], advance)
            null = ResampledNull.from_spectra(w_q.shape[-1], values, drawn, scale)
            yield null.score(values, scale), null.spectrum()

    def _draw(self, w_q: ArrayLike, w_k: ArrayLike, advance: Callable[[int], None]) -> Float[np.ndarray, "draw h"]:
        from rmtbase import ensembles
        from rmtbase.montecarlo import draw_spectra

        ensemble = getattr(ensembles, RESAMPLINGS[self.name][1])(w_q, w_k)
        spectra = []
        # All digits of the smallest singular values: those of a trained head, rotated, span decades.
        for chunk in draw_spectra(ensemble, self.draws, self.seed, solver="svd"):
            spectra.append(chunk.singular_values)
            advance(len(chunk.singular_values))
        return np.concatenate(spectra)


def _stacked(scores: list[HeadScores]) -> HeadScores:
    """Scores of single heads, or of layers, along a new first axis."""
    return HeadScores(*(np.stack([getattr(one, field.name) for one in scores]) for field in fields(HeadScores)))
