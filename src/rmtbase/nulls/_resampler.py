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
from rmtbase.nulls._resampled_null import ResampledNull, edge_rank, unscored_head
from rmtbase.progress import Progress
from rmtbase.statistics import LatentShape

if TYPE_CHECKING:
    from rmtbase.ensembles import Ensemble

_DRAWS = 1_000

Factors = Sequence[Float[np.ndarray, "d_head d"]]


@dataclass(frozen=True, kw_only=True)
class Resampling(Null):
    """Null of each head from draws that resample its own matrices."""

    words: ClassVar[str]  #: how other heads are made from the head's matrices
    #: name in :mod:`rmtbase.ensembles` of the function that makes the ensemble, by the number of factors
    ensembles: ClassVar[Mapping[int, str]]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.initialization == "orthogonal":
            expected = f"none with the {self.name} null, which keeps parts of the head"
            raise ParameterError("initialization", self.initialization, expected)

    @property
    def independent(self) -> Gaussian:
        """Null of independent entries with the same initialization, draws and seed."""
        return Gaussian(initialization=self.initialization, draws=self.draws, seed=self.seed)

    def ensemble(self, own: Factors) -> Ensemble:
        """Make the ensemble of heads that are resampled from one."""
        from rmtbase import ensembles

        return getattr(ensembles, self.ensembles[len(own)])(*own)

    def _for_heads(self, shape: HeadShape, progress: Progress) -> NullModel:
        found = Resampler(self, draws=self.draws or _DRAWS, seed=self.seed)
        progress.detail(
            f"null of each head: {found.draws} draws from its own matrices ({self.name}), seed {found.seed}"
        )
        both = " by one statistic, nor below {:.2g} by all together (k heads at once: 1/k of that)"
        tell_if_coarse(found, DRAWS_PER_TEST * shape.n_heads, shape, progress, both)
        return found


@dataclass(frozen=True, kw_only=True)
class Signs(Resampling):
    """Null of each head from its own W_Q and W_K, with a random sign of every element.

    Exact for independent elements whose laws are symmetric about 0 and otherwise arbitrary, with any gains of rows and
    columns.

    Args:
        draws: draws of each head; 1000 if None.
        seed: seed of the draws.
        initialization: law of the entries with which whole matrices are compared; the signs need none.
    """

    name: ClassVar[str] = "signs"
    words: ClassVar[str] = "each element with a random sign"
    ensembles: ClassVar[Mapping[int, str]] = MappingProxyType({1: "sign_flipped_matrix", 2: "sign_flipped_head"})

    def require_shape(self, shape: HeadShape) -> None:
        """Judge as :meth:`Null.require_shape`; products have no independent signs."""
        super().require_shape(shape)
        if shape.is_of_products:
            what = "W_Q and W_K are products of matrices, whose elements have no independent signs"
            raise ParameterError("null", self.name, f"'gaussian' or 'axes': {what}")


@dataclass(frozen=True, kw_only=True)
class Axes(Resampling):
    """Null of each head from W_Qᵀ P W_K, where P is a random signed permutation of the head axes.

    It keeps W_Q and W_K and tests whether they are related. Exact if the rows of one of them are exchangeable, whatever
    their gains.

    Args:
        draws: draws of each head; 1000 if None.
        seed: seed of the draws.
        initialization: law of the entries with which whole matrices are compared; the permutations need none.
    """

    name: ClassVar[str] = "axes"
    words: ClassVar[str] = "the head axes of one in random order and sign"
    ensembles: ClassVar[Mapping[int, str]] = MappingProxyType({2: "axis_permuted_head"})

    def require_shape(self, shape: HeadShape) -> None:
        """Judge as :meth:`Null.require_shape`; the singular values of one factor have no order of axes."""
        super().require_shape(shape)
        if not isinstance(shape.dims, LatentShape) and len(shape.dims) == 2:
            what = "no permutation of its rows changes the singular values of one factor"
            raise ParameterError("null", self.name, f"'gaussian' or 'signs': {what}")


@dataclass(frozen=True)
class Resampler:
    """Scorer of heads one by one, each against draws from its own matrices: a :class:`rmtbase.nulls.NullModel`.

    A head's draws depend only on its matrices, the seed and their index: not on its position, nor on other heads.
    """

    null: Resampling  # null that resamples the heads
    draws: int  # number of draws of each head
    seed: int  # seed of the draws
    source = "each head's own matrices"
    method = "resampled"
    per_head = True

    @property
    def entries(self) -> str:
        """``"signs"`` or ``"axes"``."""
        return self.null.name

    def described(self, factors: str) -> str:
        """Describe the null of heads with these factors, its name first."""
        return f"{self.null.name}: the head's own {factors}, {self.null.words}"

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
        scores = HeadScores.stacked([HeadScores.stacked([scored for scored, _ in layer]) for layer in layers])

        def null_group() -> xr.Dataset:
            spectra = [xr.concat([spectrum for _, spectrum in layer], dim="head") for layer in layers]
            group: xr.Dataset = xr.concat(spectra, dim="layer")  # type: ignore[assignment]  # datasets make a dataset
            places = {name: np.arange(group.sizes[name]) for name in ("layer", "head", "index")}
            group = group.assign_coords({"probability": np.array(PROBABILITIES), **places})
            return group

        return ScoredHeads(scores, null_group)

    def record(self) -> dict[str, object]:
        """Return the entry of these nulls in the provenance."""
        return {
            "resampler": self.null.name,
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
        """Yield the scores of each head of a layer, and its part of the ``/null`` group."""
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
        from rmtbase.montecarlo import draw_spectra

        spectra = []
        # The SVD keeps all digits of the smallest singular values; those of a trained head span decades.
        for chunk in draw_spectra(self.null.ensemble(own), self.draws, self.seed, solver="svd"):
            spectra.append(chunk.singular_values)
            advance(len(chunk.singular_values))
        return np.concatenate(spectra)


def _dims(own: Factors) -> tuple[int, ...]:
    """Dims of the chain: (d_query, d_head, d_key), or (d_head, d_model) for one factor."""
    if len(own) == 1:
        return own[0].shape
    first, second = own
    return first.shape[1], first.shape[0], second.shape[1]
