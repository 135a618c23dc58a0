"""Null hypothesis for the heads of a model, before their shapes are known."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float, Shaped

from rmtbase.errors import ParameterError
from rmtbase.heads.factors import StoredRows
from rmtbase.nulls._head_null import NullModel, head_shape, rank_name
from rmtbase.parameters import require_draws, require_initialization, require_seed
from rmtbase.progress import Progress
from rmtbase.reasons import Reason
from rmtbase.statistics import LatentShape

DRAWS_PER_TEST = 50
"""Null draws for each head, with which a single head among n can reach q = 2 n / (draws + 1) < 0.05."""

_LEAST_DRAWS = 10_000


def draws_for(n_heads: int) -> int:
    return max(_LEAST_DRAWS, DRAWS_PER_TEST * n_heads)


class HeadShape(NamedTuple):
    #: (n_0, …, n_L) of the chain of factors of a head: (d_model, d_head, d_model) for W_QK, (d_query, d_head, d_key)
    #: where queries and keys read different streams, (d_output, d_value, d_key) for W_OV, (d_head, d_model) for a
    #: single factor, (d_output, r, d_input) for a low-rank update; or the shape of latent attention
    dims: tuple[int, ...] | LatentShape
    n_heads: int  #: number of heads of this shape
    #: the matrices whose rows the factors are, for a null of orthogonal initialization
    stored: StoredRows | None = None

    @property
    def of_product(self) -> tuple[int, int] | None:
        return None if isinstance(self.dims, LatentShape) else head_shape(self.dims)

    @property
    def is_of_products(self) -> bool:
        return isinstance(self.dims, LatentShape) or len(self.dims) > 3

    def detail(self, progress: Progress, line: str) -> None:
        progress.detail(f"null of {self.of_product or self.dims}: {line}")


@dataclass(frozen=True, kw_only=True)
class Null(ABC):
    """Null hypothesis for the heads of a model: :func:`rmtbase.score` compares heads with it.

    Raises:
        ParameterError: a value outside its domain.
    """

    name: ClassVar[str]
    #: law of the entries of untrained matrices, one of :data:`rmtbase.parameters.INITIALIZATIONS`. Whole matrices are
    #: also compared with it.
    initialization: str = "normal"
    draws: int | None = None  #: least number of null draws; None for the default
    seed: int = 0  #: seed of the draws

    def __post_init__(self) -> None:
        require_initialization(self.initialization)
        require_seed(self.seed)
        if self.draws is not None:
            require_draws(self.draws)

    @property
    def entry_law(self) -> str | None:
        """Initialization that the p-values assume; None if they are also valid for other initializations."""
        return None

    @property
    def needs_stored_rows(self) -> bool:
        """True if the null of a head depends on the stored matrices whose rows its factors are."""
        return self.initialization == "orthogonal"

    @property
    def independent(self) -> Null:
        """Null of independent entries with the same initialization, draws and seed."""
        return self

    def prepare(self, factors: Sequence[Shaped[np.ndarray, "group member rank width"]]) -> Sequence[Any] | None:
        """Return what this null needs from each head besides its spectrum: see ``read_sites.Preparation``."""
        return None

    def prepare_groups(
        self,
        each: Shaped[np.ndarray, "group member rank width"],
        shared: Shaped[np.ndarray, "group one rank other_width"],
        sigmas: Float[np.ndarray, "group member"],
    ) -> Sequence[Any] | None:
        """Return what this null needs from heads that share a factor: see ``read_sites.Preparation``."""
        return None

    def unscored(self, dims: tuple[int, ...], prepared: Sequence[Any] | None) -> dict[int, Reason]:
        """Return the reasons why heads of a chain of ``dims`` cannot be scored, by the number of the head."""
        return {}

    def options(self) -> dict[str, Any]:
        """Return everything that determines the null draws, as plain JSON values."""
        return {"name": self.name, "initialization": self.initialization, "draws": self.draws, "seed": self.seed}

    def require_shape(self, shape: HeadShape) -> None:
        """Refuse heads of a shape that this null does not apply to, before anything is read or drawn."""
        dims = shape.dims.dims if isinstance(shape.dims, LatentShape) else shape.dims
        name, rank = rank_name(dims), min(dims)
        if rank < 2:
            scale = "kept" if self.entry_law is None else "estimated"
            raise ParameterError(name, rank, f"at least 2: at {name} = 1 a head has only its scale, which is {scale}")

    def for_heads(self, shape: HeadShape, progress: Progress) -> NullModel:
        """Make the null for heads of one shape; ``progress`` receives notes on its source and on too few draws."""
        self.require_shape(shape)
        return self._for_heads(shape, progress)

    @abstractmethod
    def _for_heads(self, shape: HeadShape, progress: Progress) -> NullModel: ...


def tell_if_coarse(null: NullModel, enough: int, shape: HeadShape, progress: Progress, template: str = "") -> None:
    """Note the smallest q of a single head if it is above 0.05; ``more`` is formatted with half of that q."""
    smallest = 2 * shape.n_heads / (null.draws + 1)
    if smallest > 0.05:
        progress.note(
            f"with {null.draws} null draws and {shape.n_heads} heads a lone head cannot reach q below {smallest:.2g}"
            f"{template.format(smallest / 2)}; {enough} draws would let it reach 0.05"
        )
