"""One entry per registered ensemble: small examples, each with a NumPy oracle that draws the matrix itself.

An oracle shares no code with the package: it writes the ensemble's definition down, and is as slow as that takes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import combinations, pairwise

import numpy as np
from numpy.typing import NDArray

Oracle = Callable[[np.random.Generator], tuple[NDArray[np.float64], list[float]]]


@dataclass(frozen=True)
class Example:
    """Parameters of an ensemble, and what it claims to draw.

    Attributes:
        parameters: keyword arguments of the factory.
        oracle: from a generator, one draw as (the matrix itself, ‖X‖_F² of each factor of ``norm_squared``).
        same_program: other parameters that the same compiled program must serve; None where there are none.
    """

    parameters: Mapping[str, object]
    oracle: Oracle
    same_program: Mapping[str, object] | None = None


def chain(*dims: int) -> Oracle:
    """X_1 X_2 … X_L of standard normal matrices X_l of shape (n_{l-1}, n_l)."""
    return independent(np.random.Generator.standard_normal, dims)


def residual(d_model: int, depth: int, sigma: float, blocks: set[int], direct: bool = False) -> Oracle:
    """The products of as many blocks as ``blocks`` names, one for each choice of them, and the identity if direct."""

    def draw(rng):
        each = sigma / np.sqrt(d_model) * rng.standard_normal((depth, d_model, d_model))
        paths = [path for k in blocks for path in combinations(each, k)]
        return direct * np.eye(d_model) + sum(reduce(np.matmul, path) for path in paths), []

    return draw


def elements(law: Callable[[np.random.Generator], NDArray[np.float64]]) -> Oracle:
    """The matrix that the law draws."""

    def draw(rng):
        matrix = law(rng)
        return matrix, [np.sum(matrix**2)]

    return draw


def independent(draw: Callable[..., NDArray[np.float64]], dims: tuple[int, ...]) -> Oracle:
    """The product of matrices that ``draw`` makes of a generator and a shape."""

    def product(rng):
        factors = [draw(rng, shape) for shape in pairwise(dims)]
        return reduce(np.matmul, factors), [np.sum(factor**2) for factor in factors]

    return product


def uniform(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.float64]:
    """Uniform elements of variance one."""
    return rng.uniform(-(3**0.5), 3**0.5, shape)


def truncated_normal(rng: np.random.Generator) -> NDArray[np.float64]:
    """4 × 7 elements of N(0, 0.5²) within ±0.5, drawn again until they are."""
    matrix = rng.normal(0, 0.5, (4, 7))
    while (beyond := np.abs(matrix) > 0.5).any():
        matrix[beyond] = rng.normal(0, 0.5, beyond.sum())
    return matrix


def subspaces(d_model: int, d_head: int) -> Oracle:
    """V_Qᵀ V_K with the orthonormal bases of two Gaussian matrices' columns."""

    def draw(rng):
        bases = [np.linalg.qr(rng.standard_normal((d_model, d_head)))[0] for _ in range(2)]
        return bases[0].T @ bases[1], []

    return draw


def orthogonal(rng: np.random.Generator, rows: int, columns: int) -> NDArray[np.float64]:
    """Haar-distributed with orthonormal columns, from the eigenvectors of GᵀG: G (GᵀG)^(-1/2)."""
    gaussian = rng.standard_normal((rows, columns))
    values, vectors = np.linalg.eigh(gaussian.T @ gaussian)
    return gaussian @ (vectors / np.sqrt(values)) @ vectors.T


def blocks(h: int, *stored: tuple[int, int]) -> Oracle:
    """The first h rows of an orthogonal matrix, or the product of those of two, the first transposed."""

    def draw(rng):
        heads = [orthogonal(rng, *shape)[:h] for shape in stored]
        matrix = heads[0] if len(heads) == 1 else heads[0].T @ heads[1]
        return matrix, [np.sum(head**2) for head in heads]

    return draw


def fused_blocks(h: int, rows: int, columns: int) -> Oracle:
    """The product of two blocks of h rows of one orthogonal matrix."""

    def draw(rng):
        matrix = orthogonal(rng, rows, columns)
        return matrix[:h].T @ matrix[-h:], [np.sum(head**2) for head in (matrix[:h], matrix[-h:])]

    return draw


def latent(d_model: int, q_rank: int | None, kv_rank: int, d_nope: int, d_rope: int, rope_ratio: float) -> Oracle:
    """W_Qᵀ W_K with W_Q = W_UQ W_DQ, or one matrix, and W_K = [W_UK W_DKV; W_KR], W_KR of the ratio's size."""
    d_head = d_nope + d_rope
    of_query = [(d_head, d_model)] if q_rank is None else [(d_head, q_rank), (q_rank, d_model)]

    def draw(rng):
        query = [rng.standard_normal(shape) for shape in of_query]
        up, down = rng.standard_normal((d_nope, kv_rank)), rng.standard_normal((kv_rank, d_model))
        rotated = rng.standard_normal((d_rope, d_model))
        size = rope_ratio * np.sqrt(kv_rank * np.mean(up**2) * np.mean(down**2) / np.mean(rotated**2))
        w_k = np.concatenate([up @ down, size * rotated])
        return reduce(np.matmul, query).T @ w_k, [np.sum(factor**2) for factor in (*query, up, down)]

    return draw


EXAMPLES: dict[str, list[Example]] = {
    "gaussian_chain": [
        Example({"dims": (3, 5, 4)}, chain(3, 5, 4), {"dims": (3, 50, 40)}),
        Example({"dims": (6, 9, 4)}, chain(6, 9, 4)),
        Example({"dims": (4, 6, 3, 5, 8)}, chain(4, 6, 3, 5, 8), {"dims": (7, 6, 3, 4, 4)}),
        Example({"dims": (5, 1, 2, 1, 4, 6)}, chain(5, 1, 2, 1, 4, 6)),
        Example({"dims": (4, 6, 3, 5), "method": "dense"}, chain(4, 6, 3, 5)),
    ],
    "gaussian_matrix": [
        Example({"n_rows": 4, "n_columns": 7}, chain(4, 7), {"n_rows": 40, "n_columns": 4}),
        Example({"n_rows": 7, "n_columns": 4, "method": "dense"}, chain(7, 4)),
    ],
    "low_rank_product": [
        Example({"d_model": 9, "d_head": 4}, chain(9, 4, 9), {"d_model": 90, "d_head": 4}),
    ],
    "residual_path": [
        Example({"d_model": 4, "depth": 3, "sigma": 0.7}, residual(4, 3, 0.7, {1, 2, 3}, direct=True),
                {"d_model": 4, "depth": 40, "sigma": 0.1}),
        Example({"d_model": 3, "depth": 1}, residual(3, 1, 1.0, {1}, direct=True)),
        Example({"d_model": 4, "depth": 4, "sigma": 0.5, "part": "update"}, residual(4, 4, 0.5, {1, 2, 3, 4})),
        Example({"d_model": 4, "depth": 4, "sigma": 0.5, "part": "order", "order": 2}, residual(4, 4, 0.5, {2})),
        Example({"d_model": 3, "depth": 5, "part": "order", "order": 1}, residual(3, 5, 1.0, {1})),
    ],
    "independent_chain": [
        Example({"dims": (5, 3, 6), "entries": "uniform"}, independent(uniform, (5, 3, 6))),
    ],
    # The spectrum of an orthogonal matrix is rounding around one point, and no law: tests/ensembles has its tests.
    "initialized_matrix": [
        Example({"n_rows": 7, "n_columns": 4, "initializer": "normal", "mean": 0.1, "std": 0.5},
                elements(lambda rng: rng.normal(0.1, 0.5, (7, 4))),
                {"n_rows": 7, "n_columns": 4, "initializer": "normal", "std": 0.02}),
        Example({"n_rows": 4, "n_columns": 7, "initializer": "truncated_normal", "std": 0.5, "bound": 1.0},
                elements(truncated_normal),
                {"n_rows": 4, "n_columns": 7, "initializer": "truncated_normal", "std": 2, "bound": 1}),
        Example({"n_rows": 4, "n_columns": 7, "initializer": "kaiming_uniform", "a": 5**0.5},
                elements(lambda rng: rng.uniform(-(7**-0.5), 7**-0.5, (4, 7))),
                {"n_rows": 4, "n_columns": 7, "initializer": "kaiming_uniform"}),
    ],
    "logistic_matrix": [
        Example({"n_rows": 4, "n_columns": 7, "scale": 0.02, "location": 0.01},
                elements(lambda rng: rng.logistic(0.01, 0.02, (4, 7))), {"n_rows": 4, "n_columns": 7, "scale": 0.5}),
    ],
    "student_t_matrix": [
        Example({"n_rows": 7, "n_columns": 4, "df": 2.5, "scale": 0.02},
                elements(lambda rng: 0.02 * rng.standard_t(2.5, (7, 4))),
                {"n_rows": 7, "n_columns": 4, "df": float("inf"), "scale": 3.0, "location": 1.0}),
    ],
    "latent_attention": [
        Example({"d_model": 12, "q_rank": 9, "kv_rank": 6, "d_nope": 4, "d_rope": 3, "rope_ratio": 0.5},
                latent(12, 9, 6, 4, 3, 0.5),
                {"d_model": 12, "q_rank": 9, "kv_rank": 6, "d_nope": 4, "d_rope": 3, "rope_ratio": 2.0}),
        # Latents smaller than what is made of them, of the keys and of the queries; and a head larger than the model.
        Example({"d_model": 12, "kv_rank": 2, "d_nope": 4, "d_rope": 3}, latent(12, None, 2, 4, 3, 1.0)),
        Example({"d_model": 12, "q_rank": 3, "kv_rank": 8, "d_nope": 4, "d_rope": 3}, latent(12, 3, 8, 4, 3, 1.0)),
        Example({"d_model": 5, "q_rank": 8, "kv_rank": 7, "d_nope": 4, "d_rope": 3}, latent(5, 8, 7, 4, 3, 1.0)),
    ],
    "orthogonal_blocks": [
        Example({"dims": (3, 7), "rows": (12,)}, blocks(3, (12, 7))),
        Example({"dims": (4, 9), "rows": (11,)}, blocks(4, (11, 9))),  # with two singular values of one
        Example({"dims": (7, 3, 8), "rows": (12, 10)}, blocks(3, (12, 7), (10, 8))),
        Example({"dims": (7, 3, 7), "rows": (21, 21), "fused": True}, fused_blocks(3, 21, 7)),
        Example({"dims": (5, 3, 5), "rows": (9, 9), "fused": True}, fused_blocks(3, 9, 5)),
    ],
    "random_subspaces": [
        Example({"d_model": 11, "d_head": 4}, subspaces(11, 4), {"d_model": 6, "d_head": 4}),
        Example({"d_model": 7, "d_head": 3}, subspaces(7, 3)),
    ],
}  # fmt: skip
