"""Infer the configuration keys that give the sizes of a model, from tiny models of several sizes.

A key is stated only where those models leave a single possibility.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import tiny_models
from attention_trace import Refused
from observe_attention import Group, Probe, probe
from tiny_models import PROFILES, key_head_options, make_model

from rmtbase.models.layouts._layout_table import kinds_of_layers

# What gives each size, in the words that configurations usually have for it: the first that fits is taken.
_WORDS: Mapping[str, str] = {
    "n_layers": "n_layer n_layers num_layers num_hidden_layers encoder_layers decoder_layers num_encoder_layers "
    "num_decoder_layers encoder_num_hidden_layers decoder_num_hidden_layers depth num_blocks num_hidden_groups",
    "n_heads": "n_head n_heads num_heads num_attention_heads encoder_attention_heads decoder_attention_heads "
    "attention_heads num_encoder_attention_heads num_decoder_attention_heads encoder_num_attention_heads "
    "decoder_num_attention_heads encoder_num_heads decoder_num_heads",
    "n_key_heads": "num_key_value_heads num_kv_heads n_head_kv n_kv_heads encoder_num_key_value_heads "
    "decoder_num_key_value_heads",
    "d_head": "head_dim d_kv kv_channels attention_head_dim attention_head_size",
    "d_model": "n_embd d_model hidden_size dim embed_dim n_embed model_dim width emb_dim hidden_dim",
    "d_mlp": "n_inner d_ff ffn_dim intermediate_size encoder_ffn_dim decoder_ffn_dim mlp_dim ffn_hidden_size "
    "hidden_dim encoder_intermediate_size decoder_intermediate_size intermediate_dim feed_forward_dim",
    "d_value": "v_head_dim value_head_dim",
    "d_latent": "kv_lora_rank",
    "d_rotary": "qk_rope_head_dim",
    "d_query_latent": "q_lora_rank",
}
_LAYERS = ("num_hidden_layers", *_WORDS["n_layers"].split())
_SCALES = ("query_pre_attn_scalar^-0.5", "attention_multiplier", "d_head^-0.5", "d_model^-0.5", "1")
_WITHOUT_SCALE = (
    *("bloom", "deepseek_ocr2_sam_vision_model", "eomt", "eomt_dinov3", "falcon", "flint", "got_ocr2_vision"),
    *("gpt_neox_japanese", "gpt_oss", "hy_v4", "layoutlmv3", "openai_privacy_filter", "pp_formulanet_vision"),
    *("sam_hq_vision_model", "sam_vision_model", "slanext_vision", "unlimited_ocr_sam_vision_model"),
    *("videoprism_text_model", "vits"),
)
OWN_SCALES = {
    **dict.fromkeys(_WITHOUT_SCALE, "d_head^-0.5"),
    **dict.fromkeys(("deberta", "deberta-v2"), "d_head^-0.5 * 1+pos_att_type else 1^-0.5"),
    "falcon_h1": "d_head^-0.5 * key_multiplier else 1",
    "hyperclovax": "attention_multiplier or d_head^-0.5",
    "mpt": "attn_config.softmax_scale or d_head^-0.5",
    **dict.fromkeys(("muse_glimmer_text", "muse_spark_text"), "d_head^-0.5 * qk_scale_factor"),
    "sew-d": "d_head^-0.5 * 1+pos_att_type else 3^-0.5",
}
"""Scales that no tiny model shows, as their scores have further terms or the key is empty; see ``prove_scales``."""
_ROTATED = ("d_head * partial_rotary_factor", "d_head * rotary_pct", "rotary_dim", "qk_rope_head_dim", "d_head")


def keys_of(name: str, stack: str, observed: list[tuple[Mapping[str, Any], int]]) -> list[str]:
    """Keys of the configuration that may give a size: those whose value equals it in every observed model."""
    words = _WORDS[name].split()
    other = {"encoder": "decoder", "decoder": "encoder", "cross": "encoder"}.get(stack, "")
    found = [key for key in words if all(value is not None and config.get(key) == value for config, value in observed)]
    plain = [key for key in found if not (other and re.match(rf"(num_)?{other}", key))]
    own = [key for key in plain if stack and ("decoder" if stack == "cross" else stack) in key]
    return own or plain or found


def probes(model_type: str, beside: Iterable[str] = (), **options: Any) -> list[Probe]:
    """Tiny models of the type with each set of sizes that can be built; nothing of the parts that are ``beside``."""
    found, errors = [], []
    for profile in PROFILES:
        if len(found) == 2:
            break
        for more in key_head_options(model_type, profile):
            try:
                found.append(probe(make_model(model_type, profile, **{**more, **options}), beside))
                break
            except Exception as error:
                errors.append(
                    error if isinstance(error, Refused) else Refused(f"{type(error).__name__}: {str(error)[:150]}")
                )
    if len(found) < 2:
        raise errors[0]
    return found


def infer(model_type: str, beside: Iterable[str] = (), **options: Any) -> list[dict[str, Any]]:
    """Infer the stacks of a type, as the table describes them."""
    seen = probes(model_type, beside, **options)
    for one in seen:
        if one.unresolved:
            raise Refused("; ".join(dict.fromkeys(one.unresolved)))
    first = seen[0].groups
    if not first:
        raise Refused("no attention was seen")
    stacks = []
    for group in first:
        same = []
        for one in seen:
            alike = [other for other in one.groups if (other.layer, _core(other)) == (group.layer, _core(group))]
            if len(alike) != 1:
                raise Refused(f"{group.layer} is laid out otherwise with other sizes")
            same.append((one.config, alike[0]))
        stacks.append(entry(model_type, _stack_name(group, first), same, options))
    names = [one["stack"] for one in stacks]
    if len(set(names)) < len(names):
        raise Refused(f"several stacks of one kind: {', '.join(one.layer for one in first)}")
    return stacks


def _core(group: Group) -> tuple[Any, ...]:
    return tuple(
        sorted((name, text) for name, text in group.tensors.items() if set(text.split()) & set("qkv") or "(" in text)
    )


def _stack_name(group: Group, groups: list[Group]) -> str:
    if group.crossed:
        return "cross"
    if sum(not one.crossed for one in groups) == 1:
        return ""
    words = {
        "encoder": "encoder",
        "decoder": "decoder",
        "text": "text",
        "visi": "vision",
        "image": "vision",
        "audio": "audio",
    }
    found = {name for word, name in words.items() if word in group.layer}
    if len(found) != 1:
        raise Refused(f"several stacks, one of them {group.layer}")
    return found.pop()


def entry(
    model_type: str, stack: str, same: list[tuple[Mapping[str, Any], Group]], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Describe a stack in the table's format, from models with these options."""
    seen = _Seen(model_type, *same[0], options)
    groups = [group for _, group in same]
    sizes: dict[str, str] = {}

    def observed(name: str) -> list[tuple[Mapping[str, Any], Any]]:
        return [(config, group.sizes.get(name)) for config, group in same]

    def choose(name: str, values: list[tuple[Mapping[str, Any], Any]]) -> str | None:
        keys = keys_of(name, stack, values)
        if len(keys) > 1:
            keys = [key for key in keys if seen.moves(key, name)] or keys
        return keys[0] if len(keys) == 1 else None

    kinds = _attending(same)
    layers = [(config, max(group.layers) + 1) for config, group in same]
    if not kinds and any(sorted(group.layers) != list(range(len(group.layers))) for group in groups):
        raise Refused("which layers attend is not plain from the configuration")
    for key in kinds:
        lists = [config[key] for config, _ in same]
        if all(isinstance(one, list) and isinstance(one[0], str) for one in lists):
            layers = [(config, len(one)) for (config, _), one in zip(same, lists, strict=True)]
    for name in ("n_layers", "n_heads"):
        key = choose(name, layers if name == "n_layers" else observed(name))
        if key is None and name == "n_layers" and all(name not in config for config, _ in same for name in _LAYERS):
            sizes[name] = f"{_LAYERS[0]} else {next(iter(kinds))}"  # as many as there are kinds
            continue
        if key is None:
            raise Refused(
                f"what gives {name} is not plain: {[v for _, v in (layers if name == 'n_layers' else observed(name))]}"
            )
        sizes[name] = _with_aliases(model_type, key)
        if name == "n_layers" and "decoder" in key:
            sizes[name] += seen.layers_without(key)
    heads = sizes["n_heads"].split(" or ")[0]
    width = choose("d_model", observed("d_query"))
    if width:
        sizes["d_model"] = _with_aliases(model_type, width)
        if seen.obeys("n_embed", "d_model"):
            sizes["d_model"] = f"n_embed or {sizes['d_model']}"
    if any(value != group.sizes["n_heads"] for (_, value), group in zip(observed("n_key_heads"), groups, strict=True)):
        if all(value == 1 for _, value in observed("n_key_heads")):
            sizes["n_key_heads"] = "1"
        else:
            key = choose("n_key_heads", observed("n_key_heads"))
            if key is None:
                raise Refused("what gives the number of key heads is not plain")
            sizes["n_key_heads"] = f"{_with_aliases(model_type, key)} else {heads}"
    for name in ("d_rotary", "d_latent", "d_query_latent"):
        if groups[0].sizes.get(name):
            key = choose(name, observed(name))
            if key is None:
                raise Refused(f"what gives {name} is not plain")
            sizes[name] = key
    ratio = bool(width) and all(
        group.sizes["d_head"] * group.sizes["n_heads"] == config.get(width) for config, group in same
    )
    even = width and same[0][0][width] // groups[0].sizes["n_heads"]
    key = choose("d_head", observed("d_head"))
    if any(group.sizes["d_head"] is None for group in groups):
        raise Refused("the size of a head changes from layer to layer")
    if key and "d_rotary" not in sizes:
        sizes["d_head"] = _with_aliases(model_type, key)
        if width and even in (seen.measured("d_head", {key: empty}) for empty in (None, ...)):
            sizes["d_head"] += f" else {width} / {heads}"
    elif ratio:
        sizes["d_head"] = f"{width} / {heads}"
        if seen.obeys("head_dim", "d_head"):
            sizes["d_head"] = f"head_dim else {width} / {heads}"
    elif "d_rotary" in sizes and all(
        group.sizes["d_head"] == config.get("qk_nope_head_dim", 0) + config.get("qk_rope_head_dim", 0)
        for config, group in same
    ):
        sizes["d_head"] = "qk_nope_head_dim + qk_rope_head_dim"
    else:
        raise Refused(f"what gives the size of a head is not plain: {[v for _, v in observed('d_head')]}")
    values = observed("d_value")
    if any(
        value is not None and value != group.sizes["d_head"] for (_, value), group in zip(values, groups, strict=True)
    ):
        key = choose("d_value", values)
        if key is None:
            raise Refused("what gives the size of a head's values is not plain")
        sizes["d_value"] = key
    tensors = dict(groups[0].tensors)
    if any({"up", "gate"} & set(text.split()) for text in tensors.values()):
        key = choose("d_mlp", observed("d_mlp"))
        if key is not None and all(group.sizes.get("d_mlp") for group in groups):
            sizes["d_mlp"] = _with_aliases(model_type, key)
            if width and seen.measured("d_mlp", {key: None}) == 4 * same[0][0][width]:
                sizes["d_mlp"] += f" else 4 * {width}"
        elif width and (times := _multiple(same, width)):
            sizes["d_mlp"] = f"{times} * {width}"
        else:
            tensors = {name: text for name, text in tensors.items() if not {"up", "gate", "down"} & set(text.split())}
    norms = {name: size for group in groups for name, size in group.norms.items()}
    for group in groups:
        norms = {name: size if group.norms.get(name, size) == size else None for name, size in norms.items()}
    found: dict[str, Any] = {
        "stack": stack,
        "layout": {
            "layer": groups[0].layer,
            "tensors": dict(sorted(tensors.items(), key=lambda item: _ORDER.index(item[1].split()[0].strip("(4")))),
            "norms": dict(sorted(norms.items())),
            "beside": sorted({name for group in groups for name in group.beside}),
        },
        "sizes": sizes,
    }
    if kinds:
        found["attends"] = kinds
    if any(group.sizes.get("mixed") for group in groups):
        found["mixed"] = True
    scale = OWN_SCALES.get(model_type) or next((text for text in _SCALES if _is_scale(text, same, width)), None)
    if scale:
        found["scale"] = scale
    rotated = observed("rotated")
    if any(value for _, value in rotated):
        found["rotated"] = rotation(same)
    return found


_ORDER = ["a", "q", "k", "c", "v", "n", "o", "gate", "up", "down"]


def _multiple(same: list[tuple[Mapping[str, Any], Group]], width: str) -> int | None:
    times = {(group.sizes.get("d_mlp") or 0.5) / config[width] for config, group in same}
    return int(times.pop()) if len(times) == 1 and next(iter(times)).is_integer() else None


def _number(text: str, config: Mapping[str, Any], group: Group, width: str | None) -> float | None:
    total = 1.0
    for term in text.split(" * "):
        name, root, _ = term.partition("^-0.5")
        parameters = config.get("rope_parameters")
        inner = parameters.get(name) if isinstance(parameters, Mapping) else None
        value = {"d_head": group.sizes["d_head"], "d_model": config.get(width or ""), "1": 1}.get(
            name, config.get(name) if inner is None else inner
        )
        if not isinstance(value, (int, float)) or value <= 0:
            return None
        total *= value**-0.5 if root else value
    return total


def _is_scale(text: str, same: list[tuple[Mapping[str, Any], Group]], width: str | None) -> bool:
    for config, group in same:
        value, seen = _number(text, config, group, width), group.sizes.get("scale")
        if value is None or seen is None or abs(value - seen) > 1e-5 * abs(seen):
            return False
    return True


def rotation(same: list[tuple[Mapping[str, Any], Group]]) -> str:
    """Expression that gives the number of rotated dimensions of a head; ``"?"`` if none does."""
    return next((text for text in _ROTATED if _is_rotated(text, same)), "?")


def _is_rotated(text: str, same: list[tuple[Mapping[str, Any], Group]]) -> bool:
    for config, group in same:
        value, seen = _number(text, config, group, None), group.sizes.get("rotated")
        if seen is not None and (value is None or int(value) != seen):
            return False
    return True


def _attending(same: list[tuple[Mapping[str, Any], Group]]) -> dict[str, list[str]]:
    """Key that gives the kinds of layers, with the kinds that attend; empty if every layer attends."""
    if all(sorted(group.layers) == list(range(len(group.layers))) for _, group in same):
        one, group = same[0]
        if not any(isinstance(one.get(key), list) and len(one[key]) > len(group.layers) for key in _KINDS):
            return {}
    for key in _KINDS:
        kinds: set[str] = set()
        others: set[str] = set()
        for config, group in same:
            said = kinds_of_layers(config, key, max(group.layers) + 1)
            if not isinstance(said, list) or max(group.layers) >= len(said):
                break
            kinds |= {said[layer] for layer in group.layers}
            others |= {said[layer] for layer in range(len(said)) if layer not in group.layers}
        else:
            if not kinds & others:
                return {key: sorted(kinds)}
    return {}


_KINDS = ("layer_types", "layers_block_type", "block_types", "attn_layer_indices", "attn_layer_period")


def _with_aliases(model_type: str, key: str) -> str:
    """Join the key with the other names under which a configuration of the type may have it."""
    mapped = getattr(tiny_models.config_class(model_type), "attribute_map", {})
    return " or ".join([key, *(name for name, target in mapped.items() if target == key)])


@dataclass(frozen=True)
class _Seen:
    """A stack of a tiny model, and what other options of the configuration make of it."""

    model_type: str
    config: Mapping[str, Any]
    group: Group
    options: Mapping[str, Any]

    def measured(self, name: str, others: Mapping[str, Any]) -> int | None:
        """Measure a size of the stack with other options; None if no model can be built or it has no such stack."""
        other = Probe({})
        for more in key_head_options(self.model_type, PROFILES[0]):
            try:
                other = probe(make_model(self.model_type, PROFILES[0], **{**more, **self.options, **others}))
                break
            except Exception:
                continue
        mine = (self.group.layer, _core(self.group))
        alike = [one for one in other.groups if (one.layer, _core(one)) == mine]
        if len(alike) != 1:
            return None
        return max(alike[0].layers) + 1 if name == "n_layers" else alike[0].sizes.get(_MEASURED.get(name, name))

    def moves(self, key: str, name: str) -> bool:
        """Return True if doubling the value at this key doubles this size of the stack."""
        return self.measured(name, {key: self.config[key] * 2}) == self.config[key] * 2

    def obeys(self, key: str, name: str) -> bool:
        """Return True if the class takes the size from a key that is not in its own configuration."""
        value = 2 * self.group.sizes[_MEASURED.get(name, name)]
        return key not in self.config and self.measured(name, {key: value}) == value

    def layers_without(self, key: str) -> str:
        """Write, in the table's format, the key that gives the number of layers if this one is empty."""
        found = self.measured("n_layers", {key: None})
        words = [word for word in _LAYERS if word != key and found is not None and self.config.get(word) == found]
        return f" else {words[0]}" if len(words) == 1 else ""


_MEASURED = {"d_model": "d_query"}  # a size -> under which name it is measured
