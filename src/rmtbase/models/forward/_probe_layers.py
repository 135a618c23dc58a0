"""Layers of a network that need not run, because nothing in them is wanted or because they are like other layers.

A layer that is left out returns its input. Two layers are *alike* if they are built alike: module for module they have
the same class, parameters of the same shapes, none of them shared, the same buffers and the same attributes, except for
the layer's number. Of layers that are alike only the first two run. Their results hold for the others if

* both results are the same, except for the layer's number in names (the first layer reads embeddings, the second reads
  the output of a layer);
* no layer uses its number, which is replaced by an object that raises;
* the layers were called once in a pass, in order, each with the output of the layer before; and layers that are left
  out had the same further arguments as the second one;
* the output of a layer has the shape of its input.

The code of a layer then sees the same, whichever layer it is. If any of this fails, the whole network runs.
"""

from __future__ import annotations

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

_T = TypeVar("_T")
_RUNNING = 2  # layers that run among those that are alike


class Unlike(Exception):  # noqa: N818
    """Error: layers that are built alike behave differently, or do not follow each other."""


class _Unanswering:
    """Placeholder for a layer's number."""

    def _asked(self, *_: Any) -> Any:
        raise Unlike("a layer asks for its number")

    __eq__ = __ne__ = __hash__ = __bool__ = __str__ = __repr__ = __format__ = _asked  # all else raises TypeError


@contextmanager
def only_layers_of(
    network: nn.Module, parameters: Mapping[str, Expression], sites: Sequence[frozenset[str]]
) -> Iterator[None]:
    """Leave out layers without queries or keys of the given sites, as a context manager.

    A stack of layers is a list of modules some of which hold all queries and keys of a site. The product of these is
    then computed inside a layer, so that no layer between a map of a site and its product is left out. A layer that is
    left out returns its input; if layers of its class return more, it also returns what the last of them returned.
    """
    shared = network.named_parameters(remove_duplicate=False)
    holding = {id(one): frozenset(parameters[name].tensors()) for name, one in shared if name in parameters}
    with ExitStack() as changed:
        for stack in [one for one in network.modules() if isinstance(one, nn.ModuleList)]:
            held = [frozenset().union(*(holding.get(id(one), ()) for one in layer.parameters())) for layer in stack]
            if not all(held) and any(site <= each for site in sites for each in held):
                _leave_out(stack, [not each for each in held], changed)
        yield


def _leave_out(stack: nn.ModuleList, are_left_out: Sequence[bool], changed: ExitStack) -> None:
    """Let these layers of a stack return their input, until the changes are undone."""
    beside: dict[type, tuple[Any, ...]] = {}  # what the last layer of a class returned beside its activations

    def keep(layer: nn.Module, given: Any, result: Any) -> None:
        beside[type(layer)] = result[1:] if isinstance(result, tuple) else ()

    def give(kind: type, *args: Any, **kwargs: Any) -> Any:
        given = args[0] if args else next(iter(kwargs.values()))
        return (given, *beside[kind]) if beside.get(kind) else given

    for layer, is_left_out in zip(stack, are_left_out, strict=True):
        if is_left_out:
            layer.forward = partial(give, type(layer))
            changed.callback(layer.__dict__.pop, "forward")
        else:
            changed.callback(layer.register_forward_hook(keep).remove)


@dataclass
class LikeLayers:
    """List of layers some of which are alike, and their calls in the current pass."""

    name: str  # name of the list
    layers: nn.ModuleList  # the list
    kinds: list[list[int]]  # for each kind with layers that are left out, the numbers of the layers that are alike
    numbered: list[tuple[nn.Module, str]]  # the modules that hold the layer's number, and the name of the attribute
    _next: int = 0
    _before: Any = None
    _called: dict[int, tuple[Any, list[Any], Any]] = field(default_factory=dict)

    @property
    def _shown_by(self) -> dict[int, int]:
        """The layers that are left out, each with the layer that represents it: the second of its kind."""
        return {number: kind[_RUNNING - 1] for kind in self.kinds for number in kind[_RUNNING:]}

    @contextmanager
    def left_out(self) -> Iterator[None]:
        """Leave out layers that another represents, and hide all numbers of layers, as a context manager."""
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
        """Return the activations that a layer is called with, and all other arguments."""
        if number != self._next or not (args or kwargs):
            raise Unlike("layers are not called one after the other")
        self._next = (number + 1) % len(self.layers)
        first = None if args else next(iter(kwargs))
        given = args[0] if first is None else kwargs[first]
        if number and given is not self._before:
            raise Unlike("a layer is not given what the one before gave")
        return given, *tree_flatten((args[1:], {name: one for name, one in kwargs.items() if name != first}))

    def _keep(
        self, number: int, shows: bool, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        given, others, spec = self._call(number, args, kwargs)
        self._before = result[0] if isinstance(result, tuple) else result
        if shows:
            if not isinstance(self._before, Tensor) or self._before.shape != given.shape:
                raise Unlike("a layer gives something else than activations of the shape that it was given")
            self._called[number] = result, others, spec

    def _give(self, number: int, shown_by: int, *args: Any, **kwargs: Any) -> Any:
        given, others, spec = self._call(number, args, kwargs)
        result, shown_others, shown_spec = self._called[shown_by]
        if spec != shown_spec or not all(map(_is_same, others, shown_others)):
            raise Unlike("layers are given different things")
        self._before = given
        return (given, *result[1:]) if isinstance(result, tuple) else given

    def spread(self, found: Mapping[str, _T], prefix: str) -> dict[str, _T]:
        """Add to the results those of the layers that were left out."""
        stem, items = prefix + self.name, list(found.items())
        inside = re.compile(rf"{re.escape(stem)}\.(\d+)(?![^.|])")
        numbers = [int(match[1]) if (match := inside.match(name)) else None for name in found]
        places = [place for place, number in enumerate(numbers) if number is not None]
        if not places:
            return dict(found)
        of_layer: dict[int | None, dict[str, _T]] = {number: {} for number in range(len(self.layers))}
        for number, (name, one) in zip(numbers[places[0] : places[-1] + 1], items[places[0] :], strict=False):
            if number is None:
                raise Unlike("something else runs between the layers")
            of_layer[number][name] = one

        def told(number: int, other: int) -> dict[str, _T]:
            """Return the results of a layer under the names of another."""
            return _renamed(of_layer[number], rf"(?<![\w.]){re.escape(stem)}\.{number}(?![^.|])", f"{stem}.{other}")

        for first, second, *_ in self.kinds:
            if not _is_equal(told(first, second), of_layer[second]):
                raise Unlike("the first two layers of a kind show different things")
        shown_by = self._shown_by
        result = dict(items[: places[0]])
        for number in range(len(self.layers)):
            result |= told(shown_by[number], number) if number in shown_by else of_layer[number]
        return result | dict(items[places[-1] + 1 :])


def like_layers(network: nn.Module, name: str = "") -> Iterator[LikeLayers]:
    """Yield the lists of layers some of which need not run, none within another."""
    shared = Counter(id(one) for _, one in network.named_parameters(remove_duplicate=False))
    yield from _like_layers(network, name, frozenset(one for one, count in shared.items() if count > 1))


def _like_layers(module: nn.Module, name: str, shared: frozenset[int]) -> Iterator[LikeLayers]:
    if isinstance(module, nn.ModuleList) and len(module) > _RUNNING:
        kinds: list[list[int]] = []
        numbered: dict[tuple[int, str], tuple[nn.Module, str]] = {}
        for number, layer in enumerate(module):
            for kind in kinds:
                same = _alike(module[kind[0]], layer, (kind[0], number))
                if same is not None:
                    kind.append(number)
                    numbered |= {(id(one), word): (one, word) for one, word in same}
                    break
            else:
                kinds.append([number])
        kinds = [kind for kind in kinds if len(kind) > _RUNNING]
        of_kinds = [module[number] for kind in kinds for number in kind]
        if kinds and not any(id(one) in shared for layer in of_kinds for one in layer.parameters()):
            yield LikeLayers(name, module, kinds, list(numbered.values()))
            return
    for word, child in module.named_children():
        yield from _like_layers(child, f"{name}.{word}".lstrip("."), shared)


def _alike(one: nn.Module, other: nn.Module, numbers: tuple[int, int]) -> list[tuple[nn.Module, str]] | None:
    """Return the modules and attributes with the numbers of two layers, or None if these are not built alike."""
    own, others = vars(one), vars(other)
    if type(one) is not type(other) or one is other or own.keys() != others.keys():
        return None
    numbered: list[tuple[nn.Module, str]] = []
    for name, value in own.items():
        against = others[name]
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
            numbered += [(one, name), (other, name)]
        elif isinstance(value, OrderedDict) and isinstance(against, OrderedDict):  # hooks, under arbitrary keys
            if list(value.values()) != list(against.values()):
                return None
        elif not _is_same(value, against):
            return None
    return numbered


def _is_like(one: Tensor | None, other: Tensor | None) -> bool:
    """Return True if two parameters or buffers have the same shape and type, and buffers also the same values."""
    if one is None or other is None:
        return one is other
    if one.shape != other.shape or one.dtype != other.dtype or one.device != other.device:
        return False
    return isinstance(one, nn.Parameter) or one.is_meta or torch.equal(one, other)


def _is_same(one: Any, other: Any) -> bool:
    """Return True if two objects are identical, or equal numbers, strings, collections or partial calls."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_is_same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(map(_is_same, one.values(), other.values()))
    if isinstance(one, partial):
        return _is_same((one.func, one.args, one.keywords), (other.func, other.args, other.keywords))
    return isinstance(one, (int, float, complex, str, set, frozenset, torch.dtype, torch.Size)) and one == other


def _renamed(value: Any, pattern: str, by: str) -> Any:
    """Replace matching names anywhere in a nested value."""
    if isinstance(value, str):
        return re.sub(pattern, lambda _: by, value)
    if isinstance(value, dict):
        return {_renamed(name, pattern, by): _renamed(one, pattern, by) for name, one in value.items()}
    if isinstance(value, tuple):
        parts = [_renamed(one, pattern, by) for one in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{one.name: _renamed(getattr(value, one.name), pattern, by) for one in fields(value)})
    return value


def _is_equal(one: Any, other: Any) -> bool:
    """Return True if the results of two layers are equal, floating-point numbers up to rounding."""
    if isinstance(one, dict):
        return list(one) == list(other) and all(map(_is_equal, one.values(), other.values()))
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(_is_equal, one, other))
    if isinstance(one, float):
        return bool(np.isclose(one, other, rtol=1e-9, atol=0))
    return np.array_equal(one, other) if isinstance(one, np.ndarray) else one == other
