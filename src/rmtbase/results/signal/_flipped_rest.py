"""Largest singular values of random sign flips of a matrix, or of a product of two, without its first directions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Protocol

import numpy as np
from jaxtyping import Float, Float64, Int
from scipy.linalg import eigh

PRECISION = 1e-5
"""Relative precision of a flip's largest eigenvalue, which is computed in float32: closer values are ties."""

_SMALL = 256  # rows up to which all eigenvalues of a Gram matrix are computed to get the largest
_LARGE = 1024  # rows beyond which the Gram matrix is not formed
_RESIDUAL = 3e-4  # relative residual that ends Lanczos' iteration: the eigenvalue is off by its square over the gap
_STEPS = 200  # largest number of Lanczos steps; noise of 4096 rows takes about 60

Matrix = Float[np.ndarray, "rank width"]
Vector = Float[np.ndarray, " n"]


class Flippable(Protocol):
    """Matrix, or product of two, whose remainder below k directions can have its signs flipped."""

    dims: tuple[int, ...]  # (rows, columns) of a matrix, or (columns, rows, columns) of the factors of a product

    def eigenvalues(self) -> Float64[np.ndarray, " rank"]:
        """Squared singular values, descending."""
        ...

    def flipped(self, k: int, seed: int) -> Callable[[int], float]:
        """Return the function from a draw's index to λ_1/Σλ of a flip of what k singular components leave."""
        ...


def flippable(*factors: Matrix) -> Flippable:
    """Wrap F_0, or F_0ᵀF_1, given finite factors (rank, width)."""
    return _One(*factors) if len(factors) == 1 else _Two(*factors)


class _One:
    """A single matrix."""

    def __init__(self, matrix: Matrix) -> None:
        unit = _unit(matrix)
        self._matrix = unit if len(unit) <= unit.shape[1] else np.ascontiguousarray(unit.T)
        self._digest = _digest(self._matrix)
        self._gram = self._matrix @ self._matrix.T
        self.dims = self._matrix.shape

    def eigenvalues(self) -> Float64[np.ndarray, " r"]:
        return np.maximum(np.linalg.eigvalsh(self._gram)[::-1], 0.0)

    def flipped(self, k: int, seed: int) -> Callable[[int], float]:
        left = _leading(self._gram, k)
        rest = (self._matrix - left @ (left.T @ self._matrix)).astype(np.float32)

        def share(draw: int) -> float:
            flipped = _flipped(rest, _bits(seed, self._digest, k, 0, draw))
            if len(rest) <= _LARGE:
                return _largest_share(flipped @ flipped.T)
            squares = float(np.vdot(flipped, flipped))
            return _lanczos(lambda vector: flipped @ (vector @ flipped), len(rest)) / squares if squares > 0.0 else 1.0

        return share


class _Two:
    """Product F_0ᵀF_1, both factors of which are flipped.

    Without its first k singular components it is F_0'ᵀF_1', where F' = F (1 - V Vᵀ) and V are the singular vectors on
    the factor's side.
    """

    def __init__(self, *factors: Matrix) -> None:
        self._factors = [_unit(one) for one in factors]
        self._digests = [_digest(one) for one in self._factors]
        self._roots = [_root(one @ one.T) for one in self._factors]
        self.dims = self._factors[0].shape[1], len(self._factors[0]), self._factors[1].shape[1]

    def eigenvalues(self) -> Float64[np.ndarray, " r"]:
        return np.linalg.svd(self._roots[0] @ self._roots[1].T, compute_uv=False)[: min(self.dims)] ** 2

    def flipped(self, k: int, seed: int) -> Callable[[int], float]:
        x, _, yt = np.linalg.svd(self._roots[0] @ self._roots[1].T)
        rests = []
        for factor, root, side in zip(self._factors, self._roots, (x[:, :k], yt[:k].T), strict=True):
            vectors = factor.T @ np.linalg.lstsq(root, side, rcond=None)[0]
            rests.append((factor - (root.T @ side) @ vectors.T).astype(np.float32))

        def share(draw: int) -> float:
            flips = (
                _flipped(rest, _bits(seed, digest, k, place, draw))
                for place, (rest, digest) in enumerate(zip(rests, self._digests, strict=True))
            )
            first, second = ((flip @ flip.T).astype(np.float64) for flip in flips)
            root = _root(first)
            return _largest_share(root @ second @ root.T)

        return share


def _largest_share(gram: Float[np.ndarray, "n n"]) -> float:
    """λ_1/Σλ of a Gram matrix; 1 if it is zero."""
    trace = float(np.trace(gram, dtype=np.float64))
    if not trace > 0.0:
        return 1.0
    return (float(np.linalg.eigvalsh(gram)[-1]) if len(gram) <= _SMALL else _lanczos(gram.dot, len(gram))) / trace


def _lanczos(apply: Callable[[Vector], Vector], n: int) -> float:
    """Compute the largest eigenvalue of a symmetric n × n matrix by Lanczos' iteration with full orthogonalisation."""
    steps = min(n, _STEPS)
    basis = np.empty((steps + 1, n), dtype=np.float32)
    start = 1.0 + np.random.Philox(n).random_raw(n) / 2.0**64  # any with a component along every direction
    start *= 1.0 - 2.0 * (np.random.Philox(n + 1).random_raw(n) % 2)
    basis[0] = start / np.linalg.norm(start)
    diagonal, beside = np.zeros(steps), np.zeros(steps)
    largest = 0.0
    for step in range(steps):
        image = apply(basis[step])
        diagonal[step] = image @ basis[step]
        for _ in range(2):
            image -= basis[: step + 1].T @ (basis[: step + 1] @ image)
        beside[step] = np.linalg.norm(image)
        if step % 5 == 4 or step == steps - 1 or beside[step] == 0.0:
            tri = np.diag(diagonal[: step + 1]) + np.diag(beside[:step], 1) + np.diag(beside[:step], -1)
            values, vectors = np.linalg.eigh(tri)
            largest = float(values[-1])
            if beside[step] * abs(vectors[-1, -1]) <= _RESIDUAL * largest:
                break
        basis[step + 1] = image / beside[step]
    return largest


def _leading(gram: Float64[np.ndarray, "n n"], k: int) -> Float64[np.ndarray, "n k"]:
    """Eigenvectors of the k largest eigenvalues."""
    n = len(gram)
    if not k:
        return np.empty((n, 0))
    return eigh(gram, subset_by_index=(n - k, n - 1))[1][:, ::-1]


def _root(gram: Float64[np.ndarray, "n n"]) -> Float64[np.ndarray, "n n"]:
    """H with HᵀH = G."""
    values, vectors = np.linalg.eigh(gram)
    return np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T


def _unit(matrix: Matrix) -> Float64[np.ndarray, "rank width"]:
    """Scale a matrix to a largest element of 1, since its squares may leave the range of float32."""
    wide = np.asarray(matrix, dtype=np.float64)
    return wide / (float(np.abs(wide).max(initial=0.0)) or 1.0)


def _digest(matrix: Float64[np.ndarray, "row column"]) -> Int[np.ndarray, " word"]:
    content = hashlib.sha256(repr(matrix.shape).encode())
    content.update(np.ascontiguousarray(matrix, dtype="<f8").data)
    return np.frombuffer(content.digest()[:16], dtype="<u4")


def _bits(seed: int, digest: Int[np.ndarray, " word"], k: int, place: int, draw: int) -> np.random.Philox:
    """Random bits of one flip: a function of only the seed, the matrix, the rest, the factor and the draw."""
    entropy = [seed & 0xFFFFFFFF, seed >> 32, *digest.tolist(), k, place, draw]
    return np.random.Philox(np.random.SeedSequence(entropy))


def _flipped(matrix: Float[np.ndarray, "row column"], bits: np.random.Philox) -> Float[np.ndarray, "row column"]:
    """Flip the signs of a matrix's elements by random bits."""
    words = bits.random_raw(-(-matrix.size // 64)).astype("<u8", copy=False)
    signs = np.unpackbits(words.view(np.uint8), count=matrix.size, bitorder="little").astype(np.uint32) << 31
    return (matrix.reshape(-1).view(np.uint32) ^ signs).view(np.float32).reshape(matrix.shape)
