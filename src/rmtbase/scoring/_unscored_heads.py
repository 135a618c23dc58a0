"""The heads of a model that have no scores, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from rmtbase.models import WeightMatrices
from rmtbase.nulls import LARGEST_KURTOSIS, mean_kurtosis
from rmtbase.scoring._read_sites import SiteSpectra
from rmtbase.tables import Circuit


def unscored_heads(model: WeightMatrices, spectra: Mapping[Circuit, Mapping[int, SiteSpectra]]) -> list[str]:
    """A line for each: a factor of zeros, one that cannot be balanced, a kurtosis that the null is not known for."""
    found = (
        f"{model.sites[site].place} {circuit.noun} {line}"
        for circuit, by_site in spectra.items()
        for lines in (_zeros, _unbalanced, _heavy)
        for site, one in by_site.items()
        for line in lines(circuit, tuple(getattr(model.sites[site], name) for name in circuit.dims), one)
    )
    return list(dict.fromkeys(found))


def _zeros(circuit: Circuit, dims: tuple[int, ...], one: SiteSpectra) -> Iterator[str]:
    what = f"the {circuit.noun}" if circuit.name != "ov" else "W_OV"
    for factor, sigma in zip(circuit.factors, one.sigmas, strict=True):
        for head in np.flatnonzero(sigma == 0):
            yield f"{head}: {factor.symbol} is zeros, or rounding to them, so {what} has no shape and is not scored"


def _unbalanced(circuit: Circuit, dims: tuple[int, ...], one: SiteSpectra) -> Iterator[str]:
    for head in np.flatnonzero(np.isnan(one.singular_values).any(axis=-1)):
        yield (
            f"{head}: cannot be balanced, which rows or columns of zeros prevent, so it is not scored against the null "
            "of gains"
        )


def _heavy(circuit: Circuit, dims: tuple[int, ...], one: SiteSpectra) -> Iterator[str]:
    if one.kurtoses is None:
        return
    kurtosis = mean_kurtosis(dims, one.kurtoses)
    for head in np.flatnonzero(np.abs(kurtosis) > LARGEST_KURTOSIS):
        yield (
            f"{head}: elements of excess kurtosis {kurtosis[head]:.3g}, more than {LARGEST_KURTOSIS:g}, which the null "
            "of independent elements is not known for; --null permutation is"
        )
