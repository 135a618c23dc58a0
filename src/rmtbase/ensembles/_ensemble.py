"""Interface of ensembles: one draw from one key; their names, bases, and sums that do not depend on the batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, TypeVar

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Key

from rmtbase.errors import ParameterError
from rmtbase.shown import in_one_line

_T = TypeVar("_T")


@in_one_line
class Draw(NamedTuple):
    """Draw of a random matrix."""

    #: the ensemble's matrix, or a smaller one whose ``rank`` largest singular values have the same joint law
    matrix: Float[Array, "rows columns"]
    #: ‖X‖_F² of each i.i.d. factor X, from which the σ of a trained matrix would be estimated; empty without a scale
    norm_squared: Float[Array, " factor"]


class Ensemble(Protocol):
    """Law of random matrices, as a JAX pytree. ``sample`` makes one unbatched draw; the caller vmaps."""

    @property
    def name(self) -> str:
        """Ensemble and parameters, such as ``low_rank_product 768x64``; with the seed it determines the draws' keys."""
        ...

    @property
    def rank(self) -> int:
        """Number of structurally nonzero singular values; only these are reported."""
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
        """Make one draw."""
        ...


def as_pytree(cls: type[_T], data_fields: Sequence[str] = (), meta_fields: Sequence[str] = ()) -> type[_T]:
    """Register a dataclass as ``jax.tree_util.register_dataclass`` does, with its class as static data.

    JAX (0.10.2) considers the trees of two dataclasses equal if they differ only in their class. If their hashes
    collided in its cache of compiled programs, one ensemble would be drawn by the program of the other. A compilation
    depends on ``meta_fields`` only; if both lists are empty, these are the fields with ``static`` in their metadata.
    """
    dataclass: Any = cls
    if not is_dataclass(dataclass):
        raise ParameterError("cls", cls, "a dataclass")
    if len(data_fields) == len(meta_fields) == 0:
        data_fields = [field.name for field in fields(dataclass) if not field.metadata.get("static")]
        meta_fields = [field.name for field in fields(dataclass) if field.metadata.get("static")]

    def flatten(tree: _T) -> tuple[list[tuple[Any, Any]], tuple[Any, ...]]:
        children = [(jax.tree_util.GetAttrKey(name), getattr(tree, name)) for name in data_fields]
        return children, (cls, *(getattr(tree, name) for name in meta_fields))

    def unflatten(static: tuple[Any, ...], children: Iterable[Any]) -> _T:
        return cls(**dict(zip(meta_fields, static[1:], strict=True)), **dict(zip(data_fields, children, strict=True)))

    jax.tree_util.register_pytree_with_keys(cls, flatten, unflatten)
    return cls


def chain_name(dims: Sequence[object]) -> str:
    if len(dims) == 2:
        return f"gaussian_matrix {dims[0]}x{dims[1]}"
    if len(dims) == 3 and dims[1] <= dims[0] == dims[2]:  # type: ignore[operator]
        return f"low_rank_product {dims[0]}x{dims[1]}"
    return "gaussian_chain " + "x".join(map(str, dims))


class SquareDraw:
    """Base of ensembles whose draws are (rank, rank), by default without a scale to estimate."""

    rank: Any

    @property
    def matrix_shape(self) -> tuple[int, int]:
        return (self.rank, self.rank)

    @property
    def factor_sizes(self) -> tuple[int, ...]:
        return ()


class ChainCore(SquareDraw):
    """Base of ensembles that draw a core with the singular values of a product of matrices of ``dims``."""

    dims: Any

    @property
    def factor_sizes(self) -> tuple[int, ...]:
        return tuple(int(m) * int(n) for m, n in pairwise(self.dims))


class DrawnByItsCore(ChainCore):
    @property
    def rank(self) -> int:
        return min(self.dims)


def rounded(product: Float[Array, "..."]) -> Float[Array, "..."]:
    """Drop the last bit of a product that is to be added to another."""
    # Else XLA contracts a b + c d to a fused multiply-add, which rounds only one of the two; which one depends on the
    # batch.
    kind = jnp.finfo(product.dtype)
    return jax.lax.reduce_precision(product, exponent_bits=kind.nexp, mantissa_bits=kind.nmant - 1)


def sum_of_squares(x: Float[Array, "..."]) -> Float[Array, ""]:
    """Sum the squares of all elements in pairs, then in pairs of pairs, …: unlike ``jnp.sum`` whatever the batch."""
    squares = rounded(jnp.ravel(x) ** 2)
    while squares.size > 1:
        half = (squares.size + 1) // 2
        squares = squares[:half] + jnp.pad(squares[half:], (0, 2 * half - squares.size))
    return jnp.sum(squares)
