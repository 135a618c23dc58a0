"""All matrices of a model that are none of its heads', added to what was found of these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from rmtbase.models._checkpoint import Checkpoint
from rmtbase.models._embeddings import find_embeddings
from rmtbase.models._expressions import Expression, Tensor
from rmtbase.models._feed_forward import find_feed_forward, told_by_place
from rmtbase.models._fused import find_fused
from rmtbase.models._sites import Inventory, Place, Site

_OUTPUT = "o_proj"


def with_other_matrices(inventory: Inventory, checkpoint: Checkpoint, config: Mapping[str, Any]) -> Inventory:
    """The inventory of a checkpoint with the MLPs and routers that it lacks, and its further parts.

    What it has already stays as it is. Of names and shapes alone.
    """
    used = {name for held in inventory.matrices.values() for one in held.values() for name in one.tensors()}
    found = find_feed_forward(inventory.sites, checkpoint, config, used, frozenset(_types(config)))
    outputs, notes = _outputs(inventory.sites, checkpoint)
    others: dict[Place, dict[str, Expression]] = {}
    for part in (outputs, found.layers, inventory.others):
        for place, matrices in part.items():
            others.setdefault(place, {}).update(matrices)
    return replace(
        inventory,
        others=others,
        notes=(*inventory.notes, *notes, *found.notes),
        parts={
            "fused": find_fused(inventory.sites, checkpoint.shape),
            "embeddings": find_embeddings(inventory.sites, checkpoint, config),
            "experts": found.experts,
        },
    )


def _outputs(
    sites: tuple[Site, ...], checkpoint: Checkpoint
) -> tuple[dict[Place, dict[str, Expression]], tuple[str, ...]]:
    """W_O of sites whose heads' values do not go through it as they are: there is no W_OV, but the matrix itself.

    In between stands a gate, mostly, whose name has ``gate`` in it, or whose rows are in one tensor with the queries.
    """
    found: dict[Place, dict[str, Expression]] = {}
    between: dict[str, list[Place]] = {}
    for site in sites:
        name = f"{site.module}.{_OUTPUT}.weight"
        if site.output is not None or site.d_value is None or name not in checkpoint:
            continue
        if checkpoint.shape(name) == (site.d_query, site.n_heads * site.d_value):
            found[site.place] = {"attention_output": Tensor(name)}
            gated = any("gate" in one for one in checkpoint.names if one.startswith(f"{site.module}."))
            (queries, *_), rows = site.query_key_tensors(), site.n_heads * site.d_head
            what = "a gate" if gated or checkpoint.shape(queries)[0] > rows else "more than the weights of attention"
            words = f"between the values and {_OUTPUT} stands {what}: W_O is a matrix by itself, no head has a W_OV"
            between.setdefault(words, []).append(site.place)
    return found, tuple(told_by_place(between))


def _types(config: Mapping[str, Any]) -> Iterator[str]:
    """The model types of a configuration and of its parts."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _types(value)
        elif key == "model_type" and isinstance(value, str):
            yield value
