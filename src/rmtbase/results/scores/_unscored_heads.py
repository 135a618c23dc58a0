"""Heads of a model that cannot be tested, and the reasons."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from rmtbase.heads.read_sites import SiteSpectra
from rmtbase.models import WeightMatrices
from rmtbase.nulls import FLAT, FixedSpectrum, Null, OrthogonalNull, chain_scale
from rmtbase.results.scores._heads import Block
from rmtbase.tables import Circuit

_NAMED = 8  # heads named in one line; the file lists all

Reasons = Mapping[tuple[int, int], str]
"""Reasons why heads of a circuit cannot be tested, by site and head."""


def unscored_heads(
    model: WeightMatrices, spectra: Mapping[Circuit, Mapping[int, SiteSpectra]], null: Null
) -> dict[Circuit, dict[tuple[int, int], str]]:
    """Give the reason for each head that cannot be scored: a factor of zeros, or a reason from the null."""
    found: dict[Circuit, dict[tuple[int, int], str]] = {}
    for circuit, by_site in spectra.items():
        reasons: dict[tuple[int, int], list[str]] = {}
        for site, one in by_site.items():
            dims = tuple(getattr(model.sites[site], name) for name in circuit.dims)
            for head, reason in (*_zeros(circuit, one), *null.unscored(dims, one.prepared).items()):
                reasons.setdefault((site, head), []).append(reason)
        found[circuit] = {place: "; ".join(each) for place, each in reasons.items()}
    return found


def unscored_lines(model: WeightMatrices, found: Mapping[Circuit, Reasons]) -> list[str]:
    """Write the warnings of a file: one for each circuit and reason, with at most eight heads named and all counted.

    Reasons that differ only in their numbers count as one, in the words of the first.
    """
    lines = []
    for circuit, reasons in found.items():
        alike: dict[str, list[tuple[str, str]]] = {}
        for (site, head), reason in reasons.items():
            name = f"{model.sites[site].place} {circuit.noun} {head}"
            alike.setdefault(re.sub(r"\d[\d.e+-]*", "#", reason), []).append((name, reason))
        for same in alike.values():
            names = [name for name, _ in same]
            lines.append(f"{_listed(names)}: {same[0][1]}; not tested by {circuit.symbol}")
    return list(dict.fromkeys(lines))


def fixed_spectra(
    model: WeightMatrices, scored: Mapping[Circuit, Sequence[Block]]
) -> tuple[dict[Circuit, dict[tuple[int, int], str]], list[str]]:
    """Give the reasons why heads with a spectrum fixed by orthogonal initialization cannot be tested, and warnings.

    The warnings name the heads that cannot come from this initialization, and the statistics that are equal in every
    draw.
    """
    agree: dict[Circuit, dict[tuple[int, int], str]] = {circuit: {} for circuit in scored}
    lines = []
    for circuit, blocks in scored.items():
        differ = []
        for block in blocks:
            if isinstance(block.null, OrthogonalNull) and block.null.fixed:
                names = ", ".join(block.null.fixed)
                lines.append(
                    f"{circuit.noun}s of {block.dims}: not tested by {names}, the same in all draws of the null"
                )
            if not isinstance(block.null, FixedSpectrum):
                continue
            scale = chain_scale(block.heads.sigmas)
            agrees = block.null.agrees(block.heads.singular_values**2 / scale[..., None])
            for row, head in np.argwhere(~np.isnan(scale)).tolist():
                if agrees[row, head]:
                    agree[circuit][block.sites[row], head] = _FIXED
                else:
                    differ.append(f"{model.sites[block.sites[row]].place} {circuit.noun} {head}")
        if differ:
            lines.append(
                f"{_listed(differ)}: not as by orthogonal initialisation, which makes all singular values of "
                f"{circuit.symbol} equal: rejected with certainty, whatever changed them"
            )
    return agree, lines


def equal_values_note(spectra: Mapping[int, SiteSpectra]) -> str | None:
    """Write a note on heads whose singular values of W_QK agree to 1 %, as after orthogonal initialization."""
    values = [one for site in spectra.values() for one in site.singular_values if one[-1] > 0.0]
    flat = sum(one[0] <= (1.0 + 0.5 * FLAT) * one[-1] for one in values)
    if not flat:
        return None
    return (
        f"{flat} of {len(values)} heads have equal singular values of W_QK, as orthogonal initialisation makes them: "
        "a null of independent entries rejects them for that; --initialization orthogonal has the null for them"
    )


_FIXED = "orthonormal rows fix its spectrum: all singular values are equal, as here to 1 %, and nothing is left to test"


def _listed(heads: list[str]) -> str:
    more = len(heads) - _NAMED
    return ", ".join(heads[:_NAMED]) + (f" and {more} more ({len(heads)} in all)" if more > 0 else "")


def _zeros(circuit: Circuit, one: SiteSpectra) -> Iterator[tuple[int, str]]:
    for head in range(len(one.singular_values)):
        zero = [factor.symbol for factor, sigma in zip(circuit.factors, one.sigmas, strict=True) if sigma[head] == 0]
        if zero:
            yield head, f"{' and '.join(zero)} {'is' if len(zero) == 1 else 'are'} zeros, or rounding to them"
