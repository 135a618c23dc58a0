"""Nulls made from each head's own matrices: random signs of their elements, or signed permutations of the head axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import xarray as xr
from jaxtyping import Float

from rmtbase.errors import ParameterError
from rmtbase.laws import PROBABILITIES
from rmtbase.linalg import DTYPE, PRNG_IMPLEMENTATION
from rmtbase.nulls._gaussian import Gaussian
from rmtbase.nulls._head_null import Heads, HeadScores, NullModel, ScoredHeads
from rmtbase.nulls._null import DRAWS_PER_TEST, HeadShape, Null, tell_if_coarse
from rmtbase.nulls._sample_null import ResampledNull, edge_rank, unscored_head
from rmtbase.progress import Progress
from rmtbase.statistics import LatentShape

if TYPE_CHECKING:
    from rmtbase.ensembles import Ensemble

_DRAWS = 1_000

Scored = tuple[HeadScores, xr.Dataset]
Factors = Sequence[Float[np.ndarray, "d_head d"]]


@dataclass(frozen=True, kw_only=True)
class Resampling(Null):
    words: ClassVar[str]  #: template of how other heads are made from the head's ``{factors}``
    #: name in :mod:`rmtbase.ensembles` of the function that makes the ensemble, by the number of factors
    ensembles: ClassVar[Mapping[int, str]]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.initialization == "orthogonal":
            expected = f"none with the {self.name} null, which keeps parts of the head"
            raise ParameterError("initialization", self.initialization, expected)

    @property
    def independent(self) -> Gaussian:
        return Gaussian(initialization=self.initialization, draws=self.draws, seed=self.seed)

    def ensemble(self, factors: Factors) -> Ensemble:
        from rmtbase import ensembles

        return getattr(ensembles, self.ensembles[len(factors)])(*factors)

    def _for_heads(self, shape: HeadShape, progress: Progress) -> NullModel:
        null = Resampler(self, draws=self.draws or _DRAWS, seed=self.seed)
        progress.detail(f"null of each head: {null.draws} draws from its own matrices ({self.name}), seed {null.seed}")
        both = " by one statistic, nor below {:.2g} by all together (k heads at once: 1/k of that)"
        tell_if_coarse(null, DRAWS_PER_TEST * shape.n_heads, shape, progress, both)
        return null


@dataclass(frozen=True, kw_only=True)
class Signs(Resampling):
    """Null of each head from its own W_Q and W_K, with a random sign of every element.

    Exact for independent elements whose laws are symmetric about 0 and otherwise arbitrary, with any gains of rows and
    columns.

    Each head has 1000 draws if ``draws`` is None. ``initialization`` is only for whole matrices; the signs need none.
    """

    name: ClassVar[str] = "signs"
    words: ClassVar[str] = "each element with a random sign"
    ensembles: ClassVar[Mapping[int, str]] = MappingProxyType({1: "sign_flipped_matrix", 2: "sign_flipped_head"})

    def require_shape(self, shape: HeadShape) -> None:
        super().require_shape(shape)
        if shape.is_of_products:
            reason = "W_Q and W_K are products of matrices, whose elements have no independent signs"
            raise ParameterError("null", self.name, f"'gaussian' or 'axes': {reason}")


@dataclass(frozen=True, kw_only=True)
class Axes(Resampling):
    """Null of each head from W_Qᵀ P W_K, where P is a random signed permutation of the head axes.

    It keeps W_Q and W_K and tests whether they are related. Exact if the rows of one of them are exchangeable, whatever
    their gains.

    Each head has 1000 draws if ``draws`` is None. ``initialization`` is only for whole matrices.
    """

    name: ClassVar[str] = "axes"
    words: ClassVar[str] = "the head axes of one in random order and sign"
    ensembles: ClassVar[Mapping[int, str]] = MappingProxyType({2: "axis_permuted_head"})

    def require_shape(self, shape: HeadShape) -> None:
        super().require_shape(shape)
        if not isinstance(shape.dims, LatentShape) and len(shape.dims) == 2:
            reason = "no permutation of its rows changes the singular values of one factor"
            raise ParameterError("null", self.name, f"'gaussian' or 'signs': {reason}")


@dataclass(frozen=True)
class Resampler:
    """Scorer of each head against draws that depend only on its matrices, the seed and their index: a ``NullModel``."""

    null: Resampling  # null that resamples the heads
    draws: int  # number of draws of each head
    seed: int  # seed of the draws
    source = "each head's own matrices"
    method = "resampled"
    per_head = True

    @property
    def entries(self) -> str:
        return self.null.name

    def described(self, factors: str) -> str:
        return f"{self.null.name}: the head's own {factors}, {self.null.words}"

    @property
    def p_value_floor(self) -> float:
        return 2.0 / (self.draws + 1)

    @property
    def edge_level(self) -> float:
        return edge_rank(self.draws) / (self.draws + 1)

    def score_heads(self, heads: Heads, progress: Progress) -> ScoredHeads:
        n_layers, n_heads = heads.singular_values.shape[:2]
        advance = progress.bar("drawing the null", self.draws * n_layers * n_heads)
        layers = [list(self._layer(heads, layer, advance)) for layer in range(n_layers)]
        scores = HeadScores.stacked([HeadScores.stacked([scored for scored, _ in layer]) for layer in layers])

        def null_group() -> xr.Dataset:
            spectra = [xr.concat([spectrum for _, spectrum in layer], dim="head") for layer in layers]
            group: xr.Dataset = xr.concat(spectra, dim="layer")  # type: ignore[assignment]  # datasets make a dataset
            places = {name: np.arange(group.sizes[name]) for name in ("layer", "head", "index")}
            return group.assign_coords({"probability": np.array(PROBABILITIES), **places})

        return ScoredHeads(scores, null_group)

    def record(self) -> dict[str, object]:
        return {
            "resampler": self.null.name,
            "draws_per_head": self.draws,
            "seed": self.seed,
            "key": "fold_in(fold_in(key(seed), crc32(ensemble with its shape and the sha256 of W_Q and W_K)), draw)",
            "solver": "svd",
            "dtype": DTYPE,
            "prng": PRNG_IMPLEMENTATION,
        }

    def _layer(self, heads: Heads, layer: int, advance: Callable[[int], None]) -> Iterator[Scored]:
        from rmtbase.montecarlo import draw_spectra

        factors, n_heads = heads.factors(layer), heads.singular_values.shape[1]
        for head, values in enumerate(heads.singular_values[layer]):
            if values[0] == 0:
                yield unscored_head(values.size)
                advance(self.draws)
                continue
            scale = math.prod(float(sigma[layer, head]) for sigma in heads.sigmas) ** 2
            head_factors = [stack[head // (n_heads // len(stack))] for stack in factors]
            # The SVD keeps all digits of the smallest singular values; those of a trained head span decades.
            drawn = []
            for chunk in draw_spectra(self.null.ensemble(head_factors), self.draws, self.seed, solver="svd"):
                drawn.append(chunk.singular_values)
                advance(len(chunk.singular_values))
            first, last = head_factors[0], head_factors[-1]
            dims = first.shape if len(head_factors) == 1 else (first.shape[1], first.shape[0], last.shape[1])
            null = ResampledNull.from_spectra(dims, values, np.concatenate(drawn), scale)
            yield null.score(values, scale), null.spectrum()
