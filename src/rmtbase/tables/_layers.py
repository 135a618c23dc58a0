"""The layers of a scores file in words, and what of it is there where layers differ in their heads or matrices."""

from __future__ import annotations

import numpy as np
import xarray as xr
from jaxtyping import Bool

from rmtbase.tables._circuits import circuit_of

OUTSIDE = "outside the layers"
"""Where the embeddings of a model are, in words: their layer is -1."""


def layer_names(dataset: xr.Dataset) -> list[str]:
    """Each layer of a group in words, with its stack where a model has several: ``decoder layer 3``, or ``layer 3``."""
    numbers, stacks = layer_numbers(dataset), layer_stacks(dataset)
    return [
        f"{stack} layer {number}".lstrip() if number >= 0 else stack or OUTSIDE
        for stack, number in zip(stacks, numbers, strict=True)
    ]


def layer_numbers(dataset: xr.Dataset) -> list[int]:
    """The number of each layer in its stack."""
    return dataset["stack_layer" if "stack_layer" in dataset.coords else "layer"].values.tolist()


def layer_stacks(dataset: xr.Dataset) -> list[str]:
    """The stack of each layer; "" where a model has one alone."""
    if "stack" not in dataset.coords:
        return [""] * dataset.sizes["layer"]
    return [str(stack) for stack in dataset["stack"].values.tolist()]


def heads_present(heads: xr.Dataset) -> Bool[np.ndarray, "layer head"]:
    """Which (layer, head) are heads of the model, and have a σ; the others pad layers that have fewer."""
    sigma = next((heads[name] for name in map(str, heads.data_vars) if name.startswith("sigma_")), None)
    if sigma is None:
        return np.ones((heads.sizes["layer"], heads.sizes["head"]), dtype=bool)
    return sigma.notnull().transpose("layer", "head").values


def matrices_present(matrices: xr.Dataset) -> Bool[np.ndarray, "layer *expert component"]:
    """Which (layer, component), or (layer, expert, component), are matrices: not every layer has all components."""
    return matrices["n_rows"].notnull().transpose("layer", ..., "component").values


def shapes_of(scores: xr.DataTree) -> list[tuple[int, ...]]:
    """The sizes of the matrices of heads, as often as there are others, in the order of their nulls.

    Of W_QK (d_query, d_head, d_key), of another circuit by :attr:`rmtbase.tables.Circuit.dims`.
    """
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
