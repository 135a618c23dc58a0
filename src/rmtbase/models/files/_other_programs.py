"""Weights of other programs: recognition by their content, and the lines of Python that read them.

Files that cannot be inspected are recognised by their names (:mod:`rmtbase.models.files._other_formats`). The lines of
Python are a note of the error (``error.add_note``): Python prints it after a traceback, the command below its message.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from inspect import signature
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
from rmtbase.models.files._attention_names import Attention, Shape, why_no_attention
from rmtbase.models.files._files import read_json_object, reading
from rmtbase.models.files._first_look import SLICED, Look, look_at, look_into, look_into_folder
from rmtbase.models.files._other_formats import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    MERGED,
    MODEL_WEIGHTS,
    MOST_FILES,
    WEIGHTS_ALONE,
    adapter_in_words,
    held_instead,
    listed,
    which_adapter,
)
from rmtbase.shown import one_line, quoted, shown

_IMPORTS = "from rmtbase.models import Place, Site, Stacked, Tensor, open_model, take_rows"


def advised(error: RmtbaseError, look: Look | None, called: str) -> bool:
    """Add the attention that was found to an error, with a note of the lines of Python that open it.

    True if advice was added.
    """
    if look is not None and look.load and not look.shapes:  # its names are unknown before it is loaded
        error.args = (one_line(f"{error}; load it by the Python below, whose last line shows how to open it"),)
        error.add_note("\n".join((_IMPORTS, *look.load, "open_model(state)")))
        return True
    attention = None if look is None else look.attention()
    if look is None or attention is None:
        return False
    error.args = (one_line(f"{error}; {_seen(attention)}"),)
    error.add_note("\n".join(_code(look, attention, called)))
    return True


def refusal_of_file(path: Path, kind: str, advice: str) -> CheckpointError:
    """Return the error for a file that is not a model by itself, with its content and what to do."""
    look = look_into(path)
    found = kind or "a file"
    if look is None:
        return CheckpointError(path, f"is {found}; {advice}")
    if look.found == SLICED:
        return CheckpointError(path, f"is {found}; {why_not(look, advice)}")
    error = CheckpointError(path, f"is {look.found}")
    if not advised(error, look, path.stem):
        error = CheckpointError(path, f"is {look.found}; {why_not(look, advice)}")
    return error


def refuse_other_programs(config: Mapping[str, Any], path: Path, given: Path) -> None:
    """Raise if a configuration names no type of transformers, and it or its weights are from another program."""
    if config.get("model_type") or config.get("architectures"):
        return
    program = program_of_config(config, path.parent)
    look = look_into(given, config) if given.is_file() else look_into_folder(path.parent, config)
    attention = None if look is None else look.attention()
    if not program and attention is None:
        return  # the caller refuses it as an unknown type
    error = CheckpointError(
        path, f"the configuration of {program}" if program else "a configuration without model_type"
    )
    if not advised(error, look, path.parent.resolve().name):
        advice = "pass the checkpoint in Hugging Face format that it was made from"
        error = CheckpointError(
            path, f"the configuration of {program}; {advice if look is None else why_not(look, advice)}"
        )
    raise error


def refuse_other_formats(folder: Path, beside_adapter: bool = False) -> None:
    """Refuse a folder with an adapter, unless ``beside_adapter``, or without a configuration."""
    path = folder / ADAPTER_CONFIG
    if os.path.lexists(path) and not beside_adapter:
        raise CheckpointError(
            folder,
            f"holds {adapter_in_words(read_json_object(path))} ({ADAPTER_CONFIG}), which changes that model's weights; "
            f"expected {MERGED}, or the base model alone; or say which by adapter: delta, merged or base",
        )
    for weights in () if beside_adapter else ADAPTER_WEIGHTS:
        if os.path.lexists(folder / weights) and any(os.path.lexists(folder / name) for name in MODEL_WEIGHTS):
            raise CheckpointError(
                folder,
                f"holds {weights}, the weights of an adapter, which change those beside it; expected {MERGED}, or the "
                "base model alone",
            )
    if folder.is_dir() and not os.path.lexists(folder / "config.json"):
        raise missing_file(folder, "config.json")


def missing_file(folder: Path, name: str) -> MissingCheckpointFileError:
    """Return the error for a missing file of a checkpoint, with what the folder holds instead."""
    try:
        with os.scandir(folder) as entries:
            held = list(islice(entries, MOST_FILES))
        names = sorted(entry.name for entry in held)
        inner = sorted(entry.name for entry in held if entry.is_dir() and (folder / entry.name / name).is_file())
    except OSError:
        return MissingCheckpointFileError(folder / name)
    if name == "config.json" and not inner and (advice := which_adapter(folder)):
        return MissingCheckpointFileError(folder / name, advice=advice)
    parts = _parts_of_pipeline(folder) if "model_index.json" in names else {}
    own = [part for part in inner if parts.get(part) == "transformers"]
    if name == "config.json" and inner and not parts:
        advice = f"pass one of its folders that has it, or name it as the subfolder: {listed(inner)}"
        return MissingCheckpointFileError(folder / name, advice=advice)
    found, advice = held_instead(names, name)
    if parts:
        ways = [f"the subfolder {part}" for part in (own or [one for one in parts if parts[one] == "transformers"])[:2]]
        read = f"of its parts {' and '.join(ways)} can be read as it is" if ways else "none of its parts is known"
        found, advice = f"the folder holds a pipeline of diffusers: {listed(sorted(parts))}", read
    look = look_into_folder(folder)
    if look is None:
        return MissingCheckpointFileError(folder / name, advice=f"{found}; {advice}")
    alone = "; put the model's config.json beside them" if found.startswith(WEIGHTS_ALONE) else ""
    error = MissingCheckpointFileError(folder / name, advice=f"{found}{alone}")
    if advised(error, look, folder.resolve().name):
        if parts:
            error.args = (f"{error}; {advice}",)
        return error
    return MissingCheckpointFileError(folder / name, advice=f"{found}; {why_not(look, advice)}")


def _parts_of_pipeline(folder: Path) -> dict[str, str]:
    """Return the parts of a diffusers pipeline that exist as folders, each with its library."""
    try:
        index = read_json_object(folder / "model_index.json")
        folders = {path.name for path in folder.iterdir() if path.is_dir()}
    except (CheckpointError, OSError):
        return {}
    return {
        part: str(value[0])
        for part, value in index.items()
        if isinstance(value, list) and value and not part.startswith("_") and part in folders
    }


def advise_on_names(
    error: MissingTensorError | ShapeError,
    shapes: Mapping[str, Shape],
    files: tuple[Path, ...],
    config: Mapping[str, Any],
    architecture: str,
) -> None:
    """Add the program that the tensors belong to, and how to open them, to an error about their names or shapes."""
    if isinstance(error, MissingTensorError) and any(re.fullmatch(_any_layer(error.tensor), name) for name in shapes):
        return  # the names fit the type: the file lacks a layer
    look = look_at(shapes, config)
    if len(files) == 1 and files[0].suffix in (".safetensors", ".bin"):
        look = look._replace(load=("PATH", str(files[0])))
    elif files:
        look = look._replace(load=("PATH", str(files[0].parent)))
    attention = look.attention()
    if isinstance(error, ShapeError):
        if attention is None or not attention.names.startswith("nanoGPT") or architecture != "gpt2":
            return
        error.args = (one_line(f"{error}; nanoGPT's linear layers are the transpose of {architecture}'s"),)
    advised(error, look, "state")


def _any_layer(name: str) -> str:
    """Return a pattern for the names that differ from this one only in numbers, such as those of layers and experts."""
    return re.sub(r"\d+", r"\\d+", re.escape(name))


def advise_in_memory(error: ParameterError, model: object, tensors: Mapping[Any, Any], config: Any) -> None:
    """Add what is recognised in a model without a family, and how to open it, to an error."""
    if isinstance(model, Mapping):
        inner = [key for key, one in tensors.items() if isinstance(one, Mapping) and any(map(_is_tensor, one.values()))]
        if inner:
            error.args = (one_line(f"{error}; this mapping holds others: pass one of them, state[{quoted(inner[0])}]"),)
            return
    shapes = {key: tuple(one.shape) for key, one in tensors.items() if isinstance(key, str) and _is_tensor(one)}
    load = () if isinstance(model, Mapping) else ("state = module.state_dict()",)
    look = look_at(shapes, config if isinstance(config, Mapping) else {})._replace(load=load)
    if not isinstance(model, Mapping):
        forward = [name for name in signature(cast(Any, model).forward).parameters if name.isidentifier()]
        first = forward[0] if forward else "x"
        error.args = (one_line(f"{error}; a module is best read by running it, on a batch of two tokens or more"),)
        error.add_note(f'model = open_model(module, inputs={{"{first}": {first}}})')
        return
    if not advised(error, look, "state") and (why := why_no_attention(shapes)):
        error.args = (one_line(f"{error}; {why}"),)


def why_not(look: Look, advice: str) -> str:
    """Return advice for tensors among which no attention was recognised."""
    no_attention = why_no_attention(look.shapes)
    if no_attention:
        return no_attention
    if not look.shapes:
        return f"it is {SLICED}; {advice}" if look.found == SLICED else advice
    names = [name for name, shape in look.shapes.items() if len(shape) > 1] or list(look.shapes)
    few = ", ".join(quoted(name, 80) for name in names[:3])
    return (
        f"no attention is recognised among its {len(look.shapes)} tensors ({few}): load the state dict and say where "
        "the queries and keys are, open_model(state, sites=[Site(…)]), or give the module that it belongs to and a "
        "batch, open_model(module, inputs={…}); " + advice
    )


def program_of_config(config: Mapping[str, Any], folder: Path) -> str:
    """Name the program of a configuration that names no type of transformers; "" if it is unknown."""
    if isinstance(config.get("_class_name"), str) and "_diffusers_version" in config:
        return f"a {shown(config['_class_name'], 60)} of diffusers"
    if isinstance(config.get("architecture"), str) and {"pretrained_cfg", "num_features"} & config.keys():
        return f"a {shown(config['architecture'], 60)} of timm"
    if _is_ctranslate(folder / "model.bin"):
        return "a model of CTranslate2, whose weights are converted for its own program"
    return ""


def _seen(attention: Attention) -> str:
    heads = f" of {attention.n_heads} heads" if attention.n_heads else ""
    modules = "one module" if attention.n_modules == 1 else f"{attention.n_modules} modules"
    seen = f"attention{heads} in {modules}, under the names of {attention.names}"
    if attention.has_blank:
        return f"{seen}; how many heads is not stored: put that into the Python below, which opens it"
    return f"{seen}: open it by the Python below"


def _code(look: Look, attention: Attention, called: str) -> tuple[str, ...]:
    is_path = look.load[:1] == ("PATH",)
    given = repr(look.load[1]) if is_path else "state"
    load = () if is_path else look.load
    named = f", name={called!r}" if re.fullmatch(r"[\w.-]+", called, re.ASCII) and not is_path else ""
    return (_IMPORTS, *load, *attention.lines, f"model = open_model({given}, sites=sites{named})")


def _is_ctranslate(path: Path) -> bool:
    """Return True if a file begins like those of CTranslate2: a version, then the name of a specification."""
    with suppress(RmtbaseError), reading(path) as stream:
        first = stream.read(80)
        length = int.from_bytes(first[4:6], "little")
        return int.from_bytes(first[:4], "little") < 32 and first[6 : 6 + length].rstrip(b"\0").endswith(b"Spec")
    return False


def _is_tensor(value: object) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")
