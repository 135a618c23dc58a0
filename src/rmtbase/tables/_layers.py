"""Names of the layers of a scores file, and masks of its heads and matrices if layers differ in these."""

from __future__ import annotations

import numpy as np
import xarray as xr
from jaxtyping import Bool

from rmtbase.errors import ParameterError
from rmtbase.tables._circuits import circuit_of

OUTSIDE = "outside the layers"  #: Name of the place of embeddings, whose layer is -1


def layer_names(dataset: xr.Dataset) -> list[str]:
    """Name each layer of a group, with its stack if a model has several: ``decoder layer 3``, or ``layer 3``."""
    numbers, stacks = layer_numbers(dataset), layer_stacks(dataset)
    return [
        f"{stack} layer {number}".lstrip() if number >= 0 else stack or OUTSIDE
        for stack, number in zip(stacks, numbers, strict=True)
    ]


def layer_numbers(dataset: xr.Dataset) -> list[int]:
    return dataset["stack_layer" if "stack_layer" in dataset.coords else "layer"].values.tolist()


def layer_stacks(dataset: xr.Dataset) -> list[str]:
    """Return the stack of each layer; "" if a model has only one."""
    if "stack" not in dataset.coords:
        return [""] * dataset.sizes["layer"]
    return [str(stack) for stack in dataset["stack"].values.tolist()]


def heads_present(heads: xr.Dataset) -> Bool[np.ndarray, "layer head"]:
    """Mask of the (layer, head) that are heads of the model and have a σ; the others pad layers with fewer heads."""
    sigma = next((heads[name] for name in map(str, heads.data_vars) if name.startswith("sigma_")), None)
    if not {"layer", "head"} <= set(heads.sizes):
        raise ParameterError("heads", dict(heads.sizes), "a table of heads, with the dimensions layer and head")
    if sigma is None:
        return np.ones((heads.sizes["layer"], heads.sizes["head"]), dtype=bool)
    return sigma.notnull().transpose("layer", "head").values


def matrices_present(matrices: xr.Dataset) -> Bool[np.ndarray, "layer *expert component"]:
    """Mask of the (layer, component) or (layer, expert, component) that are matrices: layers may lack components."""
    return matrices["n_rows"].notnull().transpose("layer", ..., "component").values


def shapes_of(scores: xr.DataTree) -> list[tuple[int, ...]]:
    """List the different shapes of the matrices of heads, by ``Circuit.dims``, in the order of their nulls."""
    circuit, heads, null = circuit_of(scores.attrs), scores["heads"].to_dataset(), scores["null"].to_dataset()
    if "layer_shape" in null:
        return list(zip(*(null[name].values.tolist() for name in circuit.dims), strict=True))
    n_layers = heads.sizes.get("layer", 1)
    columns = [
        heads[name].values.tolist()
        if name in heads.coords
        else [int(scores.attrs[name if name in scores.attrs else "d_model"])] * n_layers
        for name in circuit.dims
    ]
    return list(dict.fromkeys(zip(*columns, strict=True)))
