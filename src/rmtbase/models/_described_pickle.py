"""Description of the value that a pickle of any program would make, without making it.

Training states hold more than tensors: arguments, paths, random states. Nothing is imported or called here: an object
that the program would make is noted by its class and its arguments. What is described is for messages only; weights are
read by :mod:`rmtbase.models._torch_file`, whose machine knows fewer instructions and refuses the rest.

Reference: the Python library's ``pickletools``.
"""

from __future__ import annotations

import pickletools
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, BinaryIO

_MOST_STEPS = 1_000_000  # instructions; one tensor takes fifty
_LARGEST_KEY = 1 << 60  # larger ones may have the hash of another
_MAPPINGS = ("collections OrderedDict", "collections defaultdict", "builtins dict")
_TENSORS = ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3", "_rebuild_from_type_v2")


@dataclass
class Made:
    """An object of a class: its name as ``module class``, the arguments of its making, and the state set on it."""

    name: str
    arguments: tuple[Any, ...] = ()
    state: dict[Any, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class DescribedTensor:
    """A tensor, of which only the shape is told."""

    shape: tuple[int, ...]


class _Mark:
    pass


_MARK = _Mark()


def described(program: BinaryIO) -> Any:
    """The value at the top of the pickle at the stream's place; the stream is left behind it.

    Raises:
        ValueError: it is no pickle, or takes more than 1 000 000 instructions.
    """
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    try:
        for code, argument, _ in islice(pickletools.genops(program), _MOST_STEPS):
            if code.name == "STOP":
                return stack[-1]
            _step(code, argument, stack, memo)
    except (IndexError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError("no whole pickle") from error
    raise ValueError("no whole pickle")


def _step(code: pickletools.OpcodeInfo, argument: Any, stack: list[Any], memo: dict[int, Any]) -> None:
    name = code.name
    if name == "MARK":
        stack.append(_MARK)
    elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
        memo[argument] = stack[-1]
    elif name == "MEMOIZE":
        memo[len(memo)] = stack[-1]
    elif name in ("BINGET", "LONG_BINGET", "GET"):
        stack.append(memo[argument])
    elif name in ("EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "EMPTY_SET"):
        stack.append({"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "EMPTY_SET": list}[name]())
    elif name in ("NEWTRUE", "NEWFALSE", "NONE"):
        stack.append({"NEWTRUE": True, "NEWFALSE": False}.get(name))
    elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
        count = int(name[-1])
        stack[-count:] = [tuple(stack[-count:])]
    elif name in ("TUPLE", "LIST", "FROZENSET", "DICT"):
        items = _items(stack)
        stack.append(_set({}, items) if name == "DICT" else tuple(items))
    elif name in ("SETITEM", "SETITEMS"):
        items = _items(stack) if name == "SETITEMS" else [stack.pop(-2), stack.pop()]
        target = stack[-1]
        _set(target.state if isinstance(target, Made) else target, items)
    elif name in ("APPEND", "APPENDS", "ADDITEMS"):
        items = [stack.pop()] if name == "APPEND" else _items(stack)
        if isinstance(stack[-1], list):
            stack[-1].extend(items)
    elif name == "GLOBAL":
        stack.append(Made(argument))
    elif name == "STACK_GLOBAL":
        word, module = stack.pop(), stack.pop()
        stack.append(Made(f"{module} {word}"))
    elif name in ("REDUCE", "NEWOBJ"):
        arguments, called = stack.pop(), stack.pop()
        stack.append(_called(called, arguments))
    elif name == "BUILD":
        state, target = stack.pop(), stack[-1]
        if isinstance(target, Made) and isinstance(state, dict):
            target.state.update(state)
    elif code.arg is not None and len(code.stack_after) == 1 and not code.stack_before:
        stack.append(argument)  # a number, a text or bytes
    else:
        _any_other(code, stack)


def _any_other(code: pickletools.OpcodeInfo, stack: list[Any]) -> None:
    """An instruction of no interest here: what it takes from the stack, and something in the place of what it gives."""
    if pickletools.markobject in code.stack_before:
        _items(stack)
    takes = [one for one in code.stack_before if one not in (pickletools.markobject, pickletools.stackslice)]
    if len(takes) > len(stack):
        raise IndexError("too few values")
    del stack[len(stack) - len(takes) :]
    stack.extend(Made(code.name) for _ in code.stack_after)


def _items(stack: list[Any]) -> list[Any]:
    """The values above the last mark, which goes too."""
    place = len(stack) - 1
    while stack[place] is not _MARK:
        place -= 1
        if place < 0:
            raise IndexError("no mark")
    items = stack[place + 1 :]
    del stack[place:]
    return items


def _set(target: dict[Any, Any], items: list[Any]) -> dict[Any, Any]:
    for key, value in zip(items[::2], items[1::2], strict=False):
        if type(key) is str or (type(key) is int and abs(key) < _LARGEST_KEY):
            target[key] = value
    return target


def _called(called: Any, arguments: Any) -> Any:
    if not isinstance(called, Made) or not isinstance(arguments, tuple):
        return Made("unknown")
    _, _, function = called.name.rpartition(" ")
    if called.name in _MAPPINGS:
        return {}
    if function in _TENSORS:
        shape = next((one for one in map(_as_shape, arguments) if one is not None), None)
        inner = arguments[2] if function == "_rebuild_from_type_v2" and len(arguments) > 2 else ()
        shape = shape or next((one for one in map(_as_shape, inner if isinstance(inner, tuple) else ()) if one), None)
        return DescribedTensor(shape or ())
    if function.startswith("_rebuild_parameter") and arguments and isinstance(arguments[0], DescribedTensor):
        return arguments[0]
    if called.name == "torch Size" and arguments:
        return arguments[0]
    return Made(called.name, arguments)


def _as_shape(value: Any) -> tuple[int, ...] | None:
    """The first tuple of natural numbers among a tensor's arguments is its shape; the second its strides."""
    if isinstance(value, tuple) and len(value) <= 64 and all(type(one) is int and one >= 0 for one in value):
        return value
    return None


def flat(value: Any) -> Mapping[str, Any]:
    """The names and values of a dictionary, or of an object's state; of anything else none."""
    held = value.state if isinstance(value, Made) else value
    return {key: one for key, one in held.items() if isinstance(key, str)} if isinstance(held, dict) else {}
