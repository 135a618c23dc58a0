"""Possible inputs of a network: a few tokens, patches or frames of noise, by the parameter names of its forward."""

from collections.abc import Callable, Collection, Iterator, Mapping
from inspect import Parameter, signature
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

_TOKENS, _BATCH = 7, 2
_GRID = 4  # patches in height and width
_ENCODED = 9  # tokens that a decoder reads from an encoder
_LARGER = 8  # times as high and as wide, an image has several tokens where a small one has one


def possible_inputs(module: nn.Module) -> Iterator[dict[str, Any]]:
    """Yield inputs of a module's forward, the likeliest first, with sizes from its configuration."""
    words = signature(module.forward).parameters
    required = {name for name, parameter in words.items() if parameter.default is Parameter.empty}
    crossed = getattr(getattr(module, "config", None), "add_cross_attention", True)
    encoded = {"encoder_hidden_states"} & set(words if crossed else ())  # otherwise a decoder may skip cross-attention
    for may in dict.fromkeys(frozenset(names) & set(_BESIDE) for names in (required | encoded, required, words)):
        sizes = _Sizes(getattr(module, "config", None))
        for inputs in _mains(words, sizes):
            lead = next(iter(inputs.values()))
            yield inputs | {name: make(sizes, lead) for name, make in _BESIDE.items() if name in may - inputs.keys()}


class _Sizes:
    def __init__(self, config: Any) -> None:
        self.config, self.generator = config, torch.Generator().manual_seed(11)
        self.sound = getattr(config, "audio_config", None) or getattr(config, "speech_config", None) or config
        self.sight = getattr(config, "vision_config", None) or config
        try:
            self.text = config.get_text_config()
        except (AttributeError, ValueError):  # there is none, or there are several
            self.text = getattr(config, "decoder", config)

    def noise(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator, dtype=torch.float64)

    def tokens(self) -> Tensor:
        most = max(_size(self.text, "vocab_size", default=32) // 2 - 3, 1)
        return 3 + torch.arange(_BATCH * _TOKENS).reshape(_BATCH, _TOKENS) % most

    def width(self) -> int:
        return _size(self.text, "hidden_size", "d_model", "n_embd", "dim", default=0)


def _size(config: Any, *names: str, default: int) -> int:
    values = (getattr(config, name, None) for name in names)
    return next((value for value in values if type(value) is int and value > 0), default)


def _mains(words: Collection[str], sizes: _Sizes) -> Iterator[dict[str, Tensor]]:
    tokens, noise = sizes.tokens(), sizes.noise
    written: dict[str, Tensor] = {}
    if "input_ids" in words:
        if "decoder_input_ids" in words:
            yield {"input_ids": tokens, "decoder_input_ids": tokens[:, :-2]}
        yield {"input_ids": tokens}
        if (channels := _size(sizes.config, "num_channels", default=0)) > 3:  # sound codes
            yield {"input_ids": tokens[..., None].expand(-1, -1, channels)}
        written = {"input_ids": tokens}
    decoded = {"decoder_input_ids": tokens[:, :-2]} if "decoder_input_ids" in words else {}
    yield from _seen(words, sizes, written, decoded)
    for name, values in _heard(sizes):
        if name in words:
            yield {name: values, **decoded}
    if width := sizes.width():
        for name in ("inputs_embeds", "hidden_states", "hidden_state", "x", "noise_embeds", "inputs"):
            if name in words:
                yield {name: noise(_BATCH, _TOKENS, width)}
        if "patch_embeds" in words:
            yield {"patch_embeds": noise(_BATCH, width, _GRID, _GRID)}
        if "query_embeds" in words:
            states = _size(sizes.config, "encoder_hidden_size", default=width)
            yield {"query_embeds": noise(_BATCH, _TOKENS, width), "encoder_hidden_states": noise(_BATCH, 9, states)}
    for name, values in _measured(sizes):
        if name in words:
            yield {name: values}


def _seen(
    words: Collection[str], sizes: _Sizes, written: Mapping[str, Tensor], decoded: Mapping[str, Tensor]
) -> Iterator[dict[str, Tensor]]:
    sight, noise = sizes.sight, sizes.noise
    if sight is None:
        return
    images = _images(sight, noise)
    for name, values in {
        "pixel_values": images.get("image"),
        "pixel_values_videos": images.get("video"),
        "pixel_values_images": images.get("image"),
        "image": images.get("image"),
    }.items():
        if name in words and values is not None:
            yield {name: values, **decoded}
            yield {name: values, **written}
            yield {name: images["video"]}
            yield {name: values.repeat(*[1] * (values.ndim - 2), _LARGER, _LARGER), **decoded}
    patch = _patch(sight)
    if patch and ("grid_thw" in words or "image_grid_thw" in words):
        grid = next(word for word in words if word.endswith("grid_thw"))
        yield {next(iter(words)): noise(_GRID**2, prod(patch)), grid: torch.tensor([[1, _GRID, _GRID]])}
        square = patch if len(patch) == 3 else patch[:1] + patch[2:]
        yield {next(iter(words)): noise(1, _GRID**2, *square), grid: torch.tensor([[1, _GRID, _GRID]])}
        yield {next(iter(words)): noise(_GRID**2, *square), grid: torch.tensor([[1, _GRID, _GRID]])}
    if patch and "pixel_values" in words:
        yield {"pixel_values": noise(_BATCH, _GRID**2, prod(patch))}
    flat = _size(sight, "patch_embed_hidden_size", default=prod(patch) if patch else 0)
    if flat and "flattened_patches" in words:
        place = torch.arange(1.0, _GRID**2 + 1, dtype=torch.float64).expand(_BATCH, -1)
        places = torch.stack([(place + 3) // _GRID, (place - 1) % _GRID + 1], dim=-1)
        yield {"flattened_patches": torch.cat([places, noise(_BATCH, _GRID**2, flat)], dim=-1), **decoded}
    if "pixel_values" in words and "image" in images:
        (_, *image), tiles = images["image"].shape, _size(sight, "max_num_tiles", default=1)
        yield {"pixel_values": noise(_BATCH, 1, *image), **written}
        yield {"pixel_values": noise(_BATCH, 1, tiles, *image), **written}
        yield {"pixel_values": noise(_size(sight, "num_frames", default=4), *image)}
        if "prompt_pixel_values" in words:  # the model puts two images one above the other
            yield {"pixel_values": noise(_BATCH, image[0], image[1] // 2, image[2])}


def _heard(sizes: _Sizes) -> Iterator[tuple[str, Tensor]]:
    sound, noise = sizes.sound, sizes.noise
    bins = _size(sound, "num_mel_bins", "input_feat_per_channel", "feature_size", default=16)
    length = 2 * _size(sound, "max_source_positions", default=32)
    yield "input_features", noise(_BATCH, bins, length)
    yield "input_features", noise(_BATCH, 64, bins)
    yield "input_values", noise(_BATCH, 4000)
    yield "input_values", noise(_BATCH, 1, 4000)
    yield "input_values", noise(_BATCH, _size(sound, "max_length", default=32), bins)
    width = _size(sound, "feature_projection_input_dim", "input_dim", "input_size", "hidden_size", default=bins)
    yield "input_features", noise(_BATCH, 64, width)
    yield "hidden_states", noise(_BATCH, 64, width)
    yield "input_features", noise(_BATCH, 64, 128)
    yield "input_features", noise(_BATCH, 1, 64, bins)
    yield "input_features", noise(bins, 64)
    yield "audio_mel", noise(_BATCH, 64, _size(sound, "input_feat_size", default=bins))


def _measured(sizes: _Sizes) -> Iterator[tuple[str, Tensor]]:
    config = sizes.config
    length = _size(config, "context_length", default=32)
    lags = getattr(config, "lags_sequence", None)
    if isinstance(lags, (list, tuple)):
        yield "past_values", sizes.noise(_BATCH, length + max(lags, default=0))
    yield "past_values", sizes.noise(_BATCH, min(length, 128))
    yield "past_values", sizes.noise(_BATCH, length, _size(config, "num_input_channels", default=1))


def _images(config: Any, noise: Callable[..., Tensor]) -> dict[str, Tensor]:
    channels = getattr(config, "num_channels", getattr(config, "in_channels", 3))
    if not isinstance(channels, int):
        return {}
    extent = getattr(config, "image_size", None)
    if isinstance(extent, dict):
        extent = (extent.get("height", 32), extent.get("width", 32))
    height, width = extent if isinstance(extent, (list, tuple)) else (extent or 32,) * 2
    frames = getattr(config, "num_frames", getattr(config, "frames_per_clip", 4))
    return {"image": noise(_BATCH, channels, height, width), "video": noise(_BATCH, frames, channels, height, width)}


def _patch(config: Any) -> tuple[int, ...]:
    """Return (channels, frames if there are any, height, width) of a patch, or nothing if they are unknown."""
    patch = getattr(config, "patch_size", None)
    channels = getattr(config, "in_channels", getattr(config, "in_chans", getattr(config, "num_channels", 3)))
    frames = getattr(config, "temporal_patch_size", getattr(config, "patch_temporal", None))
    parts: tuple[Any, ...] = (channels, patch, patch) if frames is None else (channels, frames, patch, patch)
    return parts if all(isinstance(part, int) for part in parts) else ()


def _ones(_: _Sizes, lead: Tensor) -> Tensor:
    return torch.ones(lead.shape[:2], dtype=torch.long)


def _frames(sizes: _Sizes, lead: Tensor) -> Tensor:
    """Return a mask that hides no frame of a spectrum, (batch, bin, frame) or (batch, frame, bin)."""
    bins = _size(sizes.sound, "num_mel_bins", default=0)
    return torch.ones(lead.shape[0], lead.shape[-1 if lead.shape[1] == bins else 1], dtype=torch.long)


def _boxes(_: _Sizes, lead: Tensor) -> Tensor:
    first = torch.arange(prod(lead.shape[:2])).reshape(lead.shape[:2])
    return torch.stack([first, first, first + 3, first + 2], dim=-1)  # left, top, right, bottom on a page


def _grid(*axes: int) -> Callable[[_Sizes, Tensor], Tensor]:
    return lambda _, lead: torch.tensor([axes] * len(lead))


def _places(_: _Sizes, lead: Tensor) -> Tensor:
    place = torch.arange(lead.shape[1])
    return torch.stack([place % _GRID, place // _GRID], dim=-1).expand(len(lead), -1, -1)


def _encoded(sizes: _Sizes, lead: Tensor) -> Tensor:
    width = _size(sizes.config, "cross_attention_hidden_size", "cross_hidden_size", "encoder_hidden_size", default=0)
    return sizes.noise(len(lead), _ENCODED, width or sizes.width())


def _ahead(sizes: _Sizes) -> int:
    return _size(sizes.config, "prediction_length", default=1)


_BESIDE: Mapping[str, Callable[[_Sizes, Tensor], Any]] = {
    "pixel_attention_mask": _ones,
    "input_features_mask": _frames,
    "mask": _ones,
    "audio_mel_mask": lambda _, lead: torch.zeros(lead.shape[:2], dtype=torch.bool),
    "feature_lens": lambda _, lead: torch.tensor([lead.shape[-1]]),
    "aftercnn_lens": lambda _, lead: torch.tensor([(lead.shape[-1] - 1) // 2 + 1]),
    "bbox": _boxes,
    "encoder_hidden_states": _encoded,
    "spatial_shapes": _grid(_GRID, _GRID),
    "target_sizes": lambda _, __: torch.tensor([[_GRID, _GRID]]),
    "image_attention_mask": lambda _, lead: torch.ones(len(lead), _TOKENS, 1, dtype=torch.long),
    "grid_thw": _grid(1, _GRID, _GRID),
    "merge_sizes": lambda _, __: torch.tensor([1]),
    "pixel_position_ids": _places,
    "image_position_ids": _places,
    "num_patches": lambda _, lead: lead.shape[1],
    "aspect_ratio_ids": lambda _, lead: torch.ones(lead.shape[:2], dtype=torch.long),
    "aspect_ratio_mask": lambda _, lead: torch.ones(lead.shape[:3], dtype=torch.long),
    "lang_ids": lambda _, lead: torch.zeros(len(lead), dtype=torch.long),
    "visual_feats": lambda sizes, lead: sizes.noise(len(lead), 5, _size(sizes.config, "visual_feat_dim", default=8)),
    "visual_pos": lambda sizes, lead: sizes.noise(len(lead), 5, _size(sizes.config, "visual_pos_dim", default=4)),
    "last_hidden_state": lambda sizes, lead: sizes.noise(len(lead), 1, _size(sizes.config, "input_size", default=8)),
    "context_hidden_states": lambda sizes, lead: sizes.noise(len(lead), _ENCODED, lead.shape[-1]),
    "prompt_pixel_values": lambda sizes, lead: sizes.noise(*lead.shape),
    "prompt_masks": lambda sizes, lead: sizes.noise(*lead.shape),
    "past_observed_mask": lambda _, lead: torch.ones_like(lead),
    "past_time_features": lambda sizes, lead: sizes.noise(*lead.shape[:2], sizes.config.num_time_features),
    "future_values": lambda sizes, lead: sizes.noise(len(lead), _ahead(sizes), *lead.shape[2:]),
    "future_time_features": lambda sizes, lead: sizes.noise(len(lead), _ahead(sizes), sizes.config.num_time_features),
    "past_values_padding": lambda _, lead: torch.zeros_like(lead),
    "freq": lambda _, lead: torch.zeros(len(lead), 1, dtype=torch.long),
}  # further inputs by name, made from the sizes and the main input
