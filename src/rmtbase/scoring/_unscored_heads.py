"""The heads of a model that cannot be tested, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from rmtbase.models import WeightMatrices
from rmtbase.nulls import LARGEST_KURTOSIS, mean_kurtosis
from rmtbase.scoring._read_sites import SiteSpectra
from rmtbase.tables import Circuit

Reasons = Mapping[tuple[int, int], str]
"""Why heads of a circuit cannot be tested, by site and head."""


def unscored_heads(
    model: WeightMatrices, spectra: Mapping[Circuit, Mapping[int, SiteSpectra]]
) -> dict[Circuit, dict[tuple[int, int], str]]:
    """A factor of zeros, one that cannot be balanced, or a kurtosis that the null is not known for."""
    found: dict[Circuit, dict[tuple[int, int], str]] = {}
    for circuit, by_site in spectra.items():
        reasons: dict[tuple[int, int], list[str]] = {}
        for site, one in by_site.items():
            dims = tuple(getattr(model.sites[site], name) for name in circuit.dims)
            for head, reason in (*_zeros(circuit, one), *_unbalanced(one), *_heavy(dims, one)):
                reasons.setdefault((site, head), []).append(reason)
        found[circuit] = {place: "; ".join(each) for place, each in reasons.items()}
    return found


def unscored_lines(model: WeightMatrices, found: Mapping[Circuit, Reasons]) -> list[str]:
    """The warnings of a file: a line for each head and reason."""
    lines = (
        f"{model.sites[site].place} {circuit.noun} {head}: {reason}; not tested by {circuit.symbol}"
        for circuit, reasons in found.items()
        for (site, head), reason in reasons.items()
    )
    return list(dict.fromkeys(lines))


def _zeros(circuit: Circuit, one: SiteSpectra) -> Iterator[tuple[int, str]]:
    for head in range(len(one.singular_values)):
        zero = [factor.symbol for factor, sigma in zip(circuit.factors, one.sigmas, strict=True) if sigma[head] == 0]
        if zero:
            yield head, f"{' and '.join(zero)} {'is' if len(zero) == 1 else 'are'} zeros, or rounding to them"


def _unbalanced(one: SiteSpectra) -> Iterator[tuple[int, str]]:
    for head in np.flatnonzero(np.isnan(one.singular_values).any(axis=-1)).tolist():
        yield head, "rows or columns of zeros, which cannot be balanced as the null of gains asks"


def _heavy(dims: tuple[int, ...], one: SiteSpectra) -> Iterator[tuple[int, str]]:
    if one.kurtoses is None:
        return
    kurtosis = mean_kurtosis(dims, one.kurtoses)
    for head in np.flatnonzero(np.abs(kurtosis) > LARGEST_KURTOSIS).tolist():
        yield (
            head,
            (
                f"elements of excess kurtosis {kurtosis[head]:.3g}, more than {LARGEST_KURTOSIS:g}, which the null of "
                "independent elements is not known for; --null permutation is"
            ),
        )
