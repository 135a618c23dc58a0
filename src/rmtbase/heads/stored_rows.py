"""Stored matrices that the factors of a head are rows of; these determine the null of orthogonal initialization."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from rmtbase.models import MatrixName, WeightMatrices
from rmtbase.tables import Circuit

_FUSED_WITH: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "query": ("attention_query_key_value", "attention_query_key"),
        "key": ("attention_query_key_value", "attention_query_key", "attention_key_value"),
        "value": ("attention_query_key_value", "attention_key_value"),
        "output": (),
    }
)


class StoredRows(NamedTuple):
    """Number of rows of the stored matrix of each factor, along which heads are stacked."""

    rows: tuple[int, ...]  # the number of heads times the rows of each head; for a fused matrix, all of its rows
    fused: bool  # whether all factors are rows of one stored matrix


def stored_rows(model: WeightMatrices, site: int, circuit: Circuit) -> StoredRows:
    """Find the stored matrices that a circuit's factors at a site are rows of."""
    at, fused = model.sites[site], model.parts.get("fused", ())
    names = [
        next(
            (name for component in _FUSED_WITH[factor.name] if (name := MatrixName(at.place, component)) in fused), None
        )
        for factor in circuit.factors
    ]
    rows = tuple(
        getattr(at, factor.heads) * getattr(at, factor.rank) if name is None else max(1, model.shape(name)[0])
        for factor, name in zip(circuit.factors, names, strict=True)
    )
    return StoredRows(rows, len(names) > 1 and names[0] is not None and len(set(names)) == 1)
