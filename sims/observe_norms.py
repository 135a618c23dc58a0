"""Observe the norms around queries and keys and the rotation of each layer in a forward pass, in the table's format.

Two tiny models of each variant of a type are run. The names of their norms are described by patterns with a place for
the number of the layer, ``{}``, or of the layer before, ``{-1}``; the first layer has its own pattern if it differs. A
norm that no such pattern fits in every layer of both models is left out: it is unknown. If only some layers are rotated
by position, a list of the configuration says which.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import tiny_models
import torch
from infer_types import UNVARIED
from tiny_models import PROFILES, Profile
from transformers.core_model_loading import revert_weight_conversion

from rmtbase.models import Checkpoint
from rmtbase.models.forward._torch_route import Network
from rmtbase.models.layouts._architectures import find_inventory
from rmtbase.models.layouts._sites import NORM_FIELDS, Inventory, Norm, Site

Seen = dict[tuple[str, int], tuple[str, Site]]
"""By stack and layer: what stands in front of the names of its tensors, and the site with its norms."""


def inventories(model: torch.nn.Module) -> tuple[Inventory, Inventory]:
    """Inventory that the table reads of a model, and inventory from its forward pass, both with the names on disk."""
    disk = revert_weight_conversion(model, dict(model.state_dict()))
    tensors = {name: tensor for name, tensor in disk.items() if tensor.is_floating_point()}
    config = json.loads(model.config.to_json_string(use_diff=False))
    read = find_inventory(config, Checkpoint.of_tensors(tensors, "tiny"), Path("config.json"), config["model_type"])
    return read, Network.of_module(model).inventory({name: tuple(one.shape) for name, one in tensors.items()})


def tensors_of(site: Site) -> frozenset[str]:
    """Names of the tensors that a site's queries and keys are read from."""
    return frozenset(name for one in (site.query, site.key) if one is not None for name in one.tensors())


def observe(model_type: str, profile: Profile, layers: Mapping[str, str], **options: Any) -> Seen:
    """Observe the norms of a tiny model's stacks, given the names of the layers of each stack."""
    error: Exception | None = None
    for more in tiny_models.key_head_options(model_type, profile):
        try:
            read, shown = inventories(tiny_models.make_model(model_type, profile, **{**more, **options}))
            break
        except Exception as caught:
            error = error or caught
    else:
        raise error or LookupError(model_type)
    by_tensors = {tensors_of(site): site for site in shown.sites}
    seen: Seen = {}
    for site in read.sites:
        layer = layers.get(site.place.stack)
        if layer is None:
            continue
        name = next(iter(tensors_of(site)))
        prefix = name[: name.index(layer.format(site.place.layer))]
        seen[site.place] = prefix, by_tensors.get(tensors_of(site), Site(**_SIZES, place=site.place))
    return seen


_SIZES = {"n_heads": 1, "n_key_heads": 1, "d_head": 1, "d_query": 1, "d_key": 1}  # of a site that was not shown


def unrotated(model_type: str, layers: Mapping[str, str], options: Mapping[str, Any]) -> dict[str, Any]:
    """Find, by stack, the configuration key that separates layers without rotation from rotated ones: key -> kinds.

    The kinds are those that are not rotated; the key is ``"?"`` where no list of the configuration tells them apart.
    """
    met: dict[str, list[tuple[Mapping[str, Any], int, bool]]] = defaultdict(list)
    for profile in PROFILES[:2]:
        longer = replace(profile, n_layers=profile.n_layers + 3)
        config = tiny_models.make_config(model_type, longer, **options).to_dict()
        for (stack, layer), (_, site) in observe(model_type, longer, layers, **options).items():
            if site.rotated is not None:
                met[stack].append((config, layer, site.rotated > 0))
    return {stack: _kinds(each) for stack, each in met.items() if len({turned for *_, turned in each}) > 1}


_LISTS = ("layer_types", "no_rope_layers")  # with a word, or a number, for each layer


def _kinds(met: list[tuple[Mapping[str, Any], int, bool]]) -> dict[str, list[Any]]:
    for key in _LISTS:
        if all(isinstance(config.get(key), list) and layer < len(config[key]) for config, layer, _ in met):
            still, turned = ({config[key][layer] for config, layer, is_ in met if is_ is way} for way in (False, True))
            if not still & turned:
                return {key: sorted(still)}
    return {"?": []}


def describe(stack: str, layer: str, seen: Iterable[Seen]) -> dict[str, list[dict[str, Any]]]:
    """Describe the norms of one stack in the table's format; unknown norms are left out."""
    found: dict[str, list[dict[str, Any]]] = {}
    for field in NORM_FIELDS:
        observed = [
            (place[1], prefix, getattr(site, field))
            for each in seen
            for place, (prefix, site) in each.items()
            if place[0] == stack
        ]
        others = [one for one in observed if one[0] > 0]
        first = [one for one in observed if one[0] == 0]
        said = _fitting(layer, observed)
        if said is not None:
            found[field] = [said]
        elif first and others and None not in (each := [_fitting(layer, part) for part in (first, others)]):
            found[field] = [one for one in each if one is not None]
    return found


def _fitting(layer: str, observed: list[tuple[int, str, Norm | None]]) -> dict[str, Any] | None:
    """Find the pattern that gives each of these norms its names."""
    if not observed or any(norm is None for _, _, norm in observed):
        return None
    number, prefix, norm = observed[-1]
    assert norm is not None
    for place, text in ((number, "{}"), (number - 1, "{-1}"), (None, "")):
        words = {}
        for key, name in (("gain", norm.gain), ("bias", norm.bias)):
            if name is not None:
                own = name.removeprefix(prefix)
                here = layer.format(place)
                fits = place is not None and own.startswith(here)
                words[key] = layer.replace("{}", text) + own[len(here) :] if fits else own
        if all(named(words, number, prefix, norm.offset) == one for number, prefix, one in observed):
            return {**words, "offset": norm.offset} if norm.offset else words
    return None


def named(words: Mapping[str, str], layer: int, prefix: str, offset: float) -> Norm:
    """Norm of a layer, named by a pattern of the table."""

    def name(text: str | None) -> str | None:
        return None if text is None else prefix + text.replace("{}", str(layer)).replace("{-1}", str(layer - 1))

    return Norm(name(words.get("gain")), name(words.get("bias")), offset)


def deciding(model_type: str, layers: Mapping[str, str], options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a configuration that decide on norms, with the values under which they were observed."""
    reference = _norms(observe(model_type, PROFILES[0], layers, **options))
    found = {}
    for key, value in tiny_models.make_config(model_type, PROFILES[0], **options).to_dict().items():
        if key in options:
            continue
        if isinstance(value, bool) and (key.startswith("do_stable") or not UNVARIED.fullmatch(key)):
            try:
                same = _norms(observe(model_type, PROFILES[0], layers, **{**options, key: not value})) == reference
            except Exception:  # it cannot be said
                same = False
            if not same:
                found[key] = value
        elif isinstance(value, str) and "norm" in key:
            found[key] = value
    return found


def _norms(seen: Seen) -> dict[Any, Any]:
    return {
        (place, prefix): tuple(getattr(site, field) for field in NORM_FIELDS) for place, (prefix, site) in seen.items()
    }


def with_norms(content: dict[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Add what is known of the norms of its types to the table."""
    norms: dict[str, Any] = {}
    named_as: dict[str, str] = {}
    for model_type, one in content["types"].items():
        for variant, said in zip_longest(one["variants"], known.get(model_type, ())):
            for name in ("norms", "unrotated"):
                variant.pop(name, None)
            if not said:
                continue
            if said.get("unrotated"):
                variant["unrotated"] = said["unrotated"]
            names = []
            for stack in said["stacks"]:
                text = json.dumps(stack, sort_keys=True)
                if text not in named_as:
                    gains = [words.get("gain", "none") for each in stack.values() for words in each]
                    base = re.sub(r"\.weight$", "", next((gain for gain in gains if gain != "none"), "none"))
                    named_as[text] = next(
                        name for name in (base, *(f"{base} ({i})" for i in range(2, 999))) if name not in norms
                    )
                    norms[named_as[text]] = stack
                names.append(named_as[text])
            variant["norms"] = {"of": names, **({"when": said["when"]} if said["when"] else {})}
    return {**content, "norms": norms}


def norms_of(content: Mapping[str, Any], model_type: str) -> list[dict[str, Any] | None]:
    """Norms of the stacks of each variant of a type, and the options that decide on them."""
    found: list[dict[str, Any] | None] = []
    when: dict[str, Any] | None = None
    for variant in content["types"][model_type]["variants"]:
        stacks = [content["stacks"][name] for name in variant.get("stacks", ())]
        layers = {one["stack"]: content["layouts"][one["layout"]]["layer"] for one in stacks}
        turning = {one["stack"]: layers[one["stack"]] for one in stacks if "rotated" in one}
        options = {key: value for key, value in variant.get("when", {}).items() if value != "any"}
        if not stacks:
            found.append(None)
            continue
        try:
            seen = [observe(model_type, profile, layers, **options) for profile in PROFILES[:2]]
            if when is None:
                when = deciding(model_type, layers, options)
        except Exception:
            found.append(None)
            continue
        said = [describe(stack, layer, seen) for stack, layer in layers.items()]
        deciding_on = {key: value for key, value in when.items() if key not in options}
        found.append({"stacks": said, "when": deciding_on, "unrotated": unrotated(model_type, turning, options)})
    return found
