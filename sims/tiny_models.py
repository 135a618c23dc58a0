"""A tiny random model of every model type that the installed ``transformers`` knows, and something for it to read.

Sizes differ pairwise, so that a wrong split or a size taken from the wrong key cannot pass: heads, key heads, the size
of a head, the width of the residual stream and of the MLP, and the layers of every stack. Two sets of sizes
(:data:`PROFILES`) tell apart what one of them leaves open.
"""

from __future__ import annotations

import importlib
import inspect
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
import transformers
from tiny_options import own_options
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES, model_type_to_module_name
from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

POSITIONS = 12
"""Tokens of a text that a tiny model reads."""


@dataclass(frozen=True)
class Profile:
    """The sizes of one tiny model."""

    n_layers: int
    n_heads: int
    n_key_heads: int
    d_head: int
    d_model: int
    d_mlp: int
    vocab: int

    @property
    def n_decoder_layers(self) -> int:
        """Number of layers of a decoder beside an encoder."""
        return self.n_layers + 1

    @property
    def n_decoder_heads(self) -> int:
        """Number of heads of a decoder beside an encoder."""
        return 2 * self.n_heads

    @property
    def d_decoder_mlp(self) -> int:
        """Width of the MLP of a decoder beside an encoder."""
        return self.d_mlp + 4

    @property
    def d_expert(self) -> int:
        """Width of the MLP of each expert."""
        return self.d_mlp - 4

    def nested(self, place: int) -> Profile:
        """Sizes of a part of the model, all different from the model's own."""
        return Profile(
            self.n_layers + place,
            self.n_heads,
            self.n_key_heads,
            self.d_head + 8 * place,
            self.d_model + self.n_heads * 8 * place,
            self.d_mlp + 20 * place,
            self.vocab + place,
        )


PROFILES = (
    Profile(n_layers=2, n_heads=4, n_key_heads=2, d_head=24, d_model=64, d_mlp=72, vocab=120),
    Profile(n_layers=3, n_heads=8, n_key_heads=4, d_head=32, d_model=192, d_mlp=88, vocab=130),
    Profile(n_layers=5, n_heads=8, n_key_heads=2, d_head=48, d_model=320, d_mlp=104, vocab=140),
)

_WORDS = {
    "n_layers": "num_hidden_layers n_layer n_layers num_layers encoder_layers num_encoder_layers depth e_layers "
    "num_key_value_layers num_blocks",
    "n_decoder_layers": "decoder_layers num_decoder_layers decoder_num_hidden_layers d_layers",
    "n_heads": "num_attention_heads n_head n_heads num_heads encoder_attention_heads attention_heads "
    "num_encoder_attention_heads encoder_num_attention_heads encoder_num_heads",
    "n_decoder_heads": "decoder_attention_heads num_decoder_attention_heads decoder_num_attention_heads "
    "decoder_num_heads",
    "n_key_heads": "num_key_value_heads num_kv_heads n_head_kv multi_query_group_num encoder_num_key_value_heads "
    "decoder_num_key_value_heads n_kv_heads num_global_key_value_heads",
    "d_head": "head_dim kv_channels attention_head_size d_kv attention_head_dim hidden_size_per_head",
    "d_model": "hidden_size n_embd d_model dim embed_dim n_embed model_dim width projection_dim encoder_hidden_size "
    "decoder_hidden_size out_hidden_size hidden_dim embedding_size word_embed_proj_dim emb_dim",
    "d_mlp": "intermediate_size ffn_dim d_ff n_inner encoder_ffn_dim mlp_dim ffn_hidden_size intermediate_dim "
    "feed_forward_dim encoder_intermediate_size",
    "d_decoder_mlp": "decoder_ffn_dim decoder_intermediate_size",
    "d_expert": "moe_intermediate_size shared_expert_intermediate_size expert_ffn_hidden_size",
    "vocab": "vocab_size encoder_vocab_size decoder_vocab_size",
}
_SIZES = {word: size for size, words in _WORDS.items() for word in words.split()}
_OFTEN_NONE = (
    "head_dim",
    "num_key_value_heads",
    "n_inner",
    "intermediate_size",
    "ffn_hidden_size",
    "moe_intermediate_size",
)
_LEFT_OUT = re.compile(
    r"id2label|label2id|transformers_version|architectures|dtype|_name_or_path|out_features|out_indices|stage_names|"
    r"per_layer_config|num_labels|attention_layers"
)
_MORE_KINDS: Mapping[str, tuple[str, ...]] = {"lfm2": ("full_attention", "conv")}
"""Kinds of layers that a type may have and that its default configuration does not show."""
_CONSTANTS: Mapping[str, Any] = {
    "max_position_embeddings": 64,
    "n_positions": 64,
    "n_ctx": 64,
    "max_sequence_length": 64,
    "image_size": 32,
    "patch_size": 8,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "moe_num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_k": 2,
    "moe_topk": 2,
    "n_group": 1,
    "topk_group": 1,
    "n_shared_experts": 1,
    "num_experts_per_token": 2,
    "num_expert_group": 1,
    "zero_expert_num": 1,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 20,
    "q_lora_rank": 28,
    "qk_rope_head_dim": 6,
    "qk_nope_head_dim": 8,
    "qk_head_dim": 14,
    "v_head_dim": 12,
    "num_mel_bins": 16,
    "feature_size": 16,
    "mamba_d_state": 8,
    "attention_window": 4,
    "num_nextn_predict_layers": 0,
    "layerdrop": 0.0,
    "attn_logit_softcapping": None,
    "max_source_positions": 24,
    "rotary_dim": 6,
    "attention_multiplier": 0.3,
    "query_pre_attn_scalar": 27,
    "key_multiplier": 0.37,
    "qk_scale_factor": 2.5,
    "max_target_positions": 64,
    "prediction_length": 6,
    "mamba_n_heads": 8,
    "mamba_d_head": "auto",
    "context_size": 16,
    "num_queries": 7,
    "num_query_tokens": 7,
}


def sized(config: Mapping[str, Any], profile: Profile) -> dict[str, Any]:
    """Set the sizes of a default configuration to those of the profile; its parts get sizes of their own."""
    own = own_options(str(config.get("model_type")), profile)
    new: dict[str, Any] = {}
    place = 0
    if "kv_lora_rank" in config:  # latent attention has neither key heads of its own nor one size of a head
        config = {key: value for key, value in config.items() if key not in ("head_dim", "qk_head_dim")}
        profile = replace(profile, n_key_heads=profile.n_heads)
    for key, value in config.items():
        if _LEFT_OUT.fullmatch(key):
            continue
        if isinstance(value, Mapping) and "model_type" in value:
            place += 1
            new[key] = sized(value, profile.nested(place))
        elif key in _SIZES and (type(value) is int or (value is None and key in _OFTEN_NONE)):
            new[key] = getattr(profile, _SIZES[key])
        elif key == "attention_types" and isinstance(value, list):
            new[key] = [[["global"], profile.n_layers]]
        elif key == "d_head" and type(value) is int:
            new[key] = profile.d_model // profile.n_heads
        elif key in _SIZES and isinstance(value, (list, tuple)) and len(value) > 8:  # one for each layer
            new[key] = [getattr(profile, _SIZES[key])] * profile.n_layers
        elif key in _CONSTANTS and value is not None:
            new[key] = _CONSTANTS[key] if not isinstance(value, (list, tuple)) else [_CONSTANTS[key]] * len(value)
        elif key.endswith(("token_id", "token_index")) and type(value) is int:
            new[key] = min(value, 100 + len(new) % 19)
        elif key in ("layer_types", "mlp_layer_types", "layers_block_type", "block_types") and isinstance(value, list):
            kinds = list(dict.fromkeys([*_MORE_KINDS.get(str(config.get("model_type")), ()), *value]))
            if profile.n_layers % 2 and key != "mlp_layer_types":  # so that layer 0 attends in one of two models
                kinds.reverse()
            new[key] = [kinds[layer % len(kinds)] for layer in range(profile.n_layers)]
        elif isinstance(value, list) and len(value) > 8 and len(value) == config.get("num_hidden_layers"):
            new[key] = [value[layer % len(value)] for layer in range(profile.n_layers)]
        elif key == "rope_parameters" and isinstance(value, Mapping):
            said = "head_dim" in config and "kv_lora_rank" not in config
            new[key] = _rope(value, profile.d_head if said else profile.d_model // profile.n_heads)
        else:
            new[key] = value
    return merged(new, own)


def _rope(value: Mapping[str, Any], d_head: int) -> dict[str, Any]:
    if any(isinstance(one, Mapping) for one in value.values()):
        return {key: _rope(one, d_head) if isinstance(one, Mapping) else one for key, one in value.items()}
    kept = {key: one for key, one in value.items() if key in ("rope_theta", "partial_rotary_factor")}
    return {"rope_type": "default", "rope_theta": 10000.0, **kept, "mrope_section": _sections(kept, d_head)}


def _sections(rotary: Mapping[str, Any], d_head: int) -> list[int]:
    """Count the pairs of rotated dimensions that turn by time, height and width."""
    return [int(d_head * rotary.get("partial_rotary_factor", 1.0)) // 2 - 2, 1, 1]


def config_class(model_type: str) -> type[transformers.PreTrainedConfig]:
    """Return the configuration class of the type."""
    return CONFIG_MAPPING[model_type]


@cache
def default_config(model_type: str) -> Mapping[str, Any]:
    """Values of the configuration class when nothing is given."""
    return config_class(model_type)().to_dict()


def make_config(model_type: str, profile: Profile, **options: Any) -> transformers.PreTrainedConfig:
    """Make the configuration of a tiny model of the type; ``options`` of a part as ``{"text_config": {...}}``."""
    cls = config_class(model_type)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        values = sized(default_config(model_type), profile)
        values.pop("model_type", None)
        if type(options.get("head_dim")) is int and "mrope_section" in values.get("rope_parameters", {}):
            rotary = values["rope_parameters"]
            values["rope_parameters"] = rotary | {"mrope_section": _sections(rotary, options["head_dim"])}
        decoder = {"is_decoder": True} if options.get("add_cross_attention") else {}
        config = cls(**merged(values, {**decoder, **options}))
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    return config


def merged(values: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Replace values by options, those of parts too; a key whose option is ``...`` is left to the class."""
    new = dict(values)
    for key, value in options.items():
        part = isinstance(value, Mapping) and "model_type" not in value
        new[key] = merged(new.get(key) or {}, value) if part else value
    return {key: value for key, value in new.items() if value is not ...}


def key_head_options(model_type: str, profile: Profile) -> list[dict[str, int]]:
    """Options with fewer key heads than heads first, then with as many."""
    try:
        defaults = default_config(model_type)
    except Exception:  # the defaults of the class do not pass its own checks
        return [{}]
    held = [key for key in ("num_key_value_heads", "num_kv_heads") if key in defaults]
    return [{}, dict.fromkeys(held, profile.n_heads)] if held else [{}]


_HEADS = (
    *("PRETRAINING", "SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ", "IMAGE_TEXT_TO_TEXT", "MULTIMODAL_LM", "CAUSAL_LM"),
    *("MASKED_LM", "CTC", "OBJECT_DETECTION", "UNIVERSAL_SEGMENTATION", "IMAGE_CLASSIFICATION", "AUDIO_CLASSIFICATION"),
)
"""Kinds of heads, those first with which most checkpoints of a type are saved."""


@cache
def _by_head() -> list[Mapping[str, Any]]:
    named = {
        name: one for name, one in vars(modeling_auto).items() if re.fullmatch(r"MODEL_FOR_\w+_MAPPING_NAMES", name)
    }
    first = [f"MODEL_FOR_{head}_MAPPING_NAMES" for head in _HEADS]
    return [named[name] for name in (*first, *sorted({*named} - {*first}))]


def saved_classes(model_type: str) -> list[type]:
    """Classes whose folders users have: that of AutoModel, and the first with a head; none for a mere part."""
    named: dict[str, None] = {}
    for mapping in ([MODEL_MAPPING_NAMES], _by_head()):
        held = next((one[model_type] for one in mapping if model_type in one), ())
        named |= dict.fromkeys([held] if isinstance(held, str) else held[:1])
    return [getattr(transformers, name) for name in named if hasattr(transformers, name)]


def model_classes(model_type: str) -> list[type]:
    """Classes that a configuration of the type makes: those that are saved or, for a part, those of its module."""
    found = saved_classes(model_type)
    if found:
        return found
    config_class = CONFIG_MAPPING[model_type]
    try:
        module = importlib.import_module(config_class.__module__.replace("configuration_", "modeling_"))
    except ModuleNotFoundError:  # its models are those of another type
        return []
    for _, one in inspect.getmembers(module, inspect.isclass):
        base = issubclass(one, transformers.PreTrainedModel) and one.__module__ == module.__name__
        if base and one.config_class is config_class and "PreTrainedModel" not in one.__name__ and one not in found:
            found.append(one)
    return found


def make_model(
    model_type: str, profile: Profile = PROFILES[0], of: type | None = None, **options: Any
) -> torch.nn.Module:
    """Make a tiny model of the type in float64 with random weights; all biases, also of relative positions, are zero.

    The class is ``of``, or else the first class of the type that can be built.
    """
    config = make_config(model_type, profile, **options)
    classes = [of] if of is not None else model_classes(model_type)
    if not classes:
        raise LookupError("no model class")
    error: Exception | None = None
    for one in classes:
        try:
            return _randomised(one(config))
        except Exception as caught:  # another class of the type may do
            error = error or caught
    raise error  # type: ignore[misc]  # one was caught


def _randomised(model: torch.nn.Module) -> torch.nn.Module:
    model = model.double().eval()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "relative" in name and "bias" in name:
                parameter.zero_()
            elif parameter.ndim >= 2:
                noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                parameter.copy_(noise if "embed" in name else noise / parameter.shape[-1] ** 0.5)
            elif "norm" not in name.lower() and not name.endswith("weight"):
                parameter.zero_()
    return model


def inputs(model: torch.nn.Module) -> Iterator[dict[str, torch.Tensor]]:
    """Yield inputs that the model might accept, the likeliest first."""
    generator = torch.Generator().manual_seed(11)
    config = model.config
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    tokens = torch.randint(3, 90, (1, POSITIONS), generator=generator)
    forward = inspect.signature(model.forward).parameters

    def noise(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    if getattr(config, "add_cross_attention", False) and "encoder_hidden_states" in forward:
        width = getattr(config, "cross_attention_hidden_size", None) or getattr(config, "hidden_size", 64)
        yield {"input_ids": tokens, "encoder_hidden_states": noise(1, 9, width)}
    if "input_ids" in forward:
        if "decoder_input_ids" in forward:
            yield {"input_ids": tokens, "decoder_input_ids": tokens[:, : POSITIONS - 3]}
        yield {"input_ids": tokens}
    if "pixel_values" in forward:
        vision = getattr(config, "vision_config", None) or config
        size, channels = getattr(vision, "image_size", 32), getattr(vision, "num_channels", 3)
        height, width = size if isinstance(size, (list, tuple)) else (size, size)
        images = noise(1, channels, height, width)
        if "input_ids" in forward:
            yield {"input_ids": tokens, "pixel_values": images}
        if "decoder_input_ids" in forward:
            yield {"pixel_values": images, "decoder_input_ids": tokens}
        yield {"pixel_values": images}
    if "pixel_values_videos" in forward:
        frames = getattr(config, "frames_per_clip", 4)
        yield {"pixel_values_videos": noise(1, frames, 3, 32, 32)}
    bins = getattr(config, "num_mel_bins", getattr(config, "input_feat_per_channel", 16))
    length = 2 * getattr(config, "max_source_positions", 32)
    for name, value in (
        ("input_features", noise(1, bins, length)),
        ("input_features", noise(1, length, bins)),
        ("input_values", noise(1, 2000)),
        ("input_values", noise(1, 1, 2000)),
        ("input_values", noise(1, getattr(config, "max_length", 32), bins)),
    ):
        if name in forward:
            if "decoder_input_ids" in forward:
                yield {name: value, "decoder_input_ids": tokens}
            yield {name: value}
    width = getattr(text, "hidden_size", getattr(text, "d_model", 48))
    for name in ("inputs_embeds", "hidden_states"):
        if name in forward:
            yield {name: noise(1, POSITIONS, width)}
    if "query_embeds" in forward:
        states = noise(1, 9, getattr(config, "encoder_hidden_size", width))
        yield {"query_embeds": noise(1, POSITIONS, width), "encoder_hidden_states": states}


def all_types() -> tuple[str, ...]:
    """Every model type of the installed ``transformers``."""
    return tuple(
        sorted(
            name
            for name in CONFIG_MAPPING_NAMES
            if name in model_type_to_module_name.__globals__["CONFIG_MAPPING_NAMES"]
        )
    )
