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
from typing import Any, cast

from rmtbase.errors import (
    CheckpointError,
    MissingCheckpointFileError,
    MissingTensorError,
    ParameterError,
    RmtbaseError,
    ShapeError,
)
from rmtbase.models.files import _other_formats as formats
from rmtbase.models.files._files import read_json_object, reading
from rmtbase.models.files._other_formats import ADAPTER_CONFIG, CHECKPOINT, MERGED, Format, listed, other_programs
from rmtbase.models.files._safetensors import SafetensorsFile
from rmtbase.models.files._torch_file import instructions, pickle_in
from rmtbase.shown import one_line, quoted, shown

_Shapes = Mapping[str, tuple[int, ...]]
_SITES = "say where its queries and keys are: open_model(state, sites=[Site(…)])"
_WITH_CONFIG = "the folder that holds it and its config.json"


def refusal_of_file(path: Path) -> CheckpointError:
    kind = formats.format_of(path.name)
    content, whose = _content(path)
    if not content and kind is None:
        return CheckpointError(path, f"is a file; pass {_WITH_CONFIG}")
    described = f"{content or (kind.found if kind else '')}{whose}"
    expected = kind.expected if kind else _WITH_CONFIG
    return CheckpointError(path, f"is {described}, which is not read; expected {expected}")


def refuse_other_programs(config: Mapping[str, Any], path: Path) -> None:
    if config.get("model_type") or config.get("architectures"):
        return
    program = ""
    if isinstance(config.get("_class_name"), str) and "_diffusers_version" in config:
        program = f"a {shown(config['_class_name'], 60)} of diffusers"
    elif isinstance(config.get("architecture"), str) and {"pretrained_cfg", "num_features"} & config.keys():
        program = f"a {shown(config['architecture'], 60)} of timm"
    else:
        with suppress(RmtbaseError), reading(path.parent / "model.bin") as stream:
            first = stream.read(80)  # of CTranslate2: a version, then the name of a specification
            specification = first[6 : 6 + int.from_bytes(first[4:6], "little")]
            if int.from_bytes(first[:4], "little") < 32 and specification.rstrip(b"\0").endswith(b"Spec"):
                program = "a model of CTranslate2"
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
        with os.scandir(folder) as scanned:
            entries = list(islice(scanned, formats.MOST_FILES))
        names = sorted(entry.name for entry in entries)
        inner = sorted(entry.name for entry in entries if entry.is_dir() and (folder / entry.name / name).is_file())
    except OSError:
        return MissingCheckpointFileError(path)
    if name == "config.json" and inner:
        advice = f"pass one of its folders that has it, or name it as the subfolder: {listed(inner)}"
        return MissingCheckpointFileError(path, advice=advice)
    if name == "config.json" and (advice := formats.which_adapter(folder)):
        return MissingCheckpointFileError(path, advice=advice)
    if not names:
        return MissingCheckpointFileError(path, advice=f"the folder is empty; expected {CHECKPOINT}")
    kinds = [*formats.known_formats("formats"), *formats.known_formats("parts"), Format(".*", "only", CHECKPOINT)]
    if name == "config.json":
        whole = "|".join(map(re.escape, formats.MODEL_WEIGHTS))
        kinds.insert(0, Format(whole, "only weights", "the model's config.json beside them"))
    kind, files = next((kind, files) for kind in kinds if (files := list(filter(kind.has, names))))
    whose = _content(folder / files[0])[1]
    advice = f"the folder holds {kind.found}: {listed(files)}{whose}; expected {kind.expected}"
    return MissingCheckpointFileError(path, advice=advice)


def advise_on_names(error: MissingTensorError | ShapeError, shapes: _Shapes, architecture: str) -> None:
    if isinstance(error, MissingTensorError):
        of_any_layer = re.sub(r"\d+", r"\\d+", re.escape(error.tensor))
        if not any(re.fullmatch(of_any_layer, name) for name in shapes):  # otherwise the file lacks a layer
            error.args = (one_line(f"{error}; it holds {_whose(shapes)}"),)
    elif architecture == "gpt2" and any(name.endswith("c_attn.weight") and _is_tall(shapes[name]) for name in shapes):
        error.args = (one_line(f"{error}; nanoGPT's linear layers are the transpose of gpt2's"),)


def advise_in_memory(error: ParameterError, model: object, tensors: Mapping[Any, Any]) -> None:
    """Add what is recognised in a model without a family to an error."""
    inner = [key for key, part in tensors.items() if isinstance(part, Mapping) and any(map(_is_tensor, part.values()))]
    if not isinstance(model, Mapping):
        arguments = [name for name in signature(cast(Any, model).forward).parameters if name.isidentifier()]
        batch = arguments[0] if arguments else "x"
        advice = f'a module is best read by running it, on a batch of two tokens or more: inputs={{"{batch}": {batch}}}'
    elif inner:
        advice = f"this mapping holds others: pass one of them, state[{quoted(inner[0])}]"
    else:
        named = {name: tensor for name, tensor in tensors.items() if isinstance(name, str) and _is_tensor(tensor)}
        advice = f"it holds {_whose({name: tuple(tensor.shape) for name, tensor in named.items()})}"
    error.args = (one_line(f"{error}; {advice}"),)


def _content(path: Path) -> tuple[str, str]:
    """Look into a file that may hold anything: what it is, and whose its tensors are; "" where that cannot be seen."""
    with suppress(RmtbaseError, ValueError, OSError, MemoryError, RecursionError, zipfile.BadZipFile, RuntimeError):
        if not path.is_file():
            return "", ""
        with reading(path) as stream:
            first = stream.read(16)
            if first[8:9] == b"{":
                shapes = {name: entry.shape for name, entry in SafetensorsFile.open(path).entries.items()}
                return "a safetensors file", f", with {_whose(shapes)}"
            if first.startswith(b"PK\x03\x04"):
                with zipfile.ZipFile(stream) as archive:
                    program = BytesIO(pickle_in(path, archive))
                words = {argument for _, argument in instructions(program) if isinstance(argument, str)}
                containers = other_programs()["containers"]
                return next((kind for keys, kind in containers if words.issuperset(keys)), "a file of torch.save"), ""
    return "", ""


def _whose(shapes: _Shapes) -> str:
    """Name the program of an attention that is recognised among tensors, or say why there is none."""
    for pattern, why in other_programs()["without_attention"]:
        if any(re.fullmatch(pattern, name) for name in shapes):
            return f"no attention: {why}"
    program, count = _recognised(shapes)
    if not program:
        names = [name for name, shape in shapes.items() if len(shape) > 1] or list(shapes)
        few = ", ".join(quoted(name, 80) for name in names[:3])
        return f"no attention that is recognised among its {len(shapes)} tensors ({few}): {_SITES}"
    modules = "one module" if count == 1 else f"{count} modules"
    return f"attention in {modules} under the names of {program}: {_SITES}"


def _recognised(shapes: _Shapes) -> tuple[str, int]:
    """Return the program whose names the tensors have, and the number of its attention modules."""
    for program, pattern, beside, *tall in other_programs()["programs"]:
        modules = [name for name in shapes if re.fullmatch(pattern, name) and (not tall or _is_tall(shapes[name]))]
        if modules and any(re.fullmatch(beside, name) for name in shapes):
            return program, len(modules)
    return "", 0


def _is_tall(shape: tuple[int, ...]) -> bool:
    return shape[:1] > shape[1:2]


def _is_tensor(value: object) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")
