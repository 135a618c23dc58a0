"""The spectra of products of factors, WᵀW', read from a model while those before are being solved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from rmtbase.linalg import core_of_triangles, core_singular_values, triangles

_HEADS_PER_PART = 4


class Side(NamedTuple):
    """The left or the right factors of products.

    Attributes:
        read: gives them, (head, h, d): queries of heads; on the right fewer, keys of key heads.
        least_sigma: the standard deviation below which they are rounding and not weights.
    """

    read: Callable[[], Float[np.ndarray, "head h d"]]
    least_sigma: float


class Spectra(NamedTuple):
    """What is known of products WᵀW' of a left factor W of each head and a right factor W' of each group of heads.

    Attributes:
        singular_values: descending; zeros where a factor is.
        sigma_left, sigma_right: σ̂ = √(‖W‖_F² / (d h)) of the factors; 0 where that is under the least.
        orthogonal: which left factors, and which right ones, were factorised orthogonally: see ``linalg.triangles``.
    """

    singular_values: Float[np.ndarray, "head h"]
    sigma_left: Float[np.ndarray, " head"]
    sigma_right: Float[np.ndarray, " head"]
    orthogonal: tuple[Bool[np.ndarray, " head"], Bool[np.ndarray, " right_head"]]


def product_spectra(products: Iterable[tuple[Side, Side]], pool: Executor) -> Iterator[Spectra]:
    """The spectra of one product after the other, each read while the pool solves the one before.

    No more than the factors of two are held. A head's values are the same to the bit in whatever company.
    """
    before: list[Future[Spectra]] = []
    for left, right in products:
        parts = _submit(left, right, pool)
        if before:
            yield _joined(before)
        before = parts
    if before:
        yield _joined(before)


def _submit(left: Side, right: Side, pool: Executor) -> list[Future[Spectra]]:
    """Some heads at a time, whole groups of them: for one small matrix NumPy does not let go of the interpreter."""
    lefts, rights = left.read(), right.read()
    groups = lefts.reshape(len(rights), -1, *lefts.shape[1:])  # of heads with one right factor
    n_parts = min(len(rights), max(1, len(lefts) // _HEADS_PER_PART))
    parts = zip(np.array_split(groups, n_parts), np.array_split(rights, n_parts), strict=True)
    return [pool.submit(_spectra, *part, left.least_sigma, right.least_sigma) for part in parts]


def _spectra(
    groups: Float[np.ndarray, "right_head head h d"],
    rights: Float[np.ndarray, "right_head h d_right"],
    least_left: float,
    least_right: float,
) -> Spectra:
    left, right = triangles(groups), triangles(rights)
    values = core_singular_values(core_of_triangles(left.r, right.r[:, None]))
    sigma_left = _sigma(left.r, groups.shape[-1], least_left)
    sigma_right = np.broadcast_to(_sigma(right.r, rights.shape[-1], least_right)[:, None], sigma_left.shape)
    values[(sigma_left == 0) | (sigma_right == 0)] = 0.0
    values, *rest = (one.reshape(-1, *one.shape[2:]) for one in (values, sigma_left, sigma_right, left.orthogonal))
    return Spectra(values, rest[0], rest[1], (rest[2], right.orthogonal))


def _sigma(r: Float[np.ndarray, "head rank h"], d: int, least: float) -> Float[np.ndarray, " head"]:
    """σ̂ of factors (h, d) from their triangles, which have their norms."""
    sigma = np.sqrt(np.einsum("...ij,...ij->...", r, r) / (d * r.shape[-1]))
    return np.where(sigma < least, 0.0, sigma)


def _joined(parts: list[Future[Spectra]]) -> Spectra:
    *each, orthogonal = zip(*(part.result() for part in parts), strict=True)
    left, right = map(np.concatenate, zip(*orthogonal, strict=True))
    return Spectra(*map(np.concatenate, each), (left, right))
