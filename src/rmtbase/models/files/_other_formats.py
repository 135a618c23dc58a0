"""Formats of other programs, recognised by file names and first bytes; and the folders of adapters."""

import os
import re
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from rmtbase.shown import quoted, shown
from rmtbase.words import listing

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
MODEL_WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
MERGED = "the merged checkpoint (peft: merge_and_unload, then save_pretrained)"
"""Advice for adapters."""
CHECKPOINT = "a checkpoint in Hugging Face format: config.json with model.safetensors"
_ARRAYS = f"{CHECKPOINT}; or queries and keys as arrays, to rmtbase.score_heads(w_q, w_k)"
MOST_FILES = 10_000  # names in a folder that are searched
_LISTED, _LONGEST_NAME = 6, 60


class Format(NamedTuple):
    """Kind of file that is not a Hugging Face checkpoint."""

    found: str  # what it is
    expected: str = CHECKPOINT


_FORMATS: tuple[tuple[re.Pattern[str], Format], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), Format(*words))
    for pattern, *words in (
        (r"adapter_model\..+", "an adapter without its base model", f"{MERGED}, or the base checkpoint"),
        (r".+\.gguf(-split-\w+)?", "a GGUF file (llama.cpp's)", f"{CHECKPOINT}; or the path of one whole GGUF file"),
        (r"ggml.*\.bin|.+\.ggml", "a GGML file, older than GGUF (llama.cpp's)"),
        (r"consolidated.*\.pth", "Meta's own release of a model (consolidated.*.pth)"),
        (r"consolidated.*\.safetensors", "Mistral's own format, with other names and another order of rows"),
        (r"model_index\.json", "a pipeline of diffusers", "the part of it that is a model, such as text_encoder"),
        (r"diffusion_pytorch_model.*", "the weights of a diffusers model"),
        (r"_METADATA|_CHECKPOINT_METADATA|manifest\.ocdbt|ocdbt\..+|.*orbax-checkpoint.*", "a checkpoint of Orbax"),
        (r"openvino_.*\.(xml|bin)", "a model of OpenVINO"),
        (r"\.metadata|.+\.distcp", "a distributed checkpoint of torch"),
        (
            r"global_step\d+|zero_to_fp32\.py|.*mp_rank_\d+_(model|optim)_states\.pt|(bf16_)?zero_pp_rank_.+",
            "a training state of DeepSpeed",
        ),
        (
            r"iter_\d+|mp_rank_\d+(_\d+)*|model_optim_rng\.pt|latest_checkpointed_iteration\.txt",
            "a training state of Megatron",
        ),
        (
            r"(training_args|optimizer|scheduler|random_states_\d+|scaler|rng_state.*)\.(bin|pt|pth|pkl)",
            "the state of a training run without its model",
        ),
        (
            r"(model|pytorch_model)\.[\w-]+(-\d+-of-\d+)?\.(safetensors|bin)",
            "a variant of the weights",
            "the path of one safetensors file, or the shards that model.safetensors.index.json names",
        ),
        (r".+\.(pt|pth|ckpt)", "a PyTorch file that is no Hugging Face checkpoint (a training state, perhaps)"),
        (r".+\.(pkl|pickle|joblib)", "a pickle, which can run code"),
        (r".+\.(npz|npy)", "a file of NumPy arrays", _ARRAYS),
        (r".+\.onnx(_data)?", "an ONNX graph", _ARRAYS),
        (r".+\.(h5|hdf5|keras|pb)|tf_model.*", "a file of TensorFlow weights, or Keras's", _ARRAYS),
        (r".+\.msgpack", "a file of Flax weights"),
        (r".+\.nc", "a netCDF file, such as rmtbase writes", "the folder of a model; rmtbase plot draws this"),
        (r".+\.(ot|tflite|mlmodel|mlpackage|engine|nemo)", "a file of another program's weights"),
    )
)
_PARTS_OF_CHECKPOINTS = (
    (
        re.compile(r".+-\d+-of-\d+\.(safetensors|bin)", re.IGNORECASE),
        Format("shards without their index", "model.safetensors.index.json, or pytorch_model.bin.index.json, too"),
    ),
    (
        re.compile(r".+\.(safetensors|bin)", re.IGNORECASE),
        Format("weights under another name", "their path if they are a whole model, or the name model.safetensors"),
    ),
)
_WEIGHTS_ALONE = Format("only weights", "the model's config.json beside them")


def format_of(name: str) -> Format | None:
    return next((kind for pattern, kind in _FORMATS if pattern.fullmatch(name)), None)


_PAGE = Format("a page of HTML, in place of the file that was asked for")
_BEGINNINGS = {
    b"GGUF": format_of("_.gguf"),
    b"PK\x03\x04": Format(
        "a zip archive, as torch.save and NumPy write them", "the name pytorch_model.bin for a state dictionary"
    ),
    b"\x89HDF": format_of("_.h5"),
    b"\x93NUMPY": format_of("_.npy"),
    b"\x80": format_of("_.pkl"),
    **dict.fromkeys((b"<!DOCTYPE", b"<!doctype", b"<html"), _PAGE),
}


def format_that_begins(content: bytes) -> Format | None:
    return next((kind for start, kind in _BEGINNINGS.items() if content.startswith(start)), None)


def content_of_folder(names: Sequence[str], missing: str) -> tuple[Format, list[str]]:
    """Find what a folder holds in place of a missing file, by the names in it: the format, and the files of it."""
    if missing == "config.json" and (weights := [name for name in MODEL_WEIGHTS if name in names]):
        return _WEIGHTS_ALONE, weights
    for pattern, kind in (*_FORMATS, *_PARTS_OF_CHECKPOINTS):
        matching = [name for name in names if pattern.fullmatch(name)]
        if matching:
            return kind, matching
    return Format("only" if names else "no file"), list(names)


def adapter_in_words(config: Mapping[str, Any]) -> str:
    base, kind = config.get("base_model_name_or_path"), config.get("peft_type")
    of_base = f" of the base model {quoted(base)}" if isinstance(base, str) and base else ""
    return (f"a {shown(kind, _LONGEST_NAME)} adapter" if isinstance(kind, str) else "an adapter") + of_base


def is_adapter_alone(folder: Path) -> bool:
    beside = ("config.json", *MODEL_WEIGHTS)
    return os.path.lexists(folder / ADAPTER_CONFIG) and not any(os.path.lexists(folder / name) for name in beside)


def adapters_within(folder: Path) -> list[str]:
    """List the subfolders that hold adapters, which is how PEFT saves several of them."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in islice(entries, MOST_FILES) if entry.is_dir()]
    except OSError:
        return []
    return sorted(name for name in names if os.path.lexists(folder / name / ADAPTER_CONFIG))


def which_adapter(folder: Path) -> str | None:
    """Return the advice to pass one of the adapters in subfolders, or None if there are none."""
    names = adapters_within(folder)
    if not names:
        return None
    content = "adapters in folders within it" if len(names) > 1 else "an adapter within it"
    paths = " or ".join(shown(str(folder / name), 200) for name in names[:_LISTED])
    return f"the folder holds {content}: pass {paths}"


def listed(names: Sequence[str]) -> str:
    return listing([shown(name, _LONGEST_NAME) for name in names], _LISTED)
