"""Quantised checkpoints: each matrix replaces the tensors that it is made of, and is dequantised when it is read."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rmtbase.errors import CheckpointError
from rmtbase.models.files._checkpoint import Checkpoint
from rmtbase.models.files._files import read_json_object
from rmtbase.models.files._tensor_file import CheckpointTensor
from rmtbase.models.formats._dequantise import Format, Settings
from rmtbase.models.formats._quantised_formats import METHODS
from rmtbase.shown import quoted, shown

_MLX = "quantization"  # the key of MLX, which also writes quantization_config
_SETTINGS = (_MLX, "quantization_config", "compression_config")
# Files of older versions of two libraries, and of one library that also writes it into the configuration.
_OTHER_FILES = {"quantize_config.json": "gptq", "quant_config.json": "awq", "hf_quant_config.json": "modelopt"}
_NAMES = {name: name.upper() for name in ("gptq", "awq", "fp8", "mxfp4", "hqq", "aqlm", "eetq")}
_NAMES |= {"fbgemm_fp8": "FP8", "mlx": "MLX", "modelopt": "ModelOpt"}
_READ = "GPTQ, AWQ, FP8, MXFP4, bitsandbytes, compressed-tensors or GGUF"
_REPACKED = ("gptq", "awq")
_DEQUANTISED = "gguf"  # the method of a module that transformers loaded from a GGUF file
_PASS_SOURCE = "pass the checkpoint that it was made from"
# Parts of a tensor's name, between dots.
_CODES = re.compile(
    r"qweight|qzeros|g_idx|scales|absmax|quant_map|nested_absmax|nested_quant_map|quant_state|bitsandbytes__\w+|SCB|"
    r"weight_format|(weight|\w+_proj)_scale(_\w+)?|weight_zero_point|weight_packed|weight_shape|weight_g_idx|"
    r"(input|output|activation)_scale\w*|\w+_global_scale|[qkv]_scale|kv_scale|_data|_scale|_zeropoint|"
    r"\w+_proj_(blocks|scales)"
)
# Scales of activations, caches and inputs do not affect the weights.
_OF_ACTIVATIONS = re.compile(
    r".*\.((input|output|activation)_scale(_ub)?|(input|output)_zero_point|[qkv]_scale|kv_scale)"
)


def require_readable_quantisation(config: Mapping[str, Any], path: Path) -> None:
    settings = _settings(config, path)
    if settings is not None and _method(settings) != _DEQUANTISED:
        _format(settings)


def dequantised(checkpoint: Checkpoint, config: Mapping[str, Any], path: Path) -> Checkpoint:
    settings = _settings(config, path)
    for name, method in _OTHER_FILES.items():
        beside = checkpoint.path / name
        if settings is None and checkpoint.files and os.path.lexists(beside):
            words = read_json_object(beside) | {"quant_method": method}
            settings = Settings(beside, f"quantised with {_NAMES[method]}", words)
    if settings is not None and _method(settings) == _DEQUANTISED:
        note = "quantised in a GGUF file: transformers dequantised it, and W_QK carries the rounding"
        checkpoint = checkpoint.replaced((), {}, note)
    elif settings is not None:
        if _method(settings) in _REPACKED and not checkpoint.files:
            problem = f"is in memory and quantised with {_format(settings).called}"
            more = "whose programs pack codes in other ways than files do; expected the folder that it was read from"
            raise CheckpointError(checkpoint.path, f"{problem}, {more}")
        checkpoint = _replaced(checkpoint, settings, _format(settings))
    for name in checkpoint.names:
        if any(map(_CODES.fullmatch, name.split("."))):
            where = "" if settings is None else f", but to no matrix that {settings.key} describes"
            problem = f"tensor {quoted(name)} belongs to quantised weights{where}: the numbers beside it are codes"
            raise CheckpointError(checkpoint.file(name), f"{problem}, not the trained weights; {_PASS_SOURCE}")
    return checkpoint


def _settings(config: Mapping[str, Any], path: Path) -> Settings | None:
    text = config.get("text_config")
    for part in (config, text if isinstance(text, Mapping) else {}):
        for key in _SETTINGS:
            if part.get(key):
                words = part[key]
                if not isinstance(words, Mapping):
                    raise _unknown(path, key, "")
                return Settings(path, key, words)
    return None


def _method(settings: Settings) -> str | None:
    method = settings.get("quant_method")
    if isinstance(method, str):
        return str.__str__(method)  # transformers has a subclass of str
    if settings.key == _MLX:
        return "mlx"
    return "bitsandbytes" if any(settings.get(f"load_in_{width}bit") for width in (4, 8)) else None


def _format(settings: Settings) -> Format:
    method = _method(settings)
    if method is None or method not in METHODS:
        bits = settings.get("bits", settings.get("w_bit"))
        named = f" with {_NAMES.get(method) or shown(method, 60)}" if method else ""
        named += f" ({bits} bit)" if type(bits) is int and 0 < bits <= 64 else ""
        raise _unknown(settings.path, settings.key, named)
    return METHODS[method](settings)


def _unknown(path: Path, key: str, method: str) -> CheckpointError:
    where = f"{key}: " if key in _SETTINGS else ""
    problem = f"{where}the model is quantised{method}, and what is stored is not the trained weights"
    return CheckpointError(path, f"{problem}; {_PASS_SOURCE}, or one that is quantised with {_READ}")


def _replaced(checkpoint: Checkpoint, settings: Settings, layout: Format) -> Checkpoint:
    names, used = checkpoint.names, set[str]()
    made: dict[str, CheckpointTensor] = {}
    noted = ""
    for name in names:
        if not name.endswith(layout.marker) or name == layout.marker:
            continue
        base = name.removesuffix(layout.marker)
        parts = {}
        for ending in (*layout.needed, *layout.optional):
            if base + ending in checkpoint:
                (parts[ending],) = checkpoint.tensor(base + ending).stored
            elif ending in layout.needed:
                problem = f"tensor {quoted(name)} is part of a matrix quantised with {layout.called}"
                raise CheckpointError(checkpoint.file(name), f"{problem}; expected {quoted(base + ending)} beside it")
        made[base + layout.weight] = layout.derive(parts)
        noted = layout.look(parts) if len(made) == 1 else noted
        used.update(base + ending for ending in parts)
    twice = next((name for name in made if name in checkpoint and name not in used), None)
    if twice is not None:
        problem = f"tensor {quoted(twice)} is there beside the codes of the same matrix, quantised with {layout.called}"
        raise CheckpointError(checkpoint.file(twice), f"{problem}; expected one of them")
    if not made:
        raise CheckpointError(
            settings.path,
            f"{settings.key}: the model is quantised with {layout.called}, and no tensor ends in {layout.marker}; "
            f"{_PASS_SOURCE}, or take {settings.key} out if its weights are stored as they are",
        )
    used.update(name for name in names if _OF_ACTIVATIONS.fullmatch(name))
    matrices = f"{len(made)} matrices are" if len(made) > 1 else "one matrix is"
    note = f"quantised with {layout.called}: {matrices} dequantised, and W_QK carries the rounding of its factors"
    note += f"; {noted}" if noted else ""
    return checkpoint.replaced(used, made, note)
