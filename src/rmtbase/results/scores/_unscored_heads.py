"""Heads of a model that cannot be tested, and the reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from rmtbase.heads.read_sites import SiteSpectra
from rmtbase.models import WeightMatrices
from rmtbase.nulls import FLAT, FixedSpectrum, Null, OrthogonalNull, chain_scale
from rmtbase.reasons import Reason
from rmtbase.results.scores._heads import Block
from rmtbase.tables import Circuit
from rmtbase.words import listing

_NAMED = 8  # heads named in one line; the file lists all

Reasons = Mapping[tuple[int, int], Reason]
"""Reasons why heads of a circuit cannot be tested, by site and head."""


def unscored_heads(
    model: WeightMatrices, spectra: Mapping[Circuit, Mapping[int, SiteSpectra]], null: Null
) -> dict[Circuit, Reasons]:
    """Give the reason for each head that cannot be scored: a factor of zeros, or a reason from the null."""
    unscored: dict[Circuit, Reasons] = {}
    for circuit, by_site in spectra.items():
        reasons: dict[tuple[int, int], Reason] = {}
        for site, of_site in by_site.items():
            dims = tuple(getattr(model.sites[site], name) for name in circuit.dims)
            for head, reason in (*_zeros(circuit, of_site), *null.unscored(dims, of_site.prepared).items()):
                reasons[site, head] = Reason.join(reasons.get((site, head), Reason()), reason)
        unscored[circuit] = reasons
    return unscored


def unscored_lines(model: WeightMatrices, unscored: Mapping[Circuit, Reasons]) -> list[str]:
    """Write the warnings of a file: one for each circuit and code of a reason, in the words of the first head's."""
    lines = []
    for circuit, reasons in unscored.items():
        groups: dict[tuple[str, ...], list[tuple[str, Reason]]] = {}
        for (site, head), reason in reasons.items():
            name = f"{model.sites[site].place} {circuit.noun} {head}"
            groups.setdefault(reason.codes, []).append((name, reason))
        for heads in groups.values():
            names = _listed([name for name, _ in heads])
            lines.append(f"{names}: {heads[0][1].words}; not tested by {circuit.symbol}")
    return list(dict.fromkeys(lines))


def fixed_spectra(
    model: WeightMatrices, scored: Mapping[Circuit, Sequence[Block]]
) -> tuple[dict[Circuit, Reasons], list[str]]:
    """Give the reasons why heads with a spectrum fixed by orthogonal initialization cannot be tested, and warnings.

    The warnings name the heads that cannot come from this initialization, and the statistics that are equal in every
    draw.
    """
    fixed: dict[Circuit, Reasons] = {}
    lines = []
    for circuit, blocks in scored.items():
        agreeing, differing = {}, []
        for block in blocks:
            if isinstance(block.null, OrthogonalNull) and block.null.fixed:
                names = ", ".join(block.null.fixed)
                heads = f"{circuit.noun}s of {block.dims}"
                lines.append(f"{heads}: not tested by {names}, the same in all draws of the null")
            if not isinstance(block.null, FixedSpectrum):
                continue
            scale = chain_scale(block.heads.sigmas)
            agrees = block.null.agrees(block.eigenvalues / scale[..., None])
            for row, head in np.argwhere(~np.isnan(scale)).tolist():
                if agrees[row, head]:
                    agreeing[block.sites[row], head] = Reason("fixed_spectrum")
                else:
                    differing.append(f"{model.sites[block.sites[row]].place} {circuit.noun} {head}")
        fixed[circuit] = agreeing
        if differing:
            lines.append(
                f"{_listed(differing)}: not as by orthogonal initialisation, which makes all singular values of "
                f"{circuit.symbol} equal: rejected with certainty, whatever changed them"
            )
    return fixed, lines


def equal_values_note(spectra: Mapping[int, SiteSpectra]) -> str | None:
    """Write a note on heads whose singular values of W_QK agree to 1 %, as after orthogonal initialization."""
    heads = [values for site in spectra.values() for values in site.singular_values if values[-1] > 0.0]
    flat = sum(values[0] <= (1.0 + 0.5 * FLAT) * values[-1] for values in heads)
    if not flat:
        return None
    return (
        f"{flat} of {len(heads)} heads have equal singular values of W_QK, as orthogonal initialisation makes them: "
        "a null of independent entries rejects them for that; --initialization orthogonal has the null for them"
    )


def _listed(heads: list[str]) -> str:
    return listing(heads, _NAMED) + (f" ({len(heads)} in all)" if len(heads) > _NAMED else "")


def _zeros(circuit: Circuit, site: SiteSpectra) -> Iterator[tuple[int, Reason]]:
    for head in range(len(site.singular_values)):
        zero = [factor.symbol for factor, sigma in zip(circuit.factors, site.sigmas, strict=True) if sigma[head] == 0]
        if len(zero) == 1:
            yield head, Reason("zero_factor", {"factor": zero[0]})
        elif zero:
            yield head, Reason("zero_factors", {"factors": " and ".join(zero)})
