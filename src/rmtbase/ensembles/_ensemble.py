"""What every ensemble offers: one draw from one key, and the name under which its draws are keyed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, TypeVar

import jax
from jax import Array
from jaxtyping import Float, Key

from rmtbase.shown import in_one_line

_T = TypeVar("_T")


@in_one_line
class Draw(NamedTuple):
    """One draw of a random matrix.

    Attributes:
        matrix: a matrix whose ``rank`` largest singular values are those of the ensemble's matrix: a small core with
            the same law where there is one, else the matrix itself.
        norm_squared: ‖X‖_F² of each i.i.d. factor X, from which a trained matrix's σ would be estimated; empty where an
            ensemble has no scale of its own to estimate.
    """

    matrix: Float[Array, "rows columns"]
    norm_squared: Float[Array, " factor"]


class Ensemble(Protocol):
    """A law of random matrices, as a JAX pytree. ``sample`` makes one unbatched draw; the caller vmaps."""

    @property
    def name(self) -> str:
        """The ensemble with its parameters, ``low_rank_product 768x64`` say: with the seed it keys the draws."""
        ...

    @property
    def rank(self) -> int:
        """How many singular values are structurally nonzero; only they are ever reported."""
        ...

    @property
    def matrix_shape(self) -> tuple[int, int]:
        """Shape of a draw's ``matrix``."""
        ...

    @property
    def factor_sizes(self) -> tuple[int, ...]:
        """Number of elements of each factor in ``norm_squared``, so that σ̂² = norm_squared / factor_sizes."""
        ...

    def sample(self, key: Key[Array, ""]) -> Draw:
        """One draw."""
        ...


def as_pytree(cls: type[_T], data_fields: Sequence[str] = (), meta_fields: Sequence[str] = ()) -> type[_T]:
    """Register a dataclass as ``jax.tree_util.register_dataclass`` does, with its class among what is static.

    Trees of two dataclasses that differ in nothing but their class are equal to JAX (0.10.2): where their hashes meet
    in a table of compiled programs, a draw of the one ensemble would be made by the program of the other.

    Args:
        cls: the dataclass.
        data_fields: what a compilation does not depend on; if none are named here nor below, all fields but those whose
            metadata say ``static``.
        meta_fields: the other fields.
    """
    if not data_fields and not meta_fields:
        dataclass: Any = cls
        data_fields = [one.name for one in fields(dataclass) if not one.metadata.get("static")]
        meta_fields = [one.name for one in fields(dataclass) if one.metadata.get("static")]

    def flatten(tree: _T) -> tuple[list[tuple[Any, Any]], tuple[Any, ...]]:
        children = [(jax.tree_util.GetAttrKey(name), getattr(tree, name)) for name in data_fields]
        return children, (cls, *(getattr(tree, name) for name in meta_fields))

    def unflatten(static: tuple[Any, ...], children: Iterable[Any]) -> _T:
        return cls(**dict(zip(meta_fields, static[1:], strict=True)), **dict(zip(data_fields, children, strict=True)))

    jax.tree_util.register_pytree_with_keys(cls, flatten, unflatten)
    return cls


def chain_name(dims: Sequence[object]) -> str:
    """``gaussian_chain {n_0}x…x{n_L}``.

    ``gaussian_matrix {n_0}x{n_1}`` and ``low_rank_product {d_model}x{d_head}`` are chains under names of their own.
    """
    if len(dims) == 2:
        return f"gaussian_matrix {dims[0]}x{dims[1]}"
    if len(dims) == 3 and dims[1] <= dims[0] == dims[2]:  # type: ignore[operator]
        return f"low_rank_product {dims[0]}x{dims[1]}"
    return "gaussian_chain " + "x".join(map(str, dims))


class DrawnByItsCore:
    """What ensembles of a product of matrices, of ``dims``, share whose draws are its core, (rank, rank)."""

    dims: Any

    @property
    def rank(self) -> int:
        """The smallest dimension."""
        return min(self.dims)

    @property
    def matrix_shape(self) -> tuple[int, int]:
        """Shape of a draw's ``matrix``."""
        return (self.rank, self.rank)

    @property
    def factor_sizes(self) -> tuple[int, ...]:
        """n_{l-1} n_l of each factor."""
        return tuple(int(m) * int(n) for m, n in pairwise(self.dims))
