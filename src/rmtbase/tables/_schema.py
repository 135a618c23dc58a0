"""Schema of rmtbase's files: dimensions, long name, units and domain of every variable and coordinate.

:func:`describe` attaches these when a table is made, and the same schema checks a table when it is opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import xarray as xr

from rmtbase.errors import TableError
from rmtbase.shown import shown
from rmtbase.tables.domain import (
    ANY,
    EDGES,
    LAYERS,
    LEVELS,
    NAMES,
    NUMBERS_OF_LAYERS,
    PLACES,
    POSITIVE_OR_NAN,
    RANKS,
    SIZE,
    TEXT,
    Domain,
)

SCHEMA_VERSION = "1"  #: Version of the layout of all kinds of file


@dataclass(frozen=True)
class Variable:
    """Variable of a table."""

    dims: tuple[str, ...]  #: its dimensions
    long_name: str  #: its name in words
    domain: Domain = ANY  #: set of allowed values
    units: str = ""  #: its units; "" for a variable without the attribute ``units``
    part: str = ""  #: optional part of a table, present or missing as a whole; "" for a required variable


Schema = Mapping[str, Variable]


class Outline(Protocol):
    @property
    def attrs(self) -> Mapping[Any, Any]: ...
    @property
    def variables(self) -> Mapping[Any, Any]: ...
    @property
    def coords(self) -> Iterable[Any]: ...
    @property
    def sizes(self) -> Mapping[Any, int]: ...


_OF_A_LAYER = {
    "n_heads": "heads of the layer",
    "n_key_heads": "key heads of the layer",
    "d_query": "width of what the queries read",
    "d_key": "width of what the keys and values read",
    "d_head": "rows of a head's W_Q and W_K",
    "d_value": "rows of a head's W_V",
    "d_output": "width of what the heads write to",
}

_NAMED = {
    "statistic": "statistic",
    "element_statistic": "statistic of the elements",
    "component": "weight matrix",
    "model": "model that is compared, by the name of its file",
    "pair": "two of the models",
    "test": "test of heads against one null",
    "group": "group of models, several seeds of one recipe",
    "contrast": "two groups of models",
    "measure": "what is measured of a model",
    "published_model": "model of published numbers",
    "kind": "kind of composition, by what the later head reads with",
    "earlier": "earlier head, which writes",
    "later": "later head, which reads",
}

COORDINATES: dict[str, Variable] = {
    **{name: Variable((name,), words, NAMES) for name, words in _NAMED.items()},
    "case": Variable(("case",), "case of the table", PLACES),
    "probability": Variable(("probability",), "probability of the quantile", LEVELS),
    "expert": Variable(("expert",), "expert of a mixture", PLACES),
    "depth": Variable(("depth",), "depth of the residual path", RANKS),
    "rank": Variable(("rank",), "rank, counted from the end", RANKS),
    "direction": Variable(("direction",), "learned direction, from the strongest, which is 0", PLACES),
    "index": Variable(("index",), "place of the eigenvalue, from the largest, which is 0", PLACES),
    "bin": Variable(("bin",), "bin of the histogram", EDGES),
    "edge": Variable(("edge",), "edge of the histogram", PLACES),
    "draw": Variable(("draw",), "draw", PLACES),
    "layer": Variable(("layer",), "layer", LAYERS),
    "stack": Variable(("layer",), "stack of the layer", TEXT),
    "stack_layer": Variable(
        ("layer",), "number of the layer in its stack; -1 for what lies outside the layers", NUMBERS_OF_LAYERS
    ),
    **{name: Variable(("layer",), words, SIZE) for name, words in _OF_A_LAYER.items()},
    "attention": Variable(("layer",), "how the heads of the layer share keys, and whether these are fused", TEXT),
    "head": Variable(("head",), "head", PLACES),
    **{f"{dim}_stack": Variable((dim,), f"stack of the layer of the {dim} head", TEXT) for dim in ("earlier", "later")},
    "null_scale": Variable(
        ("layer", "head"),
        "factor of the null's eigenvalues at sigma = 1 where a head's matrices are products; NaN where it has no shape",
        POSITIVE_OR_NAN,
    ),
    "symbol": Variable(("statistic",), "symbol of the statistic, in LaTeX", TEXT),
    "formula": Variable(("statistic",), "formula of the statistic", TEXT),
    "convention": Variable(("statistic",), "values that the statistic is of", TEXT),
    "scaling": Variable(("statistic",), "power of sigma_Q^2 sigma_K^2 with which the statistic scales", TEXT),
}
"""Possible coordinates of a table of any kind. Names and levels are always present; coordinates of layers are present
if they differ between layers. ``layer`` is the number of the layer, -1 for matrices outside the layers. In a model of
several stacks it counts the layers of all stacks, and ``stack`` and ``stack_layer`` identify the layer."""

PARAMETER = "parameter_"  #: Prefix of coordinates that are parameters of a table's ensemble

REQUIRED_COORDINATES = frozenset({*_NAMED, "probability", "depth", "rank"})
BIN_CENTER = Variable(("case", "bin"), "eigenvalue lambda, centre of the bin", EDGES)


def require_version(attributes: Mapping[Any, Any], path: Path | str) -> None:
    """Raise :class:`~rmtbase.errors.TableError` unless these are the root attributes of a file of this schema."""
    if "schema_version" not in attributes or "rmtbase_version" not in attributes:
        expected = f"a file written by rmtbase (schema {SCHEMA_VERSION})"
        raise TableError(path, "a netCDF file that rmtbase did not write (no schema_version)", expected)
    if attributes["schema_version"] != SCHEMA_VERSION:
        schema, version = (shown(attributes[name], 80) for name in ("schema_version", "rmtbase_version"))
        expected = f"schema version {SCHEMA_VERSION}, the only one that this version of rmtbase reads"
        advice = "make the file anew, or read it with the version that wrote it"
        raise TableError(path, f"schema version {schema}, written by rmtbase {version}", f"{expected}; {advice}")


def describe(dataset: xr.Dataset, schema: Schema) -> xr.Dataset:
    """Attach the schema's long names and units to every variable and coordinate, and check the dimensions.

    ``bin`` holds the centres of the bins if these are the same for every case, so that densities are plotted over them.
    """
    words = dict(COORDINATES)
    if "bin_edge" in dataset and {"bin", "edge"} <= set(dataset.sizes):
        edges = dataset["bin_edge"].transpose(..., "edge").values
        centers = 0.5 * (edges[..., :-1] + edges[..., 1:])
        center = schema.get("bin_center", BIN_CENTER)
        first = centers.reshape(-1, centers.shape[-1])[0]
        if (centers == first).all():
            dataset = dataset.assign_coords(bin=first)
            words["bin"] = replace(words["bin"], long_name=center.long_name)
        if "bin_center" in schema:
            dataset = dataset.assign_coords(bin_center=(center.dims, centers))
    for name, variable in {**words, **schema}.items():
        if name not in dataset.variables or (name not in schema and not set(variable.dims) <= set(dataset.sizes)):
            continue
        if dataset[name].dims != variable.dims:
            raise ValueError(f"variable {name!r} has dims {dataset[name].dims}; expected {variable.dims}")
        units = {"units": variable.units} if variable.units else {}
        dataset[name].attrs.update(long_name=variable.long_name, **units)
    for name in (coordinate for coordinate in map(str, dataset.coords) if coordinate.startswith(PARAMETER)):
        dataset[name].attrs["long_name"] = f"{name.removeprefix(PARAMETER)} of the ensemble"
    return names_as_objects(dataset)


def names_as_objects(dataset: xr.Dataset) -> xr.Dataset:
    """Store names as objects, so that xarray does not plot lines over them: no line should connect two statistics."""
    names = [name for name in _NAMED if name in dataset.indexes]
    return dataset.assign_coords({name: dataset[name].astype(object) for name in names})
