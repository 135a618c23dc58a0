"""Nulls made of each head's own matrices: random signs of their elements, or signed permutations of the head axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np
import xarray as xr
from jaxtyping import Float

from rmtbase.laws import PROBABILITIES
from rmtbase.linalg import DTYPE, PRNG_IMPLEMENTATION
from rmtbase.nulls._head_null import Heads, HeadScores, ScoredHeads
from rmtbase.nulls._resampled_null import ResampledNull, edge_rank, unscored_head
from rmtbase.progress import Progress

RESAMPLINGS = {
    "signs": (
        "the head's own W_Q and W_K, each element with a random sign",
        {1: "sign_flipped_matrix", 2: "sign_flipped_head"},
    ),
    "axes": (
        "the head's own W_Q and W_K, the head axes of one in random order and sign",
        {2: "axis_permuted_head"},
    ),
}
"""By name: how other heads are drawn from a head's own matrices, in words, and by the number of its factors the name in
:mod:`rmtbase.ensembles` of what makes the ensemble of them."""


Factors = Sequence[Float[np.ndarray, "d_head d"]]


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
        n_layers, n_heads = heads.singular_values.shape[:2]
        advance = progress.bar("drawing the null", self.draws * n_layers * n_heads)
        layers = [list(self._layer(heads, layer, advance)) for layer in range(n_layers)]
        scores = _stacked([_stacked([scored for scored, _ in layer]) for layer in layers])

        def null_group() -> xr.Dataset:
            spectra = [xr.concat([spectrum for _, spectrum in layer], dim="head") for layer in layers]
            group: xr.Dataset = xr.concat(spectra, dim="layer")  # type: ignore[assignment]  # datasets make a dataset
            places = {name: np.arange(group.sizes[name]) for name in ("layer", "head", "index")}
            group = group.assign_coords({"probability": np.array(PROBABILITIES), **places})
            return group

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
        factors, n_heads = heads.factors(layer), heads.singular_values.shape[1]
        for head, values in enumerate(heads.singular_values[layer]):
            if values[0] == 0:
                yield unscored_head(values.size)
                advance(self.draws)
                continue
            scale = math.prod(float(sigma[layer, head]) for sigma in heads.sigmas) ** 2
            own = [stack[head // (n_heads // len(stack))] for stack in factors]
            null = ResampledNull.from_spectra(_dims(own), values, self._draw(own, advance), scale)
            yield null.score(values, scale), null.spectrum()

    def _draw(self, own: Factors, advance: Callable[[int], None]) -> Float[np.ndarray, "draw rank"]:
        from rmtbase import ensembles
        from rmtbase.montecarlo import draw_spectra

        ensemble = getattr(ensembles, RESAMPLINGS[self.name][1][len(own)])(*own)
        spectra = []
        # All digits of the smallest singular values: those of a trained head span decades.
        for chunk in draw_spectra(ensemble, self.draws, self.seed, solver="svd"):
            spectra.append(chunk.singular_values)
            advance(len(chunk.singular_values))
        return np.concatenate(spectra)


def _dims(own: Factors) -> tuple[int, ...]:
    """Of the chain: (d_query, d_head, d_key), or (d_head, d_model) of one factor."""
    if len(own) == 1:
        return own[0].shape
    first, second = own
    return first.shape[1], first.shape[0], second.shape[1]


def _stacked(scores: list[HeadScores]) -> HeadScores:
    """Scores of single heads, or of layers, along a new first axis."""
    return HeadScores(*(np.stack([getattr(one, field.name) for one in scores]) for field in fields(HeadScores)))
