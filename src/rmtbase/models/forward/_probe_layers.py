"""Layers of a network that need not run: those without wanted weights, which return their input, and those like others.

Two layers are *alike* if, module for module, they have the same class, shapes of parameters (none shared), buffers and
attributes, except for the layer's number. Of these only the first two run. Their results hold for the others if both
are the same, no layer uses its number, the layers are called once in order, each with the output of the one before
and the same further arguments, and outputs have the shape of inputs. If any of this fails, the whole network runs.
"""

import re
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from rmtbase.models.layouts._expressions import Expression
from rmtbase.models.layouts._sites import Note

_T = TypeVar("_T")
_RUNNING = 2  # layers that run among those that are alike


class Unlike(Exception):  # noqa: N818
    """Error: layers that are built alike behave differently, or do not follow each other."""


class _Unanswering:
    def _asked(self, *_: Any) -> Any:
        raise Unlike("a layer asks for its number")

    __eq__ = __ne__ = __hash__ = __bool__ = __str__ = __repr__ = __format__ = _asked  # all else raises TypeError


@contextmanager
def only_layers_of(
    network: nn.Module, parameters: Mapping[str, Expression], sites: Sequence[frozenset[str]]
) -> Iterator[None]:
    """Leave out layers without queries or keys of the given sites, as a context manager."""
    shared = network.named_parameters(remove_duplicate=False)
    holding = {id(parameter): frozenset(parameters[name].tensors()) for name, parameter in shared if name in parameters}
    with ExitStack() as changed:
        for stack in [module for module in network.modules() if isinstance(module, nn.ModuleList)]:
            of_layers = ([holding.get(id(parameter), ()) for parameter in layer.parameters()] for layer in stack)
            tensors_of_layers = [frozenset().union(*tensors) for tensors in of_layers]
            if not all(tensors_of_layers) and any(site <= tensors for site in sites for tensors in tensors_of_layers):
                _leave_out(stack, [not tensors for tensors in tensors_of_layers], changed)
        yield


def _leave_out(stack: nn.ModuleList, are_left_out: Sequence[bool], changed: ExitStack) -> None:
    beside: dict[type, tuple[Any, ...]] = {}  # what the last layer of a class returned beside its activations

    def keep(layer: nn.Module, inputs: Any, result: Any) -> None:
        beside[type(layer)] = result[1:] if isinstance(result, tuple) else ()

    def give(kind: type, *args: Any, **kwargs: Any) -> Any:
        inputs = args[0] if args else next(iter(kwargs.values()))
        return (inputs, *beside[kind]) if beside.get(kind) else inputs

    for layer, is_left_out in zip(stack, are_left_out, strict=True):
        if is_left_out:
            layer.forward = partial(give, type(layer))
            changed.callback(layer.__dict__.pop, "forward")
        else:
            changed.callback(layer.register_forward_hook(keep).remove)


@dataclass
class LikeLayers:
    name: str  # name of the list
    layers: nn.ModuleList  # the list
    kinds: list[list[int]]  # for each kind with layers that are left out, the numbers of the layers that are alike
    numbered: list[tuple[nn.Module, str]]  # the modules that hold the layer's number, and the name of the attribute
    _next: int = 0
    _before: Any = None
    _called: dict[int, tuple[Any, list[Any], Any]] = field(default_factory=dict)

    @property
    def _shown_by(self) -> dict[int, int]:
        return {number: kind[_RUNNING - 1] for kind in self.kinds for number in kind[_RUNNING:]}

    @contextmanager
    def left_out(self) -> Iterator[None]:
        shown_by = self._shown_by
        with ExitStack() as changed:
            for module, name in self.numbered:
                changed.callback(vars(module).__setitem__, name, vars(module)[name])
                vars(module)[name] = _Unanswering()
            for number, layer in enumerate(self.layers):
                if number in shown_by:
                    layer.forward = partial(self._give, number, shown_by[number])
                    changed.callback(layer.__dict__.pop, "forward")
                else:
                    keep = partial(self._keep, number, number in shown_by.values())
                    changed.callback(layer.register_forward_hook(keep, with_kwargs=True).remove)
            yield
        if self._next:
            raise Unlike("not every layer was called")

    def _call(self, number: int, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, list[Any], Any]:
        if number != self._next or not (args or kwargs):
            raise Unlike("layers are not called one after the other")
        self._next = (number + 1) % len(self.layers)
        first = None if args else next(iter(kwargs))
        activations = args[0] if first is None else kwargs[first]
        if number and activations is not self._before:
            raise Unlike("a layer is not given what the one before gave")
        return activations, *tree_flatten((args[1:], {name: value for name, value in kwargs.items() if name != first}))

    def _keep(
        self, number: int, shows: bool, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        activations, arguments, spec = self._call(number, args, kwargs)
        self._before = result[0] if isinstance(result, tuple) else result
        if shows:
            if not isinstance(self._before, Tensor) or self._before.shape != activations.shape:
                raise Unlike("a layer gives something else than activations of the shape that it was given")
            self._called[number] = result, arguments, spec

    def _give(self, number: int, shown_by: int, *args: Any, **kwargs: Any) -> Any:
        activations, arguments, spec = self._call(number, args, kwargs)
        result, shown_others, shown_spec = self._called[shown_by]
        if spec != shown_spec or not all(map(_is_same, arguments, shown_others)):
            raise Unlike("layers are given different things")
        self._before = activations
        return (activations, *result[1:]) if isinstance(result, tuple) else activations

    def spread(self, results: Mapping[str, _T], prefix: str) -> dict[str, _T]:
        stem, items = prefix + self.name, list(results.items())
        inside = re.compile(rf"{re.escape(stem)}\.(\d+)(?![^.|])")
        numbers = [int(match[1]) if (match := inside.match(name)) else None for name in results]
        places = [place for place, number in enumerate(numbers) if number is not None]
        if not places:
            return dict(results)
        of_layer: dict[int | None, dict[str, _T]] = {number: {} for number in range(len(self.layers))}
        for number, (name, result_of_layer) in zip(
            numbers[places[0] : places[-1] + 1], items[places[0] :], strict=False
        ):
            if number is None:
                raise Unlike("something else runs between the layers")
            of_layer[number][name] = result_of_layer

        def told(number: int, as_number: int) -> dict[str, _T]:
            return _renamed(of_layer[number], rf"(?<![\w.]){re.escape(stem)}\.{number}(?![^.|])", f"{stem}.{as_number}")

        for first, second, *_ in self.kinds:
            if not _is_equal(told(first, second), of_layer[second]):
                raise Unlike("the first two layers of a kind show different things")
        shown_by = self._shown_by
        result = dict(items[: places[0]])
        for number in range(len(self.layers)):
            result |= told(shown_by[number], number) if number in shown_by else of_layer[number]
        return result | dict(items[places[-1] + 1 :])


def like_layers(module: nn.Module, name: str = "", shared: frozenset[int] | None = None) -> Iterator[LikeLayers]:
    """Yield the lists of layers some of which need not run, none within another."""
    if shared is None:
        counts = Counter(id(parameter) for _, parameter in module.named_parameters(remove_duplicate=False))
        shared = frozenset(key for key, count in counts.items() if count > 1)
    if isinstance(module, nn.ModuleList) and len(module) > _RUNNING:
        kinds: list[list[int]] = []
        numbered: dict[tuple[int, str], tuple[nn.Module, str]] = {}
        for number, layer in enumerate(module):
            for kind in kinds:
                numbered_pairs = _alike(module[kind[0]], layer, (kind[0], number))
                if numbered_pairs is not None:
                    kind.append(number)
                    numbered |= {(id(submodule), word): (submodule, word) for submodule, word in numbered_pairs}
                    break
            else:
                kinds.append([number])
        kinds = [kind for kind in kinds if len(kind) > _RUNNING]
        of_kinds = [module[number] for kind in kinds for number in kind]
        if kinds and not any(id(parameter) in shared for layer in of_kinds for parameter in layer.parameters()):
            yield LikeLayers(name, module, kinds, list(numbered.values()))
            return
    for word, child in module.named_children():
        yield from like_layers(child, f"{name}.{word}".lstrip("."), shared)


def _alike(first: nn.Module, second: nn.Module, numbers: tuple[int, int]) -> list[tuple[nn.Module, str]] | None:
    """Return the modules and attributes with the numbers of two layers, or None if these are not built alike."""
    first_vars, second_vars = vars(first), vars(second)
    if type(first) is not type(second) or first is second or first_vars.keys() != second_vars.keys():
        return None
    numbered: list[tuple[nn.Module, str]] = []
    for name, value in first_vars.items():
        against = second_vars[name]
        if name in ("_parameters", "_buffers"):
            if value.keys() != against.keys() or not all(map(_is_like, value.values(), against.values())):
                return None
        elif name == "_modules":
            if value.keys() != against.keys():
                return None
            for child, against_child in zip(value.values(), against.values(), strict=True):
                if child is None or against_child is None:
                    within = [] if child is against_child else None
                else:
                    within = _alike(child, against_child, numbers)
                if within is None:
                    return None
                numbered += within
        elif type(value) is int and type(against) is int and (value, against) == numbers:
            numbered += [(first, name), (second, name)]
        elif isinstance(value, OrderedDict) and isinstance(against, OrderedDict):  # hooks, under arbitrary keys
            if list(value.values()) != list(against.values()):
                return None
        elif not _is_same(value, against):
            return None
    return numbered


def _is_like(first: Tensor | None, second: Tensor | None) -> bool:
    if first is None or second is None:
        return first is second
    if first.shape != second.shape or first.dtype != second.dtype or first.device != second.device:
        return False
    return isinstance(first, nn.Parameter) or first.is_meta or torch.equal(first, second)


def _is_same(first: Any, second: Any) -> bool:
    if first is second:
        return True
    if type(first) is not type(second):
        return False
    if isinstance(first, (list, tuple)):
        return len(first) == len(second) and all(map(_is_same, first, second))
    if isinstance(first, dict):
        return list(first) == list(second) and all(map(_is_same, first.values(), second.values()))
    if isinstance(first, partial):
        return _is_same((first.func, first.args, first.keywords), (second.func, second.args, second.keywords))
    return isinstance(first, (int, float, complex, str, set, frozenset, torch.dtype, torch.Size)) and first == second


def _renamed(value: Any, pattern: str, by: str) -> Any:
    if isinstance(value, Note):
        return value.renamed(lambda name: re.sub(pattern, lambda _: by, name))
    if isinstance(value, str):
        return re.sub(pattern, lambda _: by, value)
    if isinstance(value, dict):
        return {_renamed(name, pattern, by): _renamed(item, pattern, by) for name, item in value.items()}
    if isinstance(value, tuple):
        parts = [_renamed(item, pattern, by) for item in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if is_dataclass(value) and not isinstance(value, type):
        parts = {part.name: _renamed(getattr(value, part.name), pattern, by) for part in fields(value)}
        return replace(value, **parts)
    return value


def _is_equal(first: Any, second: Any) -> bool:
    if isinstance(first, dict):
        return list(first) == list(second) and all(map(_is_equal, first.values(), second.values()))
    if isinstance(first, tuple):
        return len(first) == len(second) and all(map(_is_equal, first, second))
    if isinstance(first, float):
        return bool(np.isclose(first, second, rtol=1e-9, atol=0))
    return np.array_equal(first, second) if isinstance(first, np.ndarray) else first == second
