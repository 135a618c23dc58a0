"""Find which maps of a type's attention have a bias, in the table's format: always, never, or depending on a flag."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import tiny_models
import torch
from tiny_models import PROFILES
from transformers.core_model_loading import revert_weight_conversion

_SYMBOLS = "qkvoac"


def biases_of(content: Mapping[str, Any], model_type: str) -> list[dict[str, Any]]:
    """Find the biases of each variant's own stacks: symbols -> true, false, or the key that decides.

    A symbol is left out if some layers have a bias and others none, or if two flags decide.
    """
    found = []
    for variant in content["types"][model_type]["variants"]:
        stacks = [content["stacks"][name] for name in variant.get("stacks", ())]
        layouts = {one["stack"]: content["layouts"][one["layout"]] for one in stacks}
        options = {key: value for key, value in variant.get("when", {}).items() if value != "any"}
        try:
            plain = _names(model_type, options) if stacks else set()
        except Exception:  # no model of these sizes can be built
            found.append({})
            continue
        config = tiny_models.make_config(model_type, PROFILES[0], **options).to_dict() if stacks else {}
        flags = [
            key for key, value in config.items() if isinstance(value, bool) and "bias" in key and key not in options
        ]
        turned = {}
        for key in (one for one in flags if one not in options):
            try:
                turned[key] = _names(model_type, {**options, key: not config[key]})
            except Exception:
                continue
        said = {}
        for stack, layout in layouts.items():
            of_stack: dict[Any, list[str]] = {}
            for symbol in _SYMBOLS:
                present = _has(symbol, layout, plain)
                other = {key: _has(symbol, layout, names) for key, names in turned.items()}
                moving = [key for key, one in other.items() if one != present]
                if present is None or None in other.values() or len(moving) > 1:
                    continue
                if not moving:
                    of_stack.setdefault(present, []).append(symbol)
                elif present == config[moving[0]]:
                    of_stack.setdefault(moving[0], []).append(symbol)
            said[stack] = {" ".join(symbols): key for key, symbols in of_stack.items()}
        found.append(said)
    return found


def with_biases(content: dict[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Add what is known of the biases of some types to the table; the other types keep theirs."""
    for model_type, variants in known.items():
        one = content["types"].get(model_type, {"variants": []})
        for variant, found in zip(one["variants"], variants, strict=False):
            variant.pop("biases", None)
            if found:
                variant["biases"] = found
            keys = {key for each in found.values() for key in each.values() if isinstance(key, str)}
            default = tiny_models.config_class(model_type)
            one["defaults"] |= {
                key: value for key in sorted(keys) if isinstance(value := getattr(default, key, None), bool)
            }
    return content


def _names(model_type: str, options: Mapping[str, Any]) -> set[str]:
    """Names on disk of a tiny model's tensors; the tensors have no values."""
    first: Exception | None = None
    for more in tiny_models.key_head_options(model_type, PROFILES[0]):
        config = tiny_models.make_config(model_type, PROFILES[0], **{**more, **options})
        for of in tiny_models.model_classes(model_type):
            try:
                with torch.device("meta"):
                    model = of(config)
                return set(revert_weight_conversion(model, dict(model.state_dict())))
            except Exception as error:
                first = first or error
    raise first or LookupError(model_type)


def _has(symbol: str, layout: Mapping[str, Any], names: Iterable[str]) -> bool | None:
    """Return True if the maps that hold a symbol's rows have a bias, False if not, None if only some have one."""
    tensors = [
        tensor for tensor, rows in layout["tensors"].items() if symbol in re.findall(r"\b[a-z]+\b", rows.split("<")[0])
    ]
    found = set()
    held = set(names)
    for tensor in tensors:
        pattern = re.compile(r"(.*\.)?" + re.escape(layout["layer"] + tensor).replace(re.escape("{}"), r"\d+"))
        found |= {name.removesuffix("weight") + "bias" in held for name in held if pattern.fullmatch(name)}
    return found.pop() if len(found) == 1 else None
