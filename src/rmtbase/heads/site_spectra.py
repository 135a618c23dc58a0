"""Spectra and scales of the heads of one site by one circuit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float


class GroupSpectra(NamedTuple):
    """Spectra of heads of one site that share a matrix, as one product [A_1 ... A_g]ᵀB, each A_i at their common σ̂.

    Attributes:
        singular_values: singular values, descending; all zero where a factor is zero.
        shares: share of each head in the square of each singular value: ‖block of A_i‖² of its left singular vector.
        prepared: what else the null needs from each group, see ``read_sites.Preparation``; None if nothing.
    """

    singular_values: Float[np.ndarray, "group rank"]
    shares: Float[np.ndarray, "group rank member"]
    prepared: Sequence[Any] | None = None


class SiteSpectra(NamedTuple):
    """Spectra of the heads of one site by one circuit.

    Attributes:
        singular_values: singular values, descending; all zero where a factor is zero.
        sigmas: σ̂ of each of the circuit's factors.
        groups: spectra of heads that share a matrix; None if none do, or if they were not requested.
        prepared: what else the null needs from each head, see ``read_sites.Preparation``; None if nothing.
    """

    singular_values: Float[np.ndarray, "head rank"]
    sigmas: tuple[Float[np.ndarray, " head"], ...]
    groups: GroupSpectra | None = None
    prepared: Sequence[Any] | None = None


def joined_spectra(parts: Sequence[SiteSpectra]) -> SiteSpectra:
    """Join the spectra of all heads of a site from parts."""
    return SiteSpectra(
        np.concatenate([part.singular_values for part in parts]),
        tuple(map(np.concatenate, zip(*(part.sigmas for part in parts), strict=True))),
        _groups_of([part.groups for part in parts]),
        _prepared_of([part.prepared for part in parts]),
    )


def _groups_of(parts: Sequence[GroupSpectra | None]) -> GroupSpectra | None:
    known = [part for part in parts if part is not None]
    if not known:
        return None
    return GroupSpectra(
        np.concatenate([part.singular_values for part in known]),
        np.concatenate([part.shares for part in known]),
        _prepared_of([part.prepared for part in known]),
    )


def _prepared_of(parts: Sequence[Sequence[Any] | None]) -> Sequence[Any] | None:
    known = [part for part in parts if part is not None]
    return [one for part in known for one in part] if known else None
