"""What a network might read: a few tokens, patches or frames of noise, by the words of its own signature."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import signature
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

_TOKENS, _BATCH = 7, 2


def possible_inputs(module: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Inputs of a module's forward, the likeliest first. Sizes are those of its configuration."""
    config: Any = getattr(module, "config", None)
    words = signature(module.forward).parameters
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    sound = next((one for name in ("audio_config", "speech_config") if (one := getattr(config, name, None))), config)
    sight = getattr(config, "vision_config", None) or config
    generator = torch.Generator().manual_seed(11)

    def noise(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    def size(of: Any, *names: str, default: int) -> int:
        found = (getattr(of, name, None) for name in names)
        return next((one for one in found if type(one) is int and one > 0), default)

    vocabulary = size(text, "vocab_size", default=32)
    tokens = 3 + torch.arange(_BATCH * _TOKENS).reshape(_BATCH, _TOKENS) % max(vocabulary // 2 - 3, 1)
    written: dict[str, Tensor] = {}
    if "input_ids" in words:
        if "decoder_input_ids" in words:
            yield {"input_ids": tokens, "decoder_input_ids": tokens[:, :-2]}
        yield {"input_ids": tokens}
        written = {"input_ids": tokens}
    decoded = {"decoder_input_ids": tokens[:, :-2]} if "decoder_input_ids" in words else {}
    given = _images(sight, noise) if sight is not None else {}
    for name, values in {
        "pixel_values": given.get("image"),
        "pixel_values_videos": given.get("video"),
        "pixel_values_images": given.get("image"),
    }.items():
        if name in words and values is not None:
            yield {name: values, **decoded}
            yield {name: values, **written}
            yield {name: given["video"]}
    if ("grid_thw" in words or "image_grid_thw" in words) and (patch := _patches(sight)):
        grid = torch.tensor([[1, 4, 4]])
        name = next(iter(words))
        yield {name: noise(16, patch), next(one for one in words if one.endswith("grid_thw")): grid}
    bins = size(sound, "num_mel_bins", "input_feat_per_channel", "feature_size", default=16)
    length = 2 * size(sound, "max_source_positions", default=32)
    samples = size(sound, "max_length", default=32)
    for name, values in (
        ("input_features", noise(_BATCH, bins, length)),
        ("input_features", noise(_BATCH, 64, bins)),
        ("input_values", noise(_BATCH, 4000)),
        ("input_values", noise(_BATCH, 1, 4000)),
        ("input_values", noise(_BATCH, samples, bins)),
    ):
        if name in words:
            yield {name: values, **decoded}
    width = size(text, "hidden_size", "d_model", "n_embd", "dim", default=0)
    for name in ("inputs_embeds", "hidden_states", "hidden_state", "x"):
        if name in words and width:
            yield {name: noise(_BATCH, _TOKENS, width)}
    if "query_embeds" in words:
        states = size(config, "encoder_hidden_size", default=width)
        yield {"query_embeds": noise(_BATCH, _TOKENS, width), "encoder_hidden_states": noise(_BATCH, 9, states)}


def _images(config: Any, noise: Any) -> dict[str, Tensor]:
    """An image, and a few frames."""
    channels = getattr(config, "num_channels", getattr(config, "in_channels", 3))
    if not isinstance(channels, int):
        return {}
    extent = getattr(config, "image_size", None)
    if isinstance(extent, dict):
        extent = (extent.get("height", 32), extent.get("width", 32))
    height, width = extent if isinstance(extent, (list, tuple)) else (extent or 32,) * 2
    frames = getattr(config, "num_frames", getattr(config, "frames_per_clip", 4))
    return {
        "image": noise(_BATCH, channels, height, width),
        "video": noise(_BATCH, frames, channels, height, width),
    }


def _patches(config: Any) -> int:
    """The size of one flattened patch, 0 where it is not known."""
    patch = getattr(config, "patch_size", None)
    channels = getattr(config, "in_channels", getattr(config, "in_chans", getattr(config, "num_channels", 3)))
    parts: tuple[Any, ...] = (channels, getattr(config, "temporal_patch_size", 1), patch, patch)
    return prod(parts) if all(isinstance(part, int) for part in parts) else 0
