"""Formats of other programs, recognised by file names and first bytes."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from rmtbase.shown import quoted, shown

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
MOST_FILES = 10_000  # names in a folder that are searched
_LISTED, _LONGEST_NAME = 6, 60
WEIGHTS_ALONE = "the folder holds only weights"


class Format(NamedTuple):
    """Kind of file that is not a Hugging Face checkpoint."""

    found: str  # what it is
    advice: str  # what to pass instead


MERGED = "the merged checkpoint (peft: merge_and_unload, then save_pretrained)"
"""Advice for adapters."""

_MADE_FROM = "pass the checkpoint it was made from"
_ARRAYS = "pass its queries and keys as arrays to rmtbase.score_heads(w_q, w_k)"
_SITES = "say where its queries and keys are: open_model(state, sites=[Site(…)])"
_FORMATS = tuple(
    (re.compile(pattern, re.IGNORECASE), Format(found, advice))
    for pattern, found, advice in (
        (r"adapter_model\..+", "an adapter without its base model", f"pass {MERGED}, or the base checkpoint"),
        (
            r".+\.gguf(-split-\w+)?",
            "a GGUF file (llama.cpp's), mostly quantised",
            f"{_MADE_FROM}; or, with the rounding of its codes, the path of the one file",
        ),
        (r"ggml.*\.bin|.+\.ggml", "a GGML file, older than GGUF (llama.cpp's)", _MADE_FROM),
        (
            r"consolidated.*\.pth",
            "Meta's own release of a model (consolidated.*.pth)",
            "pass the same model in Hugging Face format, or convert it with transformers' convert_llama_weights_to_hf",
        ),
        (
            r"consolidated.*\.safetensors",
            "Mistral's own format (consolidated.safetensors), with other names and another order of rows",
            "pass the same model in Hugging Face format (model.safetensors)",
        ),
        (
            r"model_index\.json",
            "a pipeline of diffusers",
            "name the part that is a model of transformers, such as the folder text_encoder",
        ),
        (r"diffusion_pytorch_model.*", "the weights of a diffusers model", _SITES),
        (
            r"_METADATA|_CHECKPOINT_METADATA|manifest\.ocdbt|ocdbt\.process_\d+|.*orbax-checkpoint.*",
            "a checkpoint of Orbax (JAX)",
            f"restore it by orbax.checkpoint, and {_SITES}",
        ),
        (r"openvino_.*\.(xml|bin)", "a model of OpenVINO", _MADE_FROM),
        (
            r"\.metadata|.+\.distcp",
            "a distributed checkpoint of torch",
            "write it as one file by torch.distributed.checkpoint.format_utils.dcp_to_torch_save, and the state "
            "dictionary in it as model.safetensors beside the model's config.json",
        ),
        (
            r"global_step\d+|zero_to_fp32\.py|.*mp_rank_\d+_(model|optim)_states\.pt|(bf16_)?zero_pp_rank_.+",
            "a training state of DeepSpeed",
            "write its weights by the zero_to_fp32.py beside it, as model.safetensors or pytorch_model.bin",
        ),
        (
            r"iter_\d+|mp_rank_\d+(_\d+)*|model_optim_rng\.pt|latest_checkpointed_iteration\.txt",
            "a training state of Megatron",
            "convert it to the Hugging Face format by the scripts of its project",
        ),
        (
            r"(training_args|optimizer|scheduler|random_states_\d+|scaler|rng_state.*)\.(bin|pt|pth|pkl)",
            "the state of a training run without its model",
            "pass the folder that the model was saved to",
        ),
        (
            r"(model|pytorch_model)\.[\w-]+\.(safetensors|bin)|(model|pytorch_model)\.[\w-]+-\d+-of-\d+\.(safetensors|bin)",
            "a variant of the weights",
            "pass the path of one safetensors file; for shards, download those that model.safetensors.index.json names",
        ),
        (
            r".+\.(pt|pth|ckpt)",
            "a PyTorch file that is no Hugging Face checkpoint (a training state, perhaps)",
            "write its state dictionary as model.safetensors (safetensors.torch.save_file) beside the model's "
            f"config.json, or {_SITES}",
        ),
        (
            r".+\.(pkl|pickle|joblib)",
            "a pickle, which can run code and is not read",
            "write its tensors as model.safetensors beside the model's config.json",
        ),
        (
            r".+\.(npz|npy)",
            "a file of NumPy arrays",
            "pass them to rmtbase.score_heads(w_q, w_k), or write them as model.safetensors beside a config.json",
        ),
        (r".+\.onnx(_data)?", "an ONNX graph", f"pass the checkpoint it was exported from, or {_ARRAYS}"),
        (
            r".+\.(h5|hdf5|keras|pb)|tf_model.*",
            "a file of TensorFlow weights, or Keras's",
            f"pass the same model's model.safetensors, or {_ARRAYS}",
        ),
        (
            r".+\.msgpack",
            "a file of Flax weights",
            "pass the same model's model.safetensors, or restore it by flax.serialization.msgpack_restore, and "
            + _SITES,
        ),
        (r".+\.nc", "a netCDF file, such as rmtbase writes", "draw it by rmtbase plot, or pass the folder of a model"),
        (r".+\.(ot|tflite|mlmodel|mlpackage|engine|nemo)", "a file of another program's weights", _MADE_FROM),
    )
)
MODEL_WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
_SHARDS = (
    re.compile(r".+-\d+-of-\d+\.(safetensors|bin)", re.IGNORECASE),
    Format("shards without their index", "download model.safetensors.index.json, or pytorch_model.bin.index.json, too"),
)
_OTHER_NAME = (
    re.compile(r".+\.(safetensors|bin)", re.IGNORECASE),
    Format(
        "weights under another name",
        "if they are a whole model, pass the path of the safetensors file, or name it model.safetensors (or "
        "pytorch_model.bin)",
    ),
)


def format_of(name: str) -> Format | None:
    """Find the format of a file by its name, or None."""
    return next((kind for pattern, kind in _FORMATS if pattern.fullmatch(name)), None)


_PAGE = Format("a page of HTML", "download the file again: what came in its place may be an error, or ask to log in")
_BEGINNINGS = {
    b"GGUF": format_of("_.gguf"),
    b"PK\x03\x04": Format(
        "a zip archive, as torch.save and NumPy write them",
        "if it is torch.save's, of a state dictionary, name it pytorch_model.bin",
    ),
    b"\x89HDF": format_of("_.h5"),
    b"\x93NUMPY": format_of("_.npy"),
    b"\x80": format_of("_.pkl"),
    b"<!DOCTYPE": _PAGE,
    b"<!doctype": _PAGE,
    b"<html": _PAGE,
}


def format_that_begins(content: bytes) -> Format | None:
    """Find the format of a file by its first bytes, whatever its name, or None."""
    return next((kind for start, kind in _BEGINNINGS.items() if content.startswith(start)), None)


def adapter_in_words(config: Mapping[str, Any]) -> str:
    """Describe an adapter and its base model from its configuration."""
    base, kind = config.get("base_model_name_or_path"), config.get("peft_type")
    of = f" of the base model {quoted(base)}" if isinstance(base, str) and base else ""
    return (f"a {shown(kind, _LONGEST_NAME)} adapter" if isinstance(kind, str) else "an adapter") + of


def is_adapter_alone(folder: Path) -> bool:
    """Return True if a folder holds an adapter but no model beside it."""
    beside = ("config.json", *MODEL_WEIGHTS)
    return os.path.lexists(folder / ADAPTER_CONFIG) and not any(os.path.lexists(folder / name) for name in beside)


def adapters_within(folder: Path) -> list[str]:
    """List the subfolders that hold adapters, which is how PEFT saves several of them."""
    try:
        with os.scandir(folder) as entries:
            held = [entry.name for entry in islice(entries, MOST_FILES) if entry.is_dir()]
    except OSError:
        return []
    return sorted(name for name in held if os.path.lexists(folder / name / ADAPTER_CONFIG))


def which_adapter(folder: Path) -> str | None:
    """Return the advice to pass one of the adapters in subfolders, or None if there are none."""
    each = adapters_within(folder)
    if not each:
        return None
    what = (
        "the folder holds adapters in folders within it" if len(each) > 1 else "the folder holds an adapter within it"
    )
    return f"{what}: pass {' or '.join(shown(str(folder / name), 200) for name in each[:_LISTED])}"


def held_instead(names: list[str], name: str) -> tuple[str, str]:
    """Describe the content of a folder by the names in it, and what to do."""
    if name == "config.json" and (held := [weights for weights in MODEL_WEIGHTS if weights in names]):
        return (f"{WEIGHTS_ALONE}, {listed(held)}", f"put the model's config.json beside them, or {_SITES}")
    for pattern, kind in (*_FORMATS, _SHARDS, _OTHER_NAME):
        held = [file for file in names if pattern.fullmatch(file)]
        if held:
            return f"the folder holds {kind.found}: {listed(held)}", kind.advice
    holds = f"the folder holds only {listed(names)}" if names else "the folder is empty"
    return holds, "download the checkpoint again, or pass its folder"


def listed(names: list[str]) -> str:
    """List the first of several names."""
    more = len(names) - _LISTED
    return ", ".join(shown(name, _LONGEST_NAME) for name in names[:_LISTED]) + (f" and {more} more" if more > 0 else "")
