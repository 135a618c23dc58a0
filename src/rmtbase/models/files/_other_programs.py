"""Errors for weights of other programs: whose they are, what was expected instead, and that they are not read."""

import os
import re
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from inspect import signature
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, cast

from rmtbase.errors import (
    CheckpointError,
    MissingCheckpointFileError,
    MissingTensorError,
    ParameterError,
    RmtbaseError,
    ShapeError,
)
from rmtbase.models.files import _other_formats as formats
from rmtbase.models.files._attention_names import Program, Shape, find_attention, why_no_attention
from rmtbase.models.files._files import read_json_object, reading
from rmtbase.models.files._other_formats import ADAPTER_CONFIG, CHECKPOINT, MERGED, listed
from rmtbase.models.files._safetensors import SafetensorsFile
from rmtbase.models.files._torch_file import instructions, pickle_in
from rmtbase.shown import one_line, quoted, shown

_SITES = "say where its queries and keys are: open_model(state, sites=[Site(…)])"
# Keys in a file of torch.save, and the kind of file that has them.
_CONTAINERS = (
    ({"pytorch-lightning_version"}, "a checkpoint of PyTorch Lightning"),
    ({"model_args", "iter_num"}, "a checkpoint of nanoGPT's training"),
    ({"module", "ds_version"}, "a file of model states (DeepSpeed)"),
    ({"optimizer_state_dict", "ds_version"}, "a file of optimiser states (DeepSpeed ZeRO)"),
    ({"model", "checkpoint_version"}, "a checkpoint of Megatron"),
    ({"arch", "state_dict", "epoch"}, "a checkpoint of timm's training"),
)


class _Content(NamedTuple):
    """Content of a file of weights, as far as it shows without being loaded."""

    found: str  # what it is, in words
    shapes: Mapping[str, Shape]  # the shapes of its tensors, by name


def refusal_of_file(path: Path) -> CheckpointError:
    kind = formats.format_of(path.name)
    content = _content(path)
    if content is None and kind is None:
        return CheckpointError(path, "is a file; pass the folder that holds it and its config.json")
    kind_found = content.found if content else kind.found if kind else ""
    names = _after(", with ", _whose(content.shapes, {})) if content else ""
    expected = kind.expected if kind else "the folder that holds it and its config.json"
    return CheckpointError(path, f"is {kind_found}{names}, which is not read; expected {expected}")


def refuse_other_programs(config: Mapping[str, Any], path: Path) -> None:
    if config.get("model_type") or config.get("architectures"):
        return
    program = _program_of_config(config, path.parent)
    if program:
        raise CheckpointError(path, f"the configuration of {program}, which is not read; expected {CHECKPOINT}")


def refuse_other_formats(folder: Path, beside_adapter: bool = False) -> None:
    """Refuse a folder with an adapter, unless ``beside_adapter``, or without a configuration."""
    path = folder / ADAPTER_CONFIG
    if os.path.lexists(path) and not beside_adapter:
        raise CheckpointError(
            folder,
            f"holds {formats.adapter_in_words(read_json_object(path))} ({ADAPTER_CONFIG}), which changes that model's "
            f"weights; expected {MERGED}, or the base model alone; or say which by adapter: delta, merged or base",
        )
    for weights in () if beside_adapter else formats.ADAPTER_WEIGHTS:
        if os.path.lexists(folder / weights) and any(os.path.lexists(folder / name) for name in formats.MODEL_WEIGHTS):
            problem = f"holds {weights}, the weights of an adapter, which change those beside it"
            raise CheckpointError(folder, f"{problem}; expected {MERGED}, or the base model alone")
    if folder.is_dir() and not os.path.lexists(folder / "config.json"):
        raise missing_file(folder, "config.json")


def missing_file(folder: Path, name: str) -> MissingCheckpointFileError:
    path = folder / name
    try:
        with os.scandir(folder) as entries:
            entries = list(islice(entries, formats.MOST_FILES))
        names = sorted(entry.name for entry in entries)
        folders = {entry.name for entry in entries if entry.is_dir()}
        inner = sorted(part for part in folders if (folder / part / name).is_file())
    except OSError:
        return MissingCheckpointFileError(path)
    if name == "config.json" and inner:
        advice = f"pass one of its folders that has it, or name it as the subfolder: {listed(inner)}"
        return MissingCheckpointFileError(path, advice=advice)
    if name == "config.json" and (advice := formats.which_adapter(folder)):
        return MissingCheckpointFileError(path, advice=advice)
    if not names:
        return MissingCheckpointFileError(path, advice=f"the folder is empty; expected {CHECKPOINT}")
    kind, files = formats.content_of_folder(names, name)
    content = _content(folder / files[0])
    whose = _after(", with ", _whose(content.shapes, {})) if content else ""
    advice = f"the folder holds {kind.found}: {listed(files)}{whose}; expected {kind.expected}"
    return MissingCheckpointFileError(path, advice=advice)


def advise_on_names(
    error: MissingTensorError | ShapeError, shapes: Mapping[str, Shape], config: Mapping[str, Any], architecture: str
) -> None:
    """Add the program that the tensors belong to, to an error about their names or shapes."""
    if isinstance(error, MissingTensorError) and any(re.fullmatch(_any_layer(error.tensor), name) for name in shapes):
        return  # the names fit the type: the file lacks a layer
    attention = find_attention(shapes, config)
    if isinstance(error, MissingTensorError):
        error.args = (one_line(f"{error}{_after('; it holds ', _whose(shapes, config))}"),)
    elif attention is not None and attention.program is Program.NANO_GPT and architecture == "gpt2":
        error.args = (one_line(f"{error}; nanoGPT's linear layers are the transpose of {architecture}'s"),)


def advise_in_memory(error: ParameterError, model: object, tensors: Mapping[Any, Any], config: Any) -> None:
    """Add what is recognised in a model without a family to an error."""
    shapes = {
        key: tuple(tensor.shape) for key, tensor in tensors.items() if isinstance(key, str) and _is_tensor(tensor)
    }
    inner = [key for key, part in tensors.items() if isinstance(part, Mapping) and any(map(_is_tensor, part.values()))]
    if not isinstance(model, Mapping):
        arguments = [name for name in signature(cast(Any, model).forward).parameters if name.isidentifier()]
        batch = arguments[0] if arguments else "x"
        advice = f'a module is best read by running it, on a batch of two tokens or more: inputs={{"{batch}": {batch}}}'
    elif inner:
        advice = f"this mapping holds others: pass one of them, state[{quoted(inner[0])}]"
    elif why := why_no_attention(shapes):
        advice = why
    else:
        advice = _after("it holds ", _whose(shapes, config if isinstance(config, Mapping) else {}))
    error.args = (one_line(f"{error}{_after('; ', advice)}"),)


def _content(path: Path) -> _Content | None:
    """Look into a file that may hold anything, since the result is only for a message; None if it cannot be read."""
    with suppress(RmtbaseError, ValueError, OSError, MemoryError, RecursionError, zipfile.BadZipFile, RuntimeError):
        if not path.is_file():
            return None
        with reading(path) as stream:
            first = stream.read(16)
            if first[8:9] == b"{":
                shapes = {name: entry.shape for name, entry in SafetensorsFile.open(path).entries.items()}
                return _Content("a safetensors file", shapes)
            if first.startswith(b"PK\x03\x04"):
                with zipfile.ZipFile(stream) as archive:
                    program = BytesIO(pickle_in(path, archive))
                words = {argument for _, argument in instructions(program) if isinstance(argument, str)}
                return _Content(next((kind for keys, kind in _CONTAINERS if keys <= words), "a file of torch.save"), {})
    return None


def _after(lead: str, words: str) -> str:
    return f"{lead}{words}" if words else ""


def _whose(shapes: Mapping[str, Shape], settings: Mapping[str, Any]) -> str:
    """Name the attention that is recognised among tensors, or say why there is none; "" without tensors."""
    if (why := why_no_attention(shapes)) or not shapes:
        return f"no attention: {why}" if why else ""
    attention = find_attention(shapes, settings)
    if attention is None:
        names = [name for name, shape in shapes.items() if len(shape) > 1] or list(shapes)
        few = ", ".join(quoted(name, 80) for name in names[:3])
        return f"no attention that is recognised among its {len(shapes)} tensors ({few}): {_SITES}"
    heads = f" of {attention.n_heads} heads" if attention.n_heads else ""
    count = len(attention.modules)
    modules = "one module" if count == 1 else f"{count} modules"
    return f"attention{heads} in {modules} under the names of {attention.program.value}: {_SITES}"


def _program_of_config(config: Mapping[str, Any], folder: Path) -> str:
    """Name the program of a configuration that names no type of transformers; "" if it is unknown."""
    if isinstance(config.get("_class_name"), str) and "_diffusers_version" in config:
        return f"a {shown(config['_class_name'], 60)} of diffusers"
    if isinstance(config.get("architecture"), str) and {"pretrained_cfg", "num_features"} & config.keys():
        return f"a {shown(config['architecture'], 60)} of timm"
    with suppress(RmtbaseError), reading(folder / "model.bin") as stream:
        first = stream.read(80)  # of CTranslate2: a version, then the name of a specification
        specification = first[6 : 6 + int.from_bytes(first[4:6], "little")]
        if int.from_bytes(first[:4], "little") < 32 and specification.rstrip(b"\0").endswith(b"Spec"):
            return "a model of CTranslate2"
    return ""


def _any_layer(name: str) -> str:
    return re.sub(r"\d+", r"\\d+", re.escape(name))


def _is_tensor(value: object) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")
