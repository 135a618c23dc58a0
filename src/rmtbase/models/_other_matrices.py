"""All matrices of a model that are none of its heads', added to what was found of these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from rmtbase.models._checkpoint import Checkpoint
from rmtbase.models._embeddings import find_embeddings
from rmtbase.models._feed_forward import find_feed_forward
from rmtbase.models._sites import Inventory


def with_other_matrices(inventory: Inventory, checkpoint: Checkpoint, config: Mapping[str, Any]) -> Inventory:
    """The inventory of a checkpoint with the MLPs and routers that it lacks, its experts and its embeddings.

    What it has already stays as it is. Of names and shapes alone.
    """
    used = {name for held in inventory.matrices.values() for one in held.values() for name in one.tensors()}
    found = find_feed_forward(inventory.sites, checkpoint, config, used, frozenset(_types(config)))
    places = dict.fromkeys((*inventory.others, *found.layers))
    others = {place: {**found.layers.get(place, {}), **inventory.others.get(place, {})} for place in places}
    return replace(
        inventory,
        others=others,
        notes=(*inventory.notes, *found.notes),
        parts={"embeddings": find_embeddings(inventory.sites, checkpoint, config), "experts": found.experts},
    )


def _types(config: Mapping[str, Any]) -> Iterator[str]:
    """The model types of a configuration and of its parts."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _types(value)
        elif key == "model_type" and isinstance(value, str):
            yield value
