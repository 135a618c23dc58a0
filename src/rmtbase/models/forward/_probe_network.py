"""Network of ``transformers`` without its weights, built from its configuration, and the sites that its passes show.

No remote code is run: a configuration of an unknown type that names its own code is refused.
"""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import torch
import transformers
from torch import nn

from rmtbase.errors import CheckpointError, UnknownArchitectureError
from rmtbase.models.forward._probe import Reading
from rmtbase.models.forward._probe_inputs import possible_inputs
from rmtbase.models.forward._probe_layers import like_layers
from rmtbase.models.forward._probe_places import Met
from rmtbase.models.forward._probe_rows import ONE_TOKEN
from rmtbase.shown import quoted

_CHUNK = 16  # tokens
_HELD_BY_MODULES = {"_parameters", "_buffers", "_modules"}
_ONE_AT_A_TIME = threading.RLock()
_MOST_MODULES = 10_000  # layers, experts, heads; no network has more, and building more would take forever
_COUNTED = re.compile(r".*(layers?|blocks?|experts?|heads?|groups?)|depth")


@dataclass(frozen=True)
class Part:
    module: nn.Module  # the part
    prefix: str  # prefix of the names of its modules
    inputs: Mapping[str, Any]  # the inputs on which it was run
    met: Mapping[str, Met]  # the sites that its passes showed, by the key of their softmax
    unresolved: Mapping[str, str]  # the reason why a module could not be read, by the module's name
    entered: Mapping[str, None]  # the modules that ran

    @classmethod
    def read(cls, module: nn.Module, inputs: Mapping[str, Any], prefix: str) -> Part:
        """Run a module on inputs; only two of the layers that are alike run if they represent the others."""
        groups = [*like_layers(module)]
        if groups:
            try:
                with ExitStack() as left_out:
                    for attributes in _configs(module):
                        if "use_cache" in attributes:
                            left_out.callback(attributes.__setitem__, "use_cache", attributes["use_cache"])
                            attributes["use_cache"] = False
                    for layers in groups:
                        left_out.enter_context(layers.left_out())
                    reading = Reading.from_module(module, inputs, prefix)
                (met, unresolved), entered = reading.sites, reading.plain.entered
                for layers in groups:
                    met, unresolved = layers.spread(met, prefix), layers.spread(unresolved, prefix)
                    entered = layers.spread(entered, prefix)
                return cls(module, prefix, reading.inputs, met, unresolved, entered)
            except Exception:  # a network without some of its layers may raise anything
                pass
        try:
            reading = Reading.from_module(module, inputs, prefix)
        except Exception:  # its cache may have fewer entries than it has layers
            keeps_cache = bool(getattr(getattr(module, "config", None), "use_cache", False))
            if not keeps_cache or "use_cache" not in signature(module.forward).parameters or "use_cache" in inputs:
                raise
            reading = Reading.from_module(module, {**inputs, "use_cache": False}, prefix)
        return cls(module, prefix, reading.inputs, *reading.sites, reading.plain.entered)


def build(config: Mapping[str, Any], path: Path) -> nn.Module:
    types = transformers.models.auto.configuration_auto.CONFIG_MAPPING
    name = config.get("model_type")
    if not isinstance(name, str) or name not in types:
        if "auto_map" in config:
            problem = f"model_type {quoted(str(name))} brings its own code (auto_map), which is not run"
            expected = f"a type of transformers {transformers.__version__}: load it yourself and pass the module"
            raise CheckpointError(path, f"{problem}; expected {expected}")
        raise UnknownArchitectureError(path, str(name), tuple(sorted(types.keys())))
    _require_countable(config, path)
    try:
        own_settings = {key: setting for key, setting in config.items() if key != "auto_map"}
        made = types[name].from_dict(transformers.PreTrainedConfig._decode_special_floats(own_settings))
        with torch.device("meta"):
            of_class = _class(config, made)
            network = of_class(made) if of_class else transformers.AutoModel.from_config(made)
            for module in [*network.modules()]:  # full attention, as BigBird itself has during a pass over a short text
                change: Any = getattr(module, "set_attention_type", None)
                if change is not None and getattr(module, "attention_type", None) == "block_sparse":
                    change("original_full")
        generator = torch.Generator().manual_seed(5)
        for module in network.modules():  # the values of buffers, as loading sets them: first noise, then by the class
            for key, buffer in module._buffers.items():
                if buffer is not None and buffer.is_meta:
                    real = torch.zeros(buffer.shape, dtype=buffer.dtype)
                    module._buffers[key] = real.uniform_(generator=generator) if buffer.is_floating_point() else real
        with torch.no_grad():
            network.initialize_weights()
    except Exception as error:  # a class of transformers, or its initialization, may raise anything
        reason = str(error) or type(error).__name__
        raise CheckpointError(path, f"transformers cannot build {quoted(name)}: {reason}") from error
    return network.eval()


def _require_countable(config: Mapping[str, Any], path: Path) -> None:
    for key, value in config.items():
        if isinstance(value, Mapping):
            _require_countable(value, path)
        elif type(value) is int and value > _MOST_MODULES and _COUNTED.fullmatch(key):
            raise CheckpointError(path, f"{key} = {value}; expected no more than {_MOST_MODULES:,}")


def _class(config: Mapping[str, Any], made: Any) -> type | None:
    """Return the class that the checkpoint was saved from or one of its type, or None if AutoModel can choose."""
    named = config.get("architectures") or ()
    try:
        module = import_module(type(made).__module__.replace("configuration_", "modeling_"))
    except ModuleNotFoundError:  # EXAONE's networks are those of Llama
        classes = [getattr(transformers, str(name), None) for name in named]
        return next((class_ for class_ in classes if _is_network(class_)), None)
    networks = [class_ for class_ in vars(module).values() if _is_network(class_)]
    of_type = [class_ for class_ in networks if getattr(class_, "config_class", None) is type(made)]
    saved = [class_ for class_ in of_type if class_.__name__ in named]
    if not saved and type(made) not in transformers.AutoModel._model_mapping:
        saved = [class_ for class_ in of_type if "PreTrained" not in class_.__name__]
    return saved[0] if saved else None


def _is_network(class_: Any) -> TypeGuard[type[transformers.PreTrainedModel]]:
    return isinstance(class_, type) and issubclass(class_, transformers.PreTrainedModel)


@contextmanager
def written_out(network: nn.Module) -> Iterator[None]:
    """Use explicit attention and experts in torch instead of kernels, as a context manager; all changes are undone."""
    names = ("_attn_implementation_internal", "_experts_implementation_internal")
    with _ONE_AT_A_TIME, torch.random.fork_rng(devices=[]), ExitStack() as undone:
        undone.callback(random.setstate, random.getstate())
        undone.callback(np.random.set_state, np.random.get_state())  # noqa: NPY002, a network may draw from it
        configs, modules = _configs(network), [vars(module) for module in network.modules()]
        for attributes in (*configs, *modules):  # a forward pass, such as Swin's, may store sizes of its inputs
            undone.callback(_put_back, attributes, dict(attributes))
            for name in _HELD_BY_MODULES & attributes.keys():
                undone.callback(_put_back, attributes[name], dict(attributes[name]))
        for attributes in configs:
            attributes.update({name: "eager" for name in names if name in attributes})
            if attributes.get("add_cross_attention") and "use_cache" in attributes:
                attributes["use_cache"] = False
        for attributes in modules:
            if "A_log" in attributes["_parameters"] and isinstance(attributes.get("chunk_size"), int):
                attributes["chunk_size"] = _CHUNK
        yield


def _put_back(attributes: dict[str, Any], before: Mapping[str, Any]) -> None:
    for name in attributes.keys() - before.keys():
        del attributes[name]
    attributes.update(before)


def _configs(network: nn.Module) -> list[dict[str, Any]]:
    configs = [getattr(module, "config", None) for module in network.modules()]
    return [*{id(config): vars(config) for config in configs if hasattr(config, "__dict__")}.values()]


def read_parts(network: nn.Module, inputs: Mapping[str, Any] | None = None) -> list[Part]:
    """Run the whole network on inputs that it accepts, then those of its models that have not run."""
    parts: list[Part] = []
    entered: set[str] = set()
    first: Exception | None = None
    with written_out(network):
        for path, module in network.named_modules():
            if path and (path in entered or not isinstance(module, transformers.PreTrainedModel)):
                continue
            prefix = f"{path}." if path else ""
            best: Part | None = None
            for candidate in [inputs] if inputs is not None and not path else possible_inputs(module):
                try:
                    part = Part.read(module, candidate, prefix)
                except Exception as error:  # other inputs may work
                    first = first or error
                    continue
                if best is None or len(part.unresolved) < len(best.unresolved):
                    best = part
                if ONE_TOKEN not in part.unresolved.values():  # a larger image has more tokens
                    break
            if best is not None:
                parts.append(best)
                entered.update(best.entered)
    if not parts:
        raise first or ValueError(f"no inputs are known for {type(network).__name__}")
    return parts


def never_run(network: nn.Module, parts: Sequence[Part]) -> list[str]:
    """List the modules that are attention by their class name, have parameters, and did not run in any pass."""
    entered = {path for part in parts for path in part.entered}
    return [
        path
        for path, module in network.named_modules()
        if "attention" in type(module).__name__.lower()
        and path not in entered
        and next(module.parameters(), None) is not None
    ]
