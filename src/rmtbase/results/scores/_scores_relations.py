"""Checks of the relations between groups of a scores file; each returns found and expected, or None."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import xarray as xr

from rmtbase.shown import quoted
from rmtbase.tables import CIRCUITS, QK, Circuit, Fault

Groups = Mapping[str, xr.Dataset]


class _Scored(NamedTuple):
    circuit: Circuit
    heads: xr.Dataset
    null: xr.Dataset
    attributes: Mapping[Any, Any]


def circuit_group(circuit: Circuit) -> str:
    """Return the group that holds ``heads`` and ``null`` of a circuit; for W_QK the root, ""."""
    return "" if circuit == QK else f"/circuits/{circuit.name}"


def circuits_whole(groups: Groups) -> Fault:
    """Check that each further circuit has heads, a null, and an attribute that names it."""
    for circuit in CIRCUITS.values():
        place = circuit_group(circuit)
        needed = [place, f"{place}/heads", f"{place}/null"]
        if not place or not set(needed) & set(groups):
            continue
        lacking = [quoted(name) for name in needed if name not in groups]
        if lacking:
            return f"no group {', '.join(lacking)}", f"all of {', '.join(needed)}"
        if groups[place].attrs.get("circuit") != circuit.name:
            return f"no attribute circuit = {circuit.name} of {quoted(place)}", "the name of its group"
    return None


def sizes_known(groups: Groups) -> Fault:
    """Check that each size of a circuit's matrices is an attribute, or a coordinate of its heads if layers differ."""
    for circuit, heads, _, attributes in _scored(groups):
        for name in circuit.dims:
            one_of = {name, "d_model"} if circuit == QK and name != "d_head" else {name}
            if not (one_of & set(attributes) or name in heads.coords):
                return f"no attribute {' nor '.join(sorted(one_of))}", f"{name} of {circuit.symbol}, or a coordinate"
    return None


def shapes_fit(groups: Groups) -> Fault:
    """Check that each layer has a shape with a null, if heads have several shapes."""
    for _, heads, null, _ in _scored(groups):
        if "layer_shape" not in null:
            continue
        shapes, layers = null["layer_shape"].values, heads.sizes["layer"]
        if shapes.size != layers:
            return f"layer_shape of {shapes.size} layers", f"{layers}, as /heads has"
        if (shapes >= null.sizes["shape"]).any():
            return f"layer_shape {shapes.max()} of {null.sizes['shape']} shapes", "the place of a shape"
    return None


def _scored(groups: Groups) -> Iterator[_Scored]:
    """Yield the circuits whose scores the file has."""
    for circuit in CIRCUITS.values():
        place = circuit_group(circuit)
        if f"{place}/heads" in groups:
            yield _Scored(circuit, groups[f"{place}/heads"], groups[f"{place}/null"], groups[place].attrs)
