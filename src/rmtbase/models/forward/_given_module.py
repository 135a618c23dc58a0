"""Proof of a module in memory, and the reasons why a module cannot be proved, found without running it.

A proof runs the code of the given module with noise in place of its activations. Code that cannot be traced, or that
must not run just for a proof, is a reason not to prove the module:

* forward hooks on a module or on all modules: they may change the computation, and may count or keep what they see;
* methods that were replaced on an instance, as accelerate's offloading replaces ``forward``;
* code within the attention, its maps and its norms that belongs to neither torch nor ``transformers``, in a model that
  is read as a type of ``transformers``;
* attention by a function that does not belong to ``transformers``;
* weights that are computed from others (``torch.nn.utils.parametrize``), compiled code, and weights without values.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from types import FunctionType, MethodType
from typing import Any

import torch
import transformers
from torch import nn
from torch.nn.utils import parametrize
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from rmtbase.errors import CheckpointError
from rmtbase.models.forward._probe_places import common_module
from rmtbase.models.forward._prove import prove_parts
from rmtbase.models.forward._stored_names import parameters_of
from rmtbase.models.forward._torch_route import Network
from rmtbase.models.layouts._expressions import Read
from rmtbase.models.layouts._sites import NORM_FIELDS, Disproved, Site, kind_of
from rmtbase.shown import one_line, quoted

_LIBRARIES = ("torch.", "transformers.")
_GLOBAL_HOOKS = ("_global_forward_hooks", "_global_forward_pre_hooks")
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")


def reason_not_proved(
    network: Network, sites: Sequence[Site], stored: Mapping[str, tuple[int, ...]], read: Read, noted: Collection[str]
) -> str | None:
    """Prove all sites of a module by running it as it was given, or return the reason why that is not possible."""
    assert network.given is not None
    names = [frozenset(site.query_key_tensors()) for site in sites]
    parameters = parameters_of(network.network, stored, names)
    stored_in = {own_name: frozenset(matrix.tensors()) for own_name, matrix in parameters.items()}
    weights = [  # by their names in the module
        sorted({own_name for own_name in stored_in if stored_in[own_name] & stored_names} or stored_names)
        for stored_names in names
    ]
    places = [_attention_of(network.network, *of_site) for of_site in zip(sites, weights, strict=True)]
    reason = next(_reasons(network.given, network.network, {*places}, sorted({*chain(*weights)})), None)
    if reason is not None:
        return reason
    try:
        traced = {frozenset(site.query_key_tensors()): site for site in network.inventory(stored).sites}
        own_parameters = dict(network.network.named_parameters(remove_duplicate=False))
        proved = prove_parts(sites, network.parts, parameters, read, network.path, own_parameters)
    except Disproved:
        raise
    except CheckpointError as error:
        return str(error)
    except Exception as error:  # a network may raise anything
        name = type(network.network).__name__
        return f"{name} does not run with its own queries and keys ({type(error).__name__}: {one_line(str(error))})"
    unresolved = {name: reason for part in network.parts for name, reason in part.unresolved.items()}
    for site, name, place in zip(sites, names, places, strict=True):
        trace = traced.get(name)
        if trace is None or site not in proved:
            reasons = (reason for path, reason in unresolved.items() if path.startswith(place))
            why = next(reasons, "they do not occur in it")
            return f"the forward pass shows no queries and keys of {site.place}: {why}"
        for difference in _differences(site, trace, (*noted, *site.notes)):
            read_with = f"those that a {network.path} is read with"
            return f"{difference} of {site.place} differ in the forward pass from {read_with}"
    return None


def _differences(site: Site, traced: Site, noted: Collection[str]) -> Iterator[str]:
    for name in NORM_FIELDS:
        if getattr(site, name) is not None and getattr(site, name) != getattr(traced, name):
            yield name.replace("_", " ") + "s"
    if site.rotated is not None and site.rotated != (traced.rotated or 0):
        yield "rotated dimensions"
    if "norms" in map(kind_of, traced.notes) and "norms" not in map(kind_of, noted):
        yield "norms of queries or keys"


def _attention_of(network: nn.Module, site: Site, weights: Sequence[str]) -> str:
    """Return the name of the module that contains a site's query and key maps, whose weights have these names there."""
    for place in (site.module or common_module(weights), common_module(weights)):
        try:
            is_a_map = next(network.get_submodule(place).children(), None) is None
        except AttributeError:  # the site has the names of stored tensors
            continue
        return place.rpartition(".")[0] if is_a_map else place
    return site.module


def _reasons(
    wrapper: nn.Module, module: nn.Module, attention: Collection[str], weights: Collection[str]
) -> Iterator[str]:
    """Yield the reasons why a module cannot be run or traced, as it was given or without its wrapper."""
    for kind in _GLOBAL_HOOKS:
        for hook in getattr(nn.modules.module, kind).values():
            yield f"a forward hook of all modules, {_called(hook)}, may change what it computes"
    for path, submodule in wrapper.named_modules():
        where = quoted(path) if path else "the module itself"
        for kind in _HOOKS:
            for hook in getattr(submodule, kind, {}).values():
                pre = "pre-" if "pre" in kind else ""
                yield f"a forward {pre}hook on {where}, {_called(hook)}, may change what it computes"
        if isinstance(submodule, torch.jit.ScriptModule):
            yield f"{where} is TorchScript, whose operations are not seen"
        if getattr(submodule, "_compiled_call_impl", None) is not None or type(submodule).__name__ == "OptimizedModule":
            yield f"{where} is compiled, which hides its products; pass the module as it was before torch.compile"
        for name in _replaced(submodule):
            yield f"{name} of {where} was replaced on the instance"
        if parametrize.is_parametrized(submodule):
            names = ", ".join(submodule.parametrizations)  # pyright: ignore[reportArgumentType, reportCallIssue]
            yield f"{names} of {where} is computed from other tensors (torch.nn.utils.parametrize)"
    values = dict(module.named_parameters(remove_duplicate=False))
    for name in weights:
        if name in values and values[name].is_meta:
            yield f"{quoted(name)} is on torch's meta device, without values"
    yield from _other_attention(module)
    if isinstance(module, transformers.PreTrainedModel):
        yield from _other_code(module, attention)


def _replaced(module: nn.Module) -> Iterator[str]:
    for name, value in vars(module).items():
        if callable(value) and isinstance(getattr(type(module), name, None), (FunctionType, MethodType)):
            yield name


def _other_attention(module: nn.Module) -> Iterator[str]:
    configs = (getattr(part, "config", None) for part in module.modules())
    for config in {id(config): config for config in configs}.values():
        name = getattr(config, "_attn_implementation", None)
        if not isinstance(name, str) or name.removeprefix("paged|") in ("eager", "flex_attention"):
            continue
        function = ALL_ATTENTION_FUNCTIONS.get(name)
        if function is None or not _is_of_the_libraries(function):
            function_found = "is unknown to transformers" if function is None else f"is {_called(function)}"
            yield f"its attention implementation {quoted(name)} {function_found}, whose products are not known"


def _other_code(module: nn.Module, attention: Collection[str]) -> Iterator[str]:
    for path, submodule in module.named_modules():
        if not any(path == place or path.startswith(f"{place}.") or not place for place in attention):
            continue
        for name in ("forward", "__call__"):
            code = getattr(type(submodule), name)
            if not _is_of_the_libraries(code):
                yield f"{quoted(path)} computes with {type(submodule).__name__}.{name}, of neither library"


def _is_of_the_libraries(function: Any) -> bool:
    """Return True if all code of a function, including what it wraps, belongs to torch or ``transformers``."""
    while function is not None:
        inner = getattr(function, "__wrapped__", None) or getattr(function, "func", None)
        written = getattr(function, "__globals__", None)  # not __module__, which functools.wraps copies to a wrapper
        if written is not None and not f"{written.get('__name__')}.".startswith(_LIBRARIES):
            return False
        if written is None and inner is None:
            return f"{getattr(function, '__module__', None)}.".startswith(_LIBRARIES)
        function = inner
    return True


def _called(function: Any) -> str:
    return quoted(getattr(function, "__qualname__", None) or type(function).__name__)
