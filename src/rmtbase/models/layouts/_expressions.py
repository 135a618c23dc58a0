"""Matrices as expressions over stored tensors: rows, multiples, sums, products and vertical stacks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from jaxtyping import Float

Read = Callable[[str], np.ndarray]  # function that reads a stored tensor by its name

Shapes = Callable[[str], tuple[int, ...]]  # function that returns the shape of a stored tensor by its name


class Expression:
    """Matrix (outputs, inputs) made of stored tensors. Frozen, comparable, and written as JSON by :func:`to_json`."""

    def shape(self, shapes: Shapes) -> tuple[int, int]:
        """Return (outputs, inputs). Raises ValueError, with the reason, if the parts do not fit together."""
        raise NotImplementedError

    def evaluate(self, read: Read) -> Float[np.ndarray, "d_out d_in"]:
        """Compute the matrix. Tensors and their rows keep the dtype that is read; arithmetic is in float64."""
        raise NotImplementedError

    def holds_product(self) -> bool:
        inner = getattr(self, "of", ())
        parts = inner if isinstance(inner, tuple) else (inner,)
        return isinstance(self, Product) or any(part.holds_product() for part in parts)

    def tensors(self) -> Iterator[str]:
        """Yield the names of the stored tensors, in the order in which they are read; a name may occur twice."""
        for field in fields(self):  # type: ignore[arg-type]  # each is a dataclass
            value = getattr(self, field.name)
            if field.name in ("name", "gain"):
                yield value
            for part in value if isinstance(value, tuple) else (value,):
                if isinstance(part, Expression):
                    yield from part.tensors()


@dataclass(frozen=True)
class Tensor(Expression):
    """Stored tensor as a matrix.

    If there are more than two axes, trailing axes of length 1 are dropped (kernels of size 1). Then the last
    ``n_inputs`` axes are inputs and the others outputs; if ``transposed``, the first ``n_inputs`` axes are inputs.
    """

    name: str  # name of the stored tensor
    # whether it is stored as (inputs, outputs), as in ``transformers``' Conv1D, instead of (outputs, inputs)
    transposed: bool = False
    index: int | None = None  # index of the matrix within a stack, such as a stack of experts
    n_inputs: int = 1  # how many axes the inputs have: two where they are (head, d_head)

    def shape(self, shapes: Shapes) -> tuple[int, int]:
        stored_shape = tuple(shapes(self.name))
        stored = stored_shape if self.index is None else stored_shape[1:]
        while len(stored) > 2 and stored[-1] == 1:
            stored = stored[:-1]
        if len(stored) < 1 + self.n_inputs or (self.index is not None and self.index >= stored_shape[0]):
            alone = "" if self.index is None else " of its own"
            raise ValueError(f"{self.name} of shape {stored_shape} is no matrix{alone}")
        split = self.n_inputs if self.transposed else len(stored) - self.n_inputs
        leading, trailing = prod(stored[:split]), prod(stored[split:])
        return (trailing, leading) if self.transposed else (leading, trailing)

    def evaluate(self, read: Read) -> np.ndarray:
        stored = read(self.name)
        outputs, inputs = self.shape(lambda _: stored.shape)
        matrix = stored if self.index is None else stored[self.index]
        return matrix.reshape(inputs, outputs).T if self.transposed else matrix.reshape(outputs, inputs)


@dataclass(frozen=True)
class Rows(Expression):
    """Rows of a matrix, in the order of ``runs``, each (start, stop, step). Made by :func:`take_rows`."""

    of: Expression
    runs: tuple[tuple[int, int, int], ...]

    def shape(self, shapes: Shapes) -> tuple[int, int]:
        outputs, inputs = self.of.shape(shapes)
        beyond = max(stop for _, stop, _ in self.runs)
        if beyond > outputs:
            raise ValueError(f"rows up to {beyond} of the {outputs} of {', '.join(dict.fromkeys(self.of.tensors()))}")
        return sum(len(range(*run)) for run in self.runs), inputs

    def evaluate(self, read: Read) -> np.ndarray:
        matrix = self.of.evaluate(read)
        parts = [matrix[start:stop:step] for start, stop, step in self.runs]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


@dataclass(frozen=True)
class Scaled(Expression):
    of: Expression
    factor: float

    def shape(self, shapes: Shapes) -> tuple[int, int]:
        return self.of.shape(shapes)

    def evaluate(self, read: Read) -> np.ndarray:
        return self.factor * self.of.evaluate(read).astype(np.float64)


@dataclass(frozen=True)
class Gained(Expression):
    """Matrix with gains on its columns, W · diag(offset + g), or on its rows, diag(offset + g) · W."""

    of: Expression  # W
    gain: str  # name of the stored vector g; on rows it may have the length of one head, and is repeated for each head
    offset: float = 0.0  # 1 where the stored values are gain − 1, as in Gemma; otherwise 0
    rows: bool = False  # whether the gains multiply rows, as those of a norm of queries or keys do, instead of columns

    def shape(self, shapes: Shapes) -> tuple[int, int]:
        outputs, inputs = self.of.shape(shapes)
        gains = prod(shapes(self.gain))
        if (outputs % gains if self.rows else inputs - gains) != 0:
            where = f"behind {outputs} outputs" if self.rows else f"before {inputs} inputs"
            raise ValueError(f"gains {self.gain} of shape {shapes(self.gain)} {where}")
        return outputs, inputs

    def evaluate(self, read: Read) -> np.ndarray:
        matrix = self.of.evaluate(read).astype(np.float64)
        gain = self.offset + read(self.gain).astype(np.float64).ravel()
        return matrix * np.resize(gain, len(matrix))[:, None] if self.rows else matrix * gain


@dataclass(frozen=True)
class Biased(Expression):
    """Matrix with a bias as one more column: [W, b], which acts on (x, 1)."""

    of: Expression
    bias: Expression

    def shape(self, shapes: Shapes) -> tuple[int, int]:
        outputs, inputs = self.of.shape(shapes)
        if self.bias.shape(shapes) != (outputs, 1):
            raise ValueError(f"a bias of shape {self.bias.shape(shapes)} beside {outputs} outputs")
        return outputs, inputs + 1

    def evaluate(self, read: Read) -> np.ndarray:
        return np.concatenate([self.of.evaluate(read), self.bias.evaluate(read)], axis=1)


@dataclass(frozen=True)
class Column(Expression):
    name: str

    def shape(self, shapes: Shapes) -> tuple[int, int]:
        return prod(shapes(self.name)), 1

    def evaluate(self, read: Read) -> np.ndarray:
        return read(self.name).reshape(-1, 1)


@dataclass(frozen=True)
class Sum(Expression):
    of: tuple[Expression, ...]

    def shape(self, shapes: Shapes) -> tuple[int, int]:
        (shape, *other_shapes) = (term.shape(shapes) for term in self.of)
        if any(other_shape != shape for other_shape in other_shapes):
            raise ValueError(f"a sum of the shapes {shape} and {', '.join(map(str, other_shapes))}")
        return shape

    def evaluate(self, read: Read) -> np.ndarray:
        total = self.of[0].evaluate(read).astype(np.float64)
        for term in self.of[1:]:
            total = total + term.evaluate(read)
        return total


@dataclass(frozen=True)
class Product(Expression):
    """Product of matrices, the last of which acts first: W_UQ · W_DQ."""

    of: tuple[Expression, ...]

    def shape(self, shapes: Shapes) -> tuple[int, int]:
        shapes_of = [factor.shape(shapes) for factor in self.of]
        if any(left[1] != right[0] for left, right in pairwise(shapes_of)):
            raise ValueError(f"a product of the shapes {' and '.join(map(str, shapes_of))}")
        return shapes_of[0][0], shapes_of[-1][1]

    def evaluate(self, read: Read) -> np.ndarray:
        total = self.of[-1].evaluate(read).astype(np.float64)
        for factor in self.of[-2::-1]:
            total = factor.evaluate(read).astype(np.float64) @ total
        return total


@dataclass(frozen=True)
class Stacked(Expression):
    of: tuple[Expression, ...]

    def shape(self, shapes: Shapes) -> tuple[int, int]:
        shapes_of = [part.shape(shapes) for part in self.of]
        if len({inputs for _, inputs in shapes_of}) != 1:
            raise ValueError(f"matrices of the shapes {' and '.join(map(str, shapes_of))}, one above the other")
        return sum(outputs for outputs, _ in shapes_of), shapes_of[0][1]

    def evaluate(self, read: Read) -> np.ndarray:
        return np.concatenate([part.evaluate(read) for part in self.of])


@dataclass(frozen=True)
class Turned(Expression):
    """Transposes of ``n_parts`` equal runs of rows, one above the other: such as of the parts of heads."""

    of: Expression
    n_parts: int

    def shape(self, shapes: Shapes) -> tuple[int, int]:
        rows, columns = self.of.shape(shapes)
        if rows % self.n_parts:
            raise ValueError(f"{rows} rows for {self.n_parts} parts")
        return self.n_parts * columns, rows // self.n_parts

    def evaluate(self, read: Read) -> np.ndarray:
        matrix = self.of.evaluate(read)
        parts = matrix.reshape(self.n_parts, -1, matrix.shape[1])
        return parts.transpose(0, 2, 1).reshape(self.n_parts * matrix.shape[1], -1)


def take_rows(of: Expression, indices: Iterable[int]) -> Expression:
    """Take the rows of a matrix with these indices, in their order, as runs that a greedy search finds."""
    runs: list[tuple[int, int, int]] = []
    left = list(indices)
    while left:
        step = left[1] - left[0] if len(left) > 1 and left[1] > left[0] else 1
        length = 1
        while length < len(left) and left[length] - left[length - 1] == step:
            length += 1
        if length == 2 and step > 1:  # more likely the ends of two other runs than a run of two
            length, step = 1, 1
        runs.append((left[0], left[length - 1] + 1, step))
        left = left[length:]
    return Rows(of, tuple(runs))


def renamed(matrix: Expression, rename: Callable[[str], str], index: str | None = None) -> Any:
    """Rename the stored tensors of a matrix; with ``index``, a matrix of a stack has that in its name instead."""

    def changed(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(changed, value))
        return renamed(value, rename, index) if isinstance(value, Expression) else value

    values = {field.name: changed(getattr(matrix, field.name)) for field in fields(matrix)}  # type: ignore[arg-type]
    values |= {name: rename(values[name]) for name in ("name", "gain") if name in values}
    if index is not None and values.get("index") is not None:
        values |= {"name": f"{values['name']}[{index}]", "index": None}
    return type(matrix)(**values)


def to_json(expression: Expression) -> list[Any]:
    """Convert an expression to lists, numbers and strings: the name of its class, then its fields."""

    def written(value: Any) -> Any:
        if isinstance(value, Expression):
            return to_json(value)
        return [written(part) for part in value] if isinstance(value, tuple) else value

    return [type(expression).__name__, *(written(getattr(expression, field.name)) for field in fields(expression))]  # type: ignore[arg-type]
