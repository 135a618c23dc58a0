"""Directions of a matrix, or of a product of two, counted against random sign flips of what is left without them.

If the elements of W are independent and symmetric about 0, whatever their laws, then W ∘ R with random signs R has the
law of W. This null is exact for any tails, any gains of rows and columns, any zeros, and for the difference of two
rounded checkpoints. Flips destroy a direction u vᵀ that is spread over many elements, but keep a giant element.

Source: D. Hong, Y. Sheng and E. Dobriban, arXiv:2012.02985.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Float64, Shaped
from scipy.linalg import eigh

from rmtbase.errors import ParameterError
from rmtbase.linalg import single_threaded_blas
from rmtbase.parameters import require_draws
from rmtbase.reasons import Reason
from rmtbase.results.signal._spectral_signal import LEAST_REST, SpectralSignal, at_last_scale, described
from rmtbase.results.signal.schema import TOO_FEW_LEFT

MapDraws = Callable[..., Iterable[Any]]
Matrix = Float[np.ndarray, "rank width"]
Vector = Float64[np.ndarray, " rank"]

_PRECISION = 1e-5  # relative, of a flip's largest eigenvalue, which is computed in float32: closer values are ties
_SMALL = 256  # rows up to which all eigenvalues of a Gram matrix are computed to get the largest
_LARGE = 1024  # rows beyond which the Gram matrix is not formed
_RESIDUAL = 3e-4  # relative residual that ends Lanczos' iteration: the eigenvalue is off by its square over the gap
_STEPS = 200  # largest number of Lanczos steps; noise of 4096 rows takes about 60
_SPREAD = 2**17  # elements beyond which flips are spread over threads
_AT_ONCE = 8  # flips computed together, since later ones may not be needed
_SPARSE = 4  # nonzero elements for each row and column: with fewer, flips have ties
_MOST_TIED = 0.5  # share of flips tied for the largest value; beyond it, all flips are drawn and their ties examined
_LATER = 3  # flips with as large a value that keep H_1 and later hypotheses
_ATTAINED = 0.6  # share of the level that a test with ties must be able to reach

NO_FLOOR, TIED = Reason(TOO_FEW_LEFT), Reason("flips_tied")


class SignCount(NamedTuple):
    number: float  # number of directions; NaN where there is a ``reason``
    # p-values of H_0, H_1, ..., as far as they were tested; the last belongs to the hypothesis kept
    p_value: Float64[np.ndarray, " hypothesis"]
    reason: Reason = Reason()  # why there is no number

    @property
    def untested(self) -> Reason:
        return Reason() if self.p_value.size else self.reason


@dataclass(frozen=True)
class SignFlips:
    """Counter of directions against sign flips.

    H_k, "no more than k directions", is tested by λ_(k+1), the (k+1)-th squared singular value, against the largest of
    random flips of the rest, W without its first k singular components. By Weyl, λ_(k+1)(N + S) ≤ λ_1(N) for any S of
    rank k. Flips of the rest stand for N; they are scaled to its sum of squares, the rest's times Π n_l/Π (n_l - k).
    If b of n flips have a value as large, p = (b + 1)/(n + 1). Drawing ends at the b with which p > ``level`` is
    certain, and p is then b over the number of flips drawn (Besag & Clifford 1991). Flips of one rest bound those of
    every later rest, so all hypotheses that one set of flips rejects are rejected at once.

    The test of H_0 is exact. With directions in normal noise the count is too large in 0 to 4 %, in noise with heavy
    tails in up to 10 ± 7 % of differences in which a tenth of the elements changed (studies/rounded_differences).
    """

    level: float  # level of each test
    draws: int  # largest number of flips of W itself
    seed: int = 0  # seed of the signs, which are a function of only the seed, the matrix, the rest and the draw's index

    @property
    def note(self) -> str:
        return (
            f"null = signs: the noise is up to {self.draws} random sign flips of each head and matrix, exact for "
            "independent entries of any laws symmetric about 0; no p-value is below "
            f"{1.0 / (self.draws + 1):.2g}; limits of strengths, and whether the rest is noise, need a law of the "
            "entries and are not given"
        )

    def count(self, *factors: Matrix, map_draws: MapDraws = map) -> SignCount:
        """Count the directions of F_0, or of F_0ᵀF_1; ``map_draws`` may spread flips of large matrices over threads."""
        spread = map_draws if sum(factor.size for factor in factors) > _SPREAD else map
        with single_threaded_blas():  # gives the same bits on any number of cores
            chain = flippable(*factors)
            values, most = chain.eigenvalues(), max(min(chain.dims) - LEAST_REST, 0)
            number, p_values = 0, np.empty(0)
            if not values[0] > 0.0 or values.size < 2:
                return SignCount(math.nan, p_values, Reason("single_value" if values[0] > 0.0 else "all_zeros"))
            sparse = any(np.count_nonzero(factor) < _SPARSE * sum(factor.shape) for factor in factors)
            while number <= most:
                draws = self.draws if not number else min(self.draws, _allowing(_LATER, self.level))
                largest = self._largest(chain, number, values, draws, sparse, spread)
                if not number and not self._tells(largest, values[0]):
                    return SignCount(math.nan, p_values, TIED)
                ties = values[number:] * (1.0 - _PRECISION)
                exceeded = largest.size - np.searchsorted(np.sort(largest), ties, side="left")
                tested = exceeded / largest.size if largest.size < draws else (exceeded + 1) / (draws + 1)
                rejected = min(int(np.argmax(np.append(tested > self.level, True))), most + 1 - number)
                p_values = np.append(p_values, tested[: max(rejected, 1)])
                if not rejected:
                    return SignCount(float(number), p_values)
                number += rejected
            return SignCount(math.nan, p_values, NO_FLOOR)

    def prepare(self, factors: Sequence[Shaped[np.ndarray, "group member rank width"]]) -> list[SignCount]:
        groups, members = len(factors[0]), max(factor.shape[1] for factor in factors)
        return [
            self.count(*(factor[group, member % factor.shape[1]] for factor in factors))
            for group in range(groups)
            for member in range(members)
        ]

    def prepare_groups(
        self,
        each: Shaped[np.ndarray, "group member rank width"],
        shared: Shaped[np.ndarray, "group one rank other_width"],
        sigmas: Float[np.ndarray, "group member"],
    ) -> list[SignCount]:
        """Count the directions of [A_1 ... A_g]ᵀB of each group, with every A_i at one σ̂."""
        scaled = each / np.where(sigmas > 0.0, sigmas, np.inf)[..., None, None]
        return [
            self.count(np.concatenate(list(blocks), axis=-1), matrix[0])
            for blocks, matrix in zip(scaled, shared, strict=True)
        ]

    def _enough(self, draws: int) -> int:
        """Return how many flips with as large a value put p above the level, whatever the other flips give."""
        return math.floor(self.level * (draws + 1) * (1.0 + 1e-12))

    def _tells(self, largest: Float64[np.ndarray, " draw"], observed: float) -> bool:
        """Return True if the test can reject nearly as often as the level says, although some values are tied."""
        if largest.size < self.draws:
            return True
        order = np.sort(np.append(largest, observed))[::-1]
        enough = self._enough(self.draws)
        beyond = 1 + np.flatnonzero(order[:-1] * (1.0 - _PRECISION) > order[1:])[:enough]  # numbers above all others
        return bool((beyond[beyond <= enough] >= _ATTAINED * enough).any())

    def _largest(
        self, chain: _One | _Two, k: int, values: Vector, draws: int, sparse: bool, map_draws: MapDraws
    ) -> Float64[np.ndarray, " draw"]:
        """Largest squared singular value of each flip, up to the flip at which H_k is certain to be kept."""
        total = values[k:].sum() / math.prod(1.0 - k / n for n in chain.dims)
        largest: list[float] = []
        # All flips of H_0 are drawn of a sparse matrix, and where most of them are tied.
        exceeded, draw_all, share = 0, sparse and not k, chain.flipped(k, self.seed)
        for first in range(0, draws, _AT_ONCE):
            for value in map_draws(share, range(first, min(first + _AT_ONCE, draws))):
                largest.append(value * total)
                exceeded += largest[-1] >= values[k] * (1.0 - _PRECISION)
                if exceeded >= self._enough(draws) and not draw_all:
                    tied = np.array([*largest, values[0]]) >= max(*largest, values[0]) * (1.0 - _PRECISION)
                    if k or tied.sum() <= _MOST_TIED * len(largest):
                        return np.array(largest)
                    draw_all = True
        return np.array(largest)


def _allowing(exceeded: int, level: float) -> int:
    """Return the number of draws with p ≤ ``level`` if fewer than ``exceeded`` of them have as large a value."""
    return math.ceil(exceeded / level - 1e-9) - 1


def sign_flips(level: float, draws: int | None = None, seed: int = 0) -> SignFlips:
    """Make sign flips for tests at a level, by default so many that p = ``level`` if nine have as large a value."""
    if draws is not None and (require_draws(draws) + 1) * level < 1.0 - 1e-12:
        raise ParameterError("draws", draws, f"at least {_allowing(1, level)}, for a p-value of {level:g}")
    return SignFlips(level, _allowing(10, level) if draws is None else draws, seed)


def signal_of_counts(
    values: Float[np.ndarray, "spectrum r"], dims: tuple[int, ...], counts: Sequence[SignCount]
) -> SpectralSignal:
    """Describe directions that were counted by sign flips, for independent entries of one variance.

    The places of outliers depend on nothing else in the law of the entries; their scatter does (``NEED_A_LAW``).
    """
    number = np.array([count.number for count in counts])
    p_value = np.full((len(counts), max(count.p_value.size for count in counts)), np.nan)
    for row, count in zip(p_value, counts, strict=True):
        row[: count.p_value.size] = count.p_value
    kept = ~np.isnan(number)
    number = np.where(kept, number, 0).astype(np.int64)
    counted = at_last_scale(values, dims, kept, number, p_value, np.zeros(len(values)))
    no_number = np.where(kept, counted.no_number, [TOO_FEW_LEFT if count.p_value.size else "" for count in counts])
    counted = counted._replace(no_number=no_number)
    return SpectralSignal(**described(values, dims, math.nan, counted, normal=False))


def flippable(*factors: Matrix) -> _One | _Two:
    return _One(*factors) if len(factors) == 1 else _Two(*factors)


class _One:
    """Matrix whose remainder below k singular components can have its signs flipped."""

    def __init__(self, matrix: Matrix) -> None:
        unit = _unit(matrix)
        self._matrix = unit if len(unit) <= unit.shape[1] else np.ascontiguousarray(unit.T)
        self._digest = _digest(self._matrix)
        self._gram = self._matrix @ self._matrix.T
        self.dims = self._matrix.shape

    def eigenvalues(self) -> Vector:
        return np.maximum(np.linalg.eigvalsh(self._gram)[::-1], 0.0)

    def flipped(self, k: int, seed: int) -> Callable[[int], float]:
        """Return the function from a draw's index to λ_1/Σλ of a flip of what k singular components leave."""
        n, rest = len(self._gram), self._matrix
        if k:
            components = eigh(self._gram, subset_by_index=(n - k, n - 1))[1][:, ::-1]
            rest = rest - components @ (components.T @ rest)
        rest = rest.astype(np.float32)

        def share(draw: int) -> float:
            flipped = _flipped(rest, (seed, self._digest, k, 0, draw))
            if n <= _LARGE:
                return _largest_share(flipped @ flipped.T)
            squares = float(np.vdot(flipped, flipped))
            return _lanczos(lambda vector: flipped @ (vector @ flipped), n) / squares if squares > 0.0 else 1.0

        return share


class _Two:
    """Product F_0ᵀF_1, both factors of which are flipped.

    Its rest is F_0'ᵀF_1', where F' = F (1 - V Vᵀ) and V are the first k singular vectors on the factor's side.
    """

    def __init__(self, *factors: Matrix) -> None:
        self._factors = [_unit(factor) for factor in factors]
        self._digests = [_digest(factor) for factor in self._factors]
        self._roots = [_root(factor @ factor.T) for factor in self._factors]
        self.dims = self._factors[0].shape[1], len(self._factors[0]), self._factors[1].shape[1]

    def eigenvalues(self) -> Vector:
        return np.linalg.svd(self._roots[0] @ self._roots[1].T, compute_uv=False)[: min(self.dims)] ** 2

    def flipped(self, k: int, seed: int) -> Callable[[int], float]:
        x, _, yt = np.linalg.svd(self._roots[0] @ self._roots[1].T)
        rests = []
        for factor, root, side in zip(self._factors, self._roots, (x[:, :k], yt[:k].T), strict=True):
            vectors = factor.T @ np.linalg.lstsq(root, side, rcond=None)[0]
            rests.append((factor - (root.T @ side) @ vectors.T).astype(np.float32))

        def share(draw: int) -> float:
            flips = (_flipped(rests[i], (seed, self._digests[i], k, i, draw)) for i in range(2))
            first, second = ((flip @ flip.T).astype(np.float64) for flip in flips)
            root = _root(first)
            return _largest_share(root @ second @ root.T)

        return share


def _largest_share(gram: Float[np.ndarray, "n n"]) -> float:
    trace = float(np.trace(gram, dtype=np.float64))
    if not trace > 0.0:
        return 1.0
    return (float(np.linalg.eigvalsh(gram)[-1]) if len(gram) <= _SMALL else _lanczos(gram.dot, len(gram))) / trace


def _lanczos(apply: Callable[[np.ndarray], np.ndarray], n: int) -> float:
    """Compute the largest eigenvalue of a symmetric matrix by Lanczos' iteration with full orthogonalisation."""
    steps = min(n, _STEPS)
    basis = np.empty((steps + 1, n), dtype=np.float32)
    start = 1.0 + np.random.Philox(n).random_raw(n) / 2.0**64  # any with a component along every direction
    start *= 1.0 - 2.0 * (np.random.Philox(n + 1).random_raw(n) % 2)
    basis[0] = start / np.linalg.norm(start)
    diagonal, beside, largest = np.zeros(steps), np.zeros(steps), 0.0
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


def _root(gram: Float64[np.ndarray, "n n"]) -> Float64[np.ndarray, "n n"]:
    """H with HᵀH = G."""
    values, vectors = np.linalg.eigh(gram)
    return np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T


def _unit(matrix: Matrix) -> Float64[np.ndarray, "rank width"]:
    """Scale a matrix to a largest element of 1, since its squares may leave the range of float32."""
    wide = np.asarray(matrix, dtype=np.float64)
    return wide / (float(np.abs(wide).max(initial=0.0)) or 1.0)


def _digest(matrix: Float64[np.ndarray, "row column"]) -> list[int]:
    content = hashlib.sha256(repr(matrix.shape).encode())
    content.update(np.ascontiguousarray(matrix, dtype="<f8").data)
    return np.frombuffer(content.digest()[:16], dtype="<u4").tolist()


def _flipped(matrix: Matrix, place: tuple[int, list[int], int, int, int]) -> Matrix:
    """Flip the signs of a float32 matrix by bits of only the seed, the digest, the rest, the factor and the draw."""
    seed, digest, k, factor, draw = place
    bits = np.random.Philox(np.random.SeedSequence([seed & 0xFFFFFFFF, seed >> 32, *digest, k, factor, draw]))
    words = bits.random_raw(-(-matrix.size // 64)).astype("<u8", copy=False)
    signs = np.unpackbits(words.view(np.uint8), count=matrix.size, bitorder="little").astype(np.uint32) << 31
    return (matrix.reshape(-1).view(np.uint32) ^ signs).view(np.float32).reshape(matrix.shape)
