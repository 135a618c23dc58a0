"""Matrices as expressions over stored tensors: rows, multiples, sums, products of them, one above the other.

Grouped queries, fused tensors, latent chains, low-rank updates and folded norms are all data of this kind, and nothing
else in the house knows of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from jaxtyping import Float

Read = Callable[[str], np.ndarray]
"""Gives a stored tensor by its name."""

Shapes = Callable[[str], tuple[int, ...]]
"""Gives a stored tensor's shape by its name."""


class Expression:
    """A matrix (outputs, inputs) made of stored tensors. Frozen, comparable, and written as JSON by :func:`to_json`."""

    def shape(self, shapes: Shapes) -> tuple[int, int]:
        """(outputs, inputs). Raises ValueError, which says why, where the parts do not fit together."""
        raise NotImplementedError

    def evaluate(self, read: Read) -> Float[np.ndarray, "d_out d_in"]:
        """The matrix. Tensors and their rows keep the dtype that is read, arithmetic is in float64."""
        raise NotImplementedError

    def tensors(self) -> Iterator[str]:
        """The names of the stored tensors, in the order of their reading; one may come twice."""
        for field in fields(self):  # type: ignore[arg-type]  # each is a dataclass
            value = getattr(self, field.name)
            for part in value if isinstance(value, tuple) else (value,):
                if isinstance(part, Expression):
                    yield from part.tensors()


@dataclass(frozen=True)
class Tensor(Expression):
    """A stored tensor as a matrix.

    Of more than two axes, trailing ones of length 1 fall away (kernels of size 1); then the last ``n_inputs`` are
    inputs and the others outputs, or where it is transposed, the first ``n_inputs``.

    Attributes:
        name: under which it is stored.
        transposed: stored as (inputs, outputs), as ``transformers``' Conv1D does, not as (outputs, inputs).
        index: of a stack of matrices, such as experts, which one.
        n_inputs: how many axes the inputs have: two where they are (head, d_head).
    """

    name: str
    transposed: bool = False
    index: int | None = None
    n_inputs: int = 1

    def shape(self, shapes: Shapes) -> tuple[int, int]:
        """Of the stored shape."""
        found = tuple(shapes(self.name))
        stored = found if self.index is None else found[1:]
        while len(stored) > 2 and stored[-1] == 1:
            stored = stored[:-1]
        if len(stored) < 1 + self.n_inputs or (self.index is not None and self.index >= found[0]):
            raise ValueError(f"{self.name} of shape {found} is no matrix{'' if self.index is None else ' of its own'}")
        split = self.n_inputs if self.transposed else len(stored) - self.n_inputs
        leading, trailing = prod(stored[:split]), prod(stored[split:])
        return (trailing, leading) if self.transposed else (leading, trailing)

    def evaluate(self, read: Read) -> np.ndarray:
        """As it is read."""
        stored = read(self.name)
        outputs, inputs = self.shape(lambda _: stored.shape)
        one = stored if self.index is None else stored[self.index]
        return one.reshape(inputs, outputs).T if self.transposed else one.reshape(outputs, inputs)

    def tensors(self) -> Iterator[str]:
        """Itself."""
        yield self.name


@dataclass(frozen=True)
class Rows(Expression):
    """Rows of a matrix, in the order of ``runs``: each (first, beyond the last, step). Made by :func:`take_rows`."""

    of: Expression
    runs: tuple[tuple[int, int, int], ...]

    def shape(self, shapes: Shapes) -> tuple[int, int]:
        """As many rows as the runs have."""
        outputs, inputs = self.of.shape(shapes)
        beyond = max(stop for _, stop, _ in self.runs)
        if beyond > outputs:
            raise ValueError(f"rows up to {beyond} of the {outputs} of {', '.join(dict.fromkeys(self.of.tensors()))}")
        return sum(len(range(*run)) for run in self.runs), inputs

    def evaluate(self, read: Read) -> np.ndarray:
        """A view where it is one run."""
        whole = self.of.evaluate(read)
        parts = [whole[start:stop:step] for start, stop, step in self.runs]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


@dataclass(frozen=True)
class Scaled(Expression):
    """A multiple of a matrix."""

    of: Expression
    factor: float

    def shape(self, shapes: Shapes) -> tuple[int, int]:
        """Its own."""
        return self.of.shape(shapes)

    def evaluate(self, read: Read) -> np.ndarray:
        """In float64."""
        return self.factor * self.of.evaluate(read).astype(np.float64)


@dataclass(frozen=True)
class Gained(Expression):
    """A matrix with a gain: its columns times ``offset`` + g, W · diag(offset + g), or its rows, diag(offset + g) · W.

    Attributes:
        of: W.
        gain: the stored vector g; of rows it may be that of one head, and is repeated for each.
        offset: 1 where what is stored is the gain's distance from 1, as Gemma does.
        rows: whether it stands behind the matrix, as that of a norm of queries or keys, not in front of it.
    """

    of: Expression
    gain: str
    offset: float = 0.0
    rows: bool = False

    def shape(self, shapes: Shapes) -> tuple[int, int]:
        """Its own."""
        outputs, inputs = self.of.shape(shapes)
        gains = prod(shapes(self.gain))
        if (outputs % gains if self.rows else inputs - gains) != 0:
            where = f"behind {outputs} outputs" if self.rows else f"before {inputs} inputs"
            raise ValueError(f"gains {self.gain} of shape {shapes(self.gain)} {where}")
        return outputs, inputs

    def evaluate(self, read: Read) -> np.ndarray:
        """In float64."""
        matrix = self.of.evaluate(read).astype(np.float64)
        gain = self.offset + read(self.gain).astype(np.float64).ravel()
        return matrix * np.resize(gain, len(matrix))[:, None] if self.rows else matrix * gain

    def tensors(self) -> Iterator[str]:
        """Of the matrix, then the gains."""
        yield from self.of.tensors()
        yield self.gain


@dataclass(frozen=True)
class Biased(Expression):
    """A matrix with a bias as one more column: [W, b], which acts on (x, 1)."""

    of: Expression
    bias: Expression

    def shape(self, shapes: Shapes) -> tuple[int, int]:
        """One column more."""
        outputs, inputs = self.of.shape(shapes)
        if self.bias.shape(shapes) != (outputs, 1):
            raise ValueError(f"a bias of shape {self.bias.shape(shapes)} beside {outputs} outputs")
        return outputs, inputs + 1

    def evaluate(self, read: Read) -> np.ndarray:
        """As the parts are read."""
        return np.concatenate([self.of.evaluate(read), self.bias.evaluate(read)], axis=1)


@dataclass(frozen=True)
class Column(Expression):
    """A stored vector as a matrix of one column."""

    name: str

    def shape(self, shapes: Shapes) -> tuple[int, int]:
        """(size, 1)."""
        return prod(shapes(self.name)), 1

    def evaluate(self, read: Read) -> np.ndarray:
        """As it is read."""
        return read(self.name).reshape(-1, 1)

    def tensors(self) -> Iterator[str]:
        """Itself."""
        yield self.name


@dataclass(frozen=True)
class Sum(Expression):
    """A sum of matrices of one shape: a weight and its low-rank update, say."""

    of: tuple[Expression, ...]

    def shape(self, shapes: Shapes) -> tuple[int, int]:
        """The one shape."""
        (shape, *others) = (one.shape(shapes) for one in self.of)
        if any(other != shape for other in others):
            raise ValueError(f"a sum of the shapes {shape} and {', '.join(map(str, others))}")
        return shape

    def evaluate(self, read: Read) -> np.ndarray:
        """In float64."""
        total = self.of[0].evaluate(read).astype(np.float64)
        for one in self.of[1:]:
            total = total + one.evaluate(read)
        return total


@dataclass(frozen=True)
class Product(Expression):
    """A product of matrices, the last of which acts first: W_UQ · W_DQ."""

    of: tuple[Expression, ...]

    def shape(self, shapes: Shapes) -> tuple[int, int]:
        """Outputs of the first, inputs of the last."""
        each = [one.shape(shapes) for one in self.of]
        if any(left[1] != right[0] for left, right in pairwise(each)):
            raise ValueError(f"a product of the shapes {' and '.join(map(str, each))}")
        return each[0][0], each[-1][1]

    def evaluate(self, read: Read) -> np.ndarray:
        """In float64."""
        total = self.of[-1].evaluate(read).astype(np.float64)
        for one in self.of[-2::-1]:
            total = one.evaluate(read).astype(np.float64) @ total
        return total


@dataclass(frozen=True)
class Stacked(Expression):
    """Matrices of one number of inputs, one above the other."""

    of: tuple[Expression, ...]

    def shape(self, shapes: Shapes) -> tuple[int, int]:
        """All the rows."""
        each = [one.shape(shapes) for one in self.of]
        if len({inputs for _, inputs in each}) != 1:
            raise ValueError(f"matrices of the shapes {' and '.join(map(str, each))}, one above the other")
        return sum(outputs for outputs, _ in each), each[0][1]

    def evaluate(self, read: Read) -> np.ndarray:
        """As the parts are."""
        return np.concatenate([one.evaluate(read) for one in self.of])


def take_rows(of: Expression, indices: Iterable[int]) -> Expression:
    """The rows of a matrix with these indices, in their order, as the fewest runs that a greedy reading finds."""
    runs: list[tuple[int, int, int]] = []
    left = list(indices)
    while left:
        step = left[1] - left[0] if len(left) > 1 and left[1] > left[0] else 1
        length = 1
        while length < len(left) and left[length] - left[length - 1] == step:
            length += 1
        if length == 2 and step > 1:  # two ends of something else, rather than a run of two
            length, step = 1, 1
        runs.append((left[0], left[length - 1] + 1, step))
        left = left[length:]
    return Rows(of, tuple(runs))


_KINDS: Mapping[str, type[Expression]] = {
    kind.__name__: kind for kind in (Tensor, Rows, Scaled, Gained, Biased, Column, Sum, Product, Stacked)
}


def to_json(expression: Expression) -> list[Any]:
    """The expression as lists, numbers and texts: the name of its kind, then its fields."""

    def written(value: Any) -> Any:
        if isinstance(value, Expression):
            return to_json(value)
        return [written(part) for part in value] if isinstance(value, tuple) else value

    return [type(expression).__name__, *(written(getattr(expression, one.name)) for one in fields(expression))]  # type: ignore[arg-type]


def from_json(value: Sequence[Any]) -> Expression:
    """What :func:`to_json` wrote. Raises ValueError, KeyError or TypeError if it is nothing of the kind."""

    def read(part: Any) -> Any:
        if not isinstance(part, list):
            return part
        return from_json(part) if part and isinstance(part[0], str) else tuple(map(read, part))

    kind, *parts = value
    return _KINDS[kind](*map(read, parts))
