"""Spectra and scales of the heads of one site by one circuit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float


class GroupSpectra(NamedTuple):
    """The heads of one site that share a matrix, as one: [A_1 ... A_g]ᵀB, each A_i at the σ̂ that they have together.

    Attributes:
        singular_values: descending; all zero where a factor is.
        shares: of each head in the square of each of them: ‖block of A_i‖² of its left singular vector.
        kurtoses: excess kurtosis κ̂ of the elements of the A_i and of B; None where nobody asked.
        counts: of each their directions by sign flips; None where nobody asked.
    """

    singular_values: Float[np.ndarray, "group rank"]
    shares: Float[np.ndarray, "group rank member"]
    kurtoses: tuple[Float[np.ndarray, " group"], ...] | None = None
    counts: tuple[Any, ...] | None = None


class SiteSpectra(NamedTuple):
    """The heads of one site by one circuit.

    Attributes:
        singular_values: descending; all zero where a factor is.
        sigmas: σ̂ of each of the circuit's factors.
        kurtoses: excess kurtosis κ̂ of the elements of each, about zero; None where nobody asked.
        groups: of heads that share a matrix; None where none do, or nobody asked.
        counts: of each head its directions by sign flips; None where nobody asked.
    """

    singular_values: Float[np.ndarray, "head rank"]
    sigmas: tuple[Float[np.ndarray, " head"], ...]
    kurtoses: tuple[Float[np.ndarray, " head"], ...] | None = None
    groups: GroupSpectra | None = None
    counts: tuple[Any, ...] | None = None


def joined_spectra(parts: Sequence[SiteSpectra]) -> SiteSpectra:
    """All heads of a site from parts of them."""
    return SiteSpectra(
        np.concatenate([part.singular_values for part in parts]),
        tuple(map(np.concatenate, zip(*(part.sigmas for part in parts), strict=True))),
        _kurtoses_of([part.kurtoses for part in parts]),
        _groups_of([part.groups for part in parts]),
        _counts_of([part.counts for part in parts]),
    )


def _kurtoses_of(parts: Sequence[tuple[Float[np.ndarray, " head"], ...] | None]) -> tuple[np.ndarray, ...] | None:
    known = [part for part in parts if part is not None]
    return tuple(map(np.concatenate, zip(*known, strict=True))) if known else None


def _groups_of(parts: Sequence[GroupSpectra | None]) -> GroupSpectra | None:
    known = [part for part in parts if part is not None]
    if not known:
        return None
    return GroupSpectra(
        np.concatenate([part.singular_values for part in known]),
        np.concatenate([part.shares for part in known]),
        _kurtoses_of([part.kurtoses for part in known]),
        _counts_of([part.counts for part in known]),
    )


def _counts_of(parts: Sequence[tuple[Any, ...] | None]) -> tuple[Any, ...] | None:
    known = [part for part in parts if part is not None]
    return tuple(count for part in known for count in part) if known else None
