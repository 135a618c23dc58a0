"""Proof of an entry of the table: q·k as the package reads it is q·k as the tiny model computes it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from attention_trace import Attention, Refused, Trace, run
from observe_norms import inventories, tensors_of
from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion

from rmtbase.models import Checkpoint
from rmtbase.models._architectures import find_inventory
from rmtbase.models._sites import NORM_FIELDS, Place, Site

TOLERANCE = 1e-5
"""Of q·k beside its largest value: some modules compute it in float32."""


class Disproved(Exception):  # noqa: N818
    """An entry reads something else than the module computes, and what."""


def prove(model: torch.nn.Module) -> dict[str, float]:
    """The largest relative difference between q·k of the module and xᵀ W_QK x′, by stack.

    Raises:
        Disproved: a site of the table was not seen, or a softmax is of no site.
        Refused: the model was not run.
        CheckpointError: the table refuses the model.
    """
    stored = model.state_dict()
    disk = revert_weight_conversion(model, dict(stored))
    at = {tensor.untyped_storage().data_ptr(): name for name, tensor in disk.items()}
    on_disk = {name: at.get(tensor.untyped_storage().data_ptr(), "") for name, tensor in stored.items()}
    config = json.loads(model.config.to_json_string(use_diff=False))
    tensors = {name: tensor for name, tensor in disk.items() if tensor.is_floating_point()}
    inventory = find_inventory(
        config, Checkpoint.of_tensors(tensors, "tiny"), Path("config.json"), config["model_type"]
    )
    sites = {(site.place, site.module): site for site in inventory.sites}
    left = set(sites)
    worst: dict[str, float] = {}
    for prefix, trace in runs(model):
        for seen in trace.attentions:
            site = _site_of(seen, trace, sites, prefix, on_disk)
            if site is None:
                if not inventory.notes or not any(note.startswith("parts that are not") for note in inventory.notes):
                    raise Disproved(f"{prefix}{seen.module} is of no site")
                continue
            error = difference(site, seen, trace, prefix, on_disk, tensors)
            worst[site.place.stack] = max(worst.get(site.place.stack, 0.0), error)
            left.discard((site.place, site.module))
    if left:
        raise Disproved(f"{min(left)[1]} was not seen to attend")
    return worst


def prove_norms(model: torch.nn.Module) -> int:
    """How many norms the table knows, all of them those that the forward pass shows, as the rotation of layers is.

    Raises:
        Disproved: one is another, or none, or a layer is rotated otherwise.
    """
    read, shown = inventories(model)
    by_tensors = {tensors_of(site): site for site in shown.sites}
    known = 0
    for site in read.sites:
        other = by_tensors.get(tensors_of(site))
        for field in NORM_FIELDS:
            said, seen = getattr(site, field), getattr(other, field, None)
            if said is not None and said != seen:
                raise Disproved(f"{site.module}: {field} is {seen}, not {said}")
            known += said is not None
        if site.rotated is not None and other is not None and other.rotated not in (None, site.rotated):
            raise Disproved(f"{site.module}: {other.rotated} dimensions are rotated, not {site.rotated}")
    return known


def runs(model: torch.nn.Module) -> Iterator[tuple[str, Trace]]:
    """The forward pass of the model, or where that is of several models, of each of them."""
    parts = []
    for name, one in model.named_modules():
        inner = name and isinstance(one, PreTrainedModel) and one.config is not model.config
        if inner and not any(name.startswith(part + ".") for part in parts):
            parts.append(name)
    try:
        yield "", run(model)[0]
    except Refused:
        if not parts:
            raise
    for part in parts:
        try:
            yield part + ".", run(model.get_submodule(part))[0]
        except Refused:
            continue


def _site_of(
    seen: Attention, trace: Trace, sites: dict[tuple[Place, str], Site], prefix: str, on_disk: dict[str, str]
) -> Site | None:
    module = seen.module.removesuffix(".softmax")
    mine = {
        on_disk.get(prefix + one.tensor, "")
        for one in trace.linears
        if one.module.startswith(module) or one.tensor.startswith(module + ".")
    }
    for site in sites.values():
        if site.query is not None and set(site.query.tensors()) <= mine:
            return site
    return None


def difference(
    site: Site, seen: Attention, trace: Trace, prefix: str, on_disk: dict[str, str], tensors: dict[str, torch.Tensor]
) -> float:
    """How far xᵀ W_QK x′ is from q·k of the module, over all heads and pairs of positions, beside its largest value."""
    assert site.query is not None and site.key is not None
    read = {name: tensor.double().numpy() for name, tensor in tensors.items()}

    def heads(expression: Any, n_heads: int) -> list[np.ndarray]:
        """Of each use of the tensors: a layer may be run several times."""
        first = list(expression.tensors())[-1]
        matrix = expression.evaluate(read.__getitem__).astype(np.float64)
        uses = [one.x for one in trace.linears if on_disk.get(prefix + one.tensor) == first]
        return [(x @ matrix.T).reshape(len(x), n_heads, -1).transpose(1, 0, 2) for x in uses]

    group = len(seen.query) // len(seen.key)
    shown = seen.query @ np.repeat(seen.key, group, axis=0).swapaxes(1, 2)
    best = (np.inf, 0.0)
    for query, key in zip(heads(site.query, site.n_heads), heads(site.key, site.n_key_heads), strict=True):
        computed = query @ np.repeat(key, site.n_heads // site.n_key_heads, axis=0).swapaxes(1, 2)
        if computed.shape == shown.shape:
            factor = float((computed * shown).sum() / (computed * computed).sum())
            best = min(best, (float(np.abs(shown - factor * computed).max() / np.abs(shown).max()), factor))
    error, factor = best
    if error > TOLERANCE:
        raise Disproved(f"{site.module}: q·k differs by {error:.1e} of its largest value")
    if site.logit_scale is not None and seen.scale is not None:
        far = abs(factor * seen.scale - site.logit_scale) > TOLERANCE * abs(site.logit_scale)
        if far:
            raise Disproved(f"{site.module}: logits are {factor * seen.scale} times q·k, not {site.logit_scale}")
    return error
