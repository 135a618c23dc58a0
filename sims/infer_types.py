"""Inference of a model type's entry: its variants by the flags of its configuration, and its parts."""

import re
from collections.abc import Mapping
from typing import Any

import tiny_models
import torch
from attention_trace import Refused
from infer_stacks import OWN_SCALES, infer, rotation
from observe_attention import Group, Probe, probe
from tiny_models import PROFILES, key_head_options, make_config, make_model
from transformers import PreTrainedModel

UNVARIED = re.compile(
    r"use_cache|return_dict|output_.*|tie_.*|is_encoder_decoder|scale_.*embedding.*|norm_topk_prob|.*dropout.*|"
    r"use_(weighted|mean|auxiliary|timm|pretrained|return|mems).*|do_(sample|stable).*|apply_spec_augment|gradient_.*|"
    r"ctc_.*|add_(final|pooling).*|.*loss.*|remove_invalid_values|chunk_.*|use_mamba_kernels|early_stopping|auxiliary.*|"
    r"torchscript|reorder_and_upcast_attn|trainable.*|.*pooling.*|use_labels.*|deterministic.*|encoder_only|.*bfloat16|force_.*"
)


_FLAGS = {
    "feed_forward_proj": ("relu", "gated-gelu", "gated-silu"),
    "attention_type": ("original_full", "block_sparse"),
    "position_embedding_type": ("absolute", "relative_key", "relative_key_query", "rotary", "rope"),
    "position_embeddings_type": ("relative", "rotary", "relative_key", None),
    "q_lora_rank": (None,),
    "qk_layernorm_type": ("rms", None),
    "inner_group_num": (2,),
    "hidden_act_moe": (),
}
"""Options of a configuration, besides its flags, that may change the attention: the values that are tried."""
_PARTS = {"text": "text", "language": "text", "llm": "text", "vision": "vision", "visual": "vision", "audio": "audio",
          "speech": "audio", "encoder": "encoder", "decoder": "decoder"}  # fmt: skip
_SWAPS = {
    "text": ("mistral", "llama", "qwen2", "qwen3", "gemma2", "phi3", "opt"),
    "vision": ("siglip_vision_model", "clip_vision_model", "pixtral"),
    "encoder": ("bert", "roberta", "vit", "deit"),
    "decoder": ("bert", "gpt2", "roberta", "trocr"),
}


def infer_type(model_type: str) -> dict[str, Any]:
    """Infer a type's entry in the table: its variants, and the defaults of its class."""
    parts, unread = parts_of(model_type)
    variants: list[dict[str, Any]] = []
    paths = [one.pop("path") for one in parts]
    try:
        stacks = infer(model_type, paths) if not parts else _beside(model_type, paths)
    except Refused:
        if not parts:
            raise
        stacks = []
    base = {"stacks": stacks}
    if parts:
        base["parts"] = parts
        if unread:
            base["unread"] = unread
        return {"variants": [base]}
    guards: dict[str, Any] = {}
    reference = _groups(model_type)
    default = make_config(model_type, PROFILES[0]).to_dict()
    for key, value in default.items():
        if isinstance(value, bool) and not UNVARIED.fullmatch(key):
            tried: tuple[Any, ...] = (not value,)
        elif key in _FLAGS:
            tried = tuple(one for one in _FLAGS[key] if one != value)
        else:
            continue
        alike_with = {value: reference}
        for other in tried:
            try:
                groups = _groups(model_type, **{key: other})
                if _attention(groups) == _attention(reference):
                    alike_with[other] = groups
                    for stack, group in zip(stacks, reference, strict=True):
                        alike = _as(group, groups)
                        layout = stack["layout"]
                        mlp = {name: text for name, text in alike.tensors.items() if set(text.split()) & _MLP}
                        clash = any(layout["tensors"].get(name, text) != text for name, text in mlp.items())
                        if clash or "d_mlp" not in stack["sizes"]:
                            mlp = {}
                        layout["tensors"] |= mlp
                        layout["norms"] = dict(sorted((alike.norms | layout["norms"]).items()))
                        layout["beside"] = sorted({*layout["beside"], *alike.beside})
                    continue
                guards[key] = _guard(key, value)
                variants.append({"when": {key: other}, "stacks": infer(model_type, **{key: other})})
            except Exception:
                guards[key] = _guard(key, value)
        for stack, group in zip(stacks, reference, strict=True):
            turning = [other for other, groups in alike_with.items() if _as(group, groups).sizes["rotated"]]
            if 0 < len(turning) < len(alike_with):
                stack["rotates"] = {key: turning}
                seen = make_config(model_type, PROFILES[0], **{key: turning[0]}).to_dict()
                stack.setdefault("rotated", rotation([(seen, _as(group, alike_with[turning[0]]))]))
            shown = "scale" in stack and model_type not in OWN_SCALES
            if shown and not all(_is_scaled_as(group, groups) for groups in alike_with.values()):
                stack.setdefault("scale_if", {})[key] = value
    base_when = [{"when": guards, **base}] if guards else [base]
    deciding = {one["stack"]: {key: one[key] for key in ("rotates", "scale_if") if key in one} for one in stacks}
    for one in variants:
        of_first = next(iter(deciding.values()), {})  # of stacks that are in this variant alone
        one["stacks"] = [deciding.get(stack["stack"], of_first) | stack for stack in one["stacks"]]
        one["when"] = {**guards, **one["when"]}
    return {"variants": base_when + variants}


def _guard(key: str, value: Any) -> Any:
    """Value at which a layout holds: ``"any"`` for a size whose other tested value was None."""
    return "any" if type(value) is int and None in _FLAGS.get(key, ()) else value


def _groups(model_type: str, **options: Any) -> list[Group]:
    found = Probe({})
    for more in key_head_options(model_type, PROFILES[0]):
        try:
            found = probe(make_model(model_type, PROFILES[0], **{**more, **options}))
            break
        except Refused as error:
            found.unresolved.append(str(error))
    if found.unresolved or not found.groups:
        raise Refused("; ".join(found.unresolved))
    return found.groups


def _as(group: Group, groups: list[Group]) -> Group:
    """Find the group whose attention is that of the given group."""
    return next(one for one in groups if _attention([one]) == _attention([group]))


def _is_scaled_as(group: Group, groups: list[Group]) -> bool:
    here, there = group.sizes["scale"], _as(group, groups).sizes["scale"]
    return None not in (here, there) and abs(here - there) < 1e-5 * abs(here)


def _attention(groups: list[Group]) -> set[tuple[Any, ...]]:
    """Everything that identifies the attention of each group, without the matrices of its MLP."""
    names = ("n_heads", "n_key_heads", "d_head", "d_value", "d_query", "d_key")
    return {
        (
            group.layer,
            tuple(sorted((name, text) for name, text in group.tensors.items() if not set(text.split()) & _MLP)),
            tuple(group.layers),
            tuple(group.sizes.get(name) for name in names),
        )
        for group in groups
    }


_MLP = {"up", "gate", "down"}


def _beside(model_type: str, paths: list[str]) -> list[dict[str, Any]]:
    """Infer the stacks, outside its parts, of a type with parts."""
    seen = probe(make_model(model_type), paths)
    return infer(model_type, paths) if seen.groups or seen.unresolved else []


def parts_of(model_type: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Parts of a type that are models by themselves, and the keys of the parts that the table cannot name."""
    default = tiny_models.default_config(model_type)
    keys = [key for key, value in default.items() if isinstance(value, Mapping) and "model_type" in value]
    if not keys:
        return [], []
    model = make_model(model_type)
    parts, unread = [], []
    for key in keys:
        path = _path(model, key)
        stack = next((name for word, name in _PARTS.items() if word in key), None)
        if path is None:
            continue
        own = getattr(model.config, key).model_type
        if stack is None or stack in [one["stack"] for one in parts]:
            unread.append(key)
            continue
        types = [own]
        for other in _SWAPS.get(stack, ()):
            if other != own:
                if not _swaps(model_type, key, other):
                    break
                types.append(other)
        parts.append(
            {"stack": stack, "config": key, "in": path.split(".")[-1], "type": own, "types": types, "path": path}
        )
    return parts, unread


def _path(model: torch.nn.Module, key: str) -> str | None:
    sub = getattr(model.config, key, None)
    named = (name for name, one in model.named_modules() if name and getattr(one, "config", None) is sub)
    return next((name for name in named if isinstance(model.get_submodule(name), PreTrainedModel)), None)


def _swaps(model_type: str, key: str, other: str) -> bool:
    """Return True if a part may be of another type, whose own class then takes its place."""
    values = {**tiny_models.sized(tiny_models.default_config(other), PROFILES[0].nested(1)), "model_type": other}
    try:
        model = make_model(model_type, PROFILES[0], **{key: values})
        path = _path(model, key)
        return path is not None and type(model.get_submodule(path)).config_class.model_type == other
    except Exception:
        return False
