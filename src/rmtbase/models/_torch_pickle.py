"""What the pickle in a file of ``torch.save`` would make, found without making it.

A pickle is a program for a machine with a stack. This one knows the few instructions that a dictionary of tensors needs
and calls nothing: where the program would rebuild a tensor, its type, shape and place are noted, and checked against
the storage that it is a view of. What this machine accepts, torch's loader can take no more memory or time for than the
limits below allow.

Reference: the Python library's ``pickletools`` for the instructions, ``torch._utils`` for the arguments.
"""

from __future__ import annotations

import io
import pickletools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

from rmtbase.errors import CorruptFileError
from rmtbase.shown import quoted

_MOST_STEPS = 1_000_000  # instructions; one tensor takes fifty
_LONGEST_TUPLE = 64
_VALID = "named tensors, and numbers or texts beside them, as torch.save writes a state dictionary"
_NUMBERS = {
    "Double": ("float64", 8),
    "Float": ("float32", 4),
    "Half": ("float16", 2),
    "BFloat16": ("bfloat16", 2),
    "Long": ("int64", 8),
    "Int": ("int32", 4),
    "Short": ("int16", 2),
    "Char": ("int8", 1),
    "Byte": ("uint8", 1),
    "Bool": ("bool", 1),
    "ComplexDouble": ("complex128", 16),
    "ComplexFloat": ("complex64", 8),
}
_STORAGES = {f"torch {kind}Storage": numbers for kind, numbers in _NUMBERS.items()}
_BYTES = "torch.storage UntypedStorage"
_DTYPES = {f"torch {name}": size for name, size in _NUMBERS.values()} | {
    "torch uint16": 2,
    "torch uint32": 4,
    "torch uint64": 8,
    "torch float8_e4m3fn": 1,
    "torch float8_e4m3fnuz": 1,
    "torch float8_e5m2": 1,
    "torch float8_e5m2fnuz": 1,
    "torch float8_e8m0fnu": 1,
}
_DICTIONARY = "collections OrderedDict"
_REBUILD = "torch._utils _rebuild_tensor_v2"
_REBUILD_OF_BYTES = "torch._utils _rebuild_tensor_v3"
_PARAMETER = "torch._utils _rebuild_parameter"
_GLOBALS = frozenset({_DICTIONARY, _REBUILD, _REBUILD_OF_BYTES, _PARAMETER, _BYTES, *_STORAGES, *_DTYPES})
_KINDS = {
    "torch._utils _rebuild_sparse_tensor": "a sparse tensor",
    "torch._utils _rebuild_nested_tensor": "a nested tensor",
    "torch._utils _rebuild_meta_tensor_no_storage": "a meta tensor, which has no values",
    "torch._utils _rebuild_qtensor": "a quantised tensor, which is not the trained weights",
    "torch._utils _rebuild_wrapper_subclass": "a tensor of a class of its own",
    "torch._utils _rebuild_parameter_with_state": "a tensor of a class of its own",
    "torch._tensor _rebuild_from_type_v2": "a tensor of a class of its own",
    "torch._utils _rebuild_device_tensor_from_numpy": "a tensor of another device",
    "torch._utils _rebuild_device_tensor_from_cpu_tensor": "a tensor of another device",
}


@dataclass(frozen=True)
class PickledTensor:
    """A dense tensor that the pickle would make: a view of a storage, in elements."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class _Global:
    name: str


@dataclass(frozen=True)
class _Storage:
    kind: str
    size: int  # bytes


_MARK = object()
_CODES = {code.code: code for code in pickletools.opcodes}


def pickled_tensors(path: Path, program: bytes, storage_sizes: Mapping[str, int]) -> Mapping[str, PickledTensor]:
    """The tensors of the dictionary that the pickle would make. Plain numbers and texts in it are passed over.

    Args:
        path: the file, for messages.
        program: the pickle.
        storage_sizes: bytes of each storage of the file, by its key.

    Raises:
        CorruptFileError: it would make or call anything else; a key is no text; a tensor is not dense, or has more
            elements than its storage holds; or it takes more than 1 000 000 steps.
    """
    made = _Machine(path, storage_sizes).run(program)
    if type(made) is not dict:
        raise CorruptFileError(path, f"{_in_words(made)} at its top", _VALID)
    tensors = {}
    for name, value in made.items():
        if isinstance(value, PickledTensor):
            tensors[name] = value
        elif value is not None and not isinstance(value, (bool, int, float, str)):
            raise CorruptFileError(path, f"{_in_words(value)} as entry {quoted(name)}", _VALID)
    return MappingProxyType(tensors)


def _in_words(value: Any) -> str:
    names: dict[type, str] = {
        PickledTensor: "a tensor", _Storage: "a bare storage", dict: "a dictionary", list: "a list", tuple: "a tuple",
        _Global: "a class or function",
    }  # fmt: skip
    return names.get(type(value), f"a value of type {type(value).__name__}")


def _argument(code: pickletools.OpcodeInfo, stream: io.BytesIO) -> Any:
    """What follows an instruction in the program."""
    if code.name == "GLOBAL":  # two lines as they are; pickletools would resolve escapes in them, which torch does not
        lines = [stream.readline() for _ in range(2)]
        if not all(line.endswith(b"\n") for line in lines):
            raise ValueError("no line")
        return b" ".join(line[:-1] for line in lines).decode()
    return None if code.arg is None else code.arg.reader(stream)


class _Machine:
    """The stack, the memo, and one method for each instruction that does more than push a value."""

    def __init__(self, path: Path, storage_sizes: Mapping[str, int]) -> None:
        self._path, self._sizes = path, storage_sizes
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._storages: dict[str, _Storage] = {}

    def run(self, program: bytes) -> Any:
        step, stream = "its start", io.BytesIO(program)
        try:
            for _ in range(_MOST_STEPS):
                code = _CODES[stream.read(1).decode("latin-1")]
                step = code.name
                if step not in _PUSHED and step not in _DONE:
                    self._refuse(f"the instruction {step} in its pickle")
                argument = _argument(code, stream)
                if step == "STOP":
                    break
                if step in _PUSHED:
                    self._stack.append(_PUSHED[step]() if code.arg is None else argument)
                else:
                    _DONE[step](self, argument)
            else:
                self._refuse(f"a pickle of more than {_MOST_STEPS:,} steps")
            (made,) = self._stack
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
            raise CorruptFileError(self._path, f"a pickle that breaks off at {step}{self._where()}", _VALID) from error
        return made

    def _refuse(self, found: str) -> NoReturn:
        raise CorruptFileError(self._path, found + self._where(), _VALID)

    def _where(self) -> str:
        """The last text before the second mark: mostly the name of the entry that is being made."""
        marks, last = 0, None
        for value in self._stack:
            marks += value is _MARK
            if marks == 2:
                break
            last = value if type(value) is str else last
        return "" if last is None else f" (at {quoted(last)})"

    def _items(self) -> list[Any]:
        """What lies above the last mark, which goes too."""
        place = len(self._stack) - 1
        while self._stack[place] is not _MARK:
            place -= 1
            if place < 0:
                raise IndexError("no mark")
        items = self._stack[place + 1 :]
        del self._stack[place:]
        return items

    def _tuple_of(self, count: int) -> None:
        items = tuple(self._stack[-count:])
        if len(items) < count or _MARK in items:
            raise IndexError("too few values")
        self._stack[-count:] = [items]

    def _tuple(self, _: Any) -> None:
        items = self._items()
        if len(items) > _LONGEST_TUPLE:
            self._refuse(f"a tuple of {len(items)} values")
        self._stack.append(tuple(items))

    def _set(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) is not dict or len(items) % 2:
            raise TypeError("no dictionary")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if type(key) is not str:  # numbers of equal hashes would take for ever, too
                self._refuse(f"{_in_words(key)} as a key, which is no text")
            target[key] = value

    def _append(self, items: list[Any]) -> None:
        if type(self._stack[-1]) is not list:
            raise TypeError("no list")
        self._stack[-1].extend(items)

    def _build(self, _: Any) -> None:
        state, target = self._stack.pop(), self._stack[-1]
        if type(target) is not dict or type(state) is not dict or not state.keys() <= {"_metadata"}:
            self._refuse("a state set on an object")

    def _global(self, name: str) -> None:
        if name not in _GLOBALS:
            self._refuse(_KINDS.get(name) or f"the object {quoted(name.replace(' ', '.'))} in its pickle")
        self._stack.append(_Global(name))

    def _reduce(self, _: Any) -> None:
        arguments, called = self._stack.pop(), self._stack.pop()
        if type(arguments) is not tuple or type(called) is not _Global:
            raise TypeError("no call")
        if called.name == _DICTIONARY and arguments == ():
            self._stack.append({})
        elif called.name == _REBUILD and len(arguments) in (6, 7):
            storage, *view = arguments[:4]
            self._plain(arguments[5], arguments[6:])
            name, width = _STORAGES[storage.kind]
            self._stack.append(self._tensor(name, width, storage, *view))
        elif called.name == _REBUILD_OF_BYTES and len(arguments) in (7, 8):
            storage, *view = arguments[:4]
            self._plain(arguments[5], arguments[7:])
            dtype = arguments[6].name
            self._stack.append(self._tensor(dtype.removeprefix("torch "), _DTYPES[dtype], storage, *view))
        elif called.name == _PARAMETER and len(arguments) == 3 and type(arguments[0]) is PickledTensor:
            self._stack.append(arguments[0])
        else:
            self._refuse(f"a call of {quoted(called.name.replace(' ', '.'))}")

    def _plain(self, hooks: Any, metadata: tuple[Any, ...]) -> None:
        if hooks != {}:
            self._refuse("a tensor with hooks")
        if metadata and metadata[0]:
            self._refuse("a conjugate or negated view")

    def _tensor(self, dtype: str, width: int, storage: Any, offset: Any, shape: Any, strides: Any) -> PickledTensor:
        whole = (offset, *shape, *strides)
        if type(storage) is not _Storage or len(shape) != len(strides) or not all(type(n) is int for n in whole):
            raise TypeError("no tensor")
        if min(whole) < 0:
            self._refuse("a tensor with negative sizes")
        count, held = prod(shape), storage.size // width
        last = offset + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
        if count and (count > held or last >= held):
            self._refuse(f"a tensor of shape {quoted(shape)} over a storage of {held:,} elements")
        return PickledTensor(dtype, tuple(shape))

    def _persistent(self, _: Any) -> None:
        word, kind, key, location, count = self._stack.pop()
        if word != "storage" or type(kind) is not _Global or type(count) is not int or type(location) is not str:
            raise TypeError("no storage")
        width = 1 if kind.name == _BYTES else _STORAGES[kind.name][1]
        storage = _Storage(kind.name, count * width)
        if self._sizes.get(key) != storage.size:
            self._refuse(f"a storage {quoted(key)} of {storage.size:,} bytes, which the archive does not hold")
        if self._storages.setdefault(key, storage) != storage:
            self._refuse(f"a storage {quoted(key)} of two types")
        self._stack.append(storage)

    def _put(self, place: int) -> None:
        self._memo[place] = self._stack[-1]

    def _get(self, place: int) -> None:
        self._stack.append(self._memo[place])


_PUSHED: Mapping[str, Callable[[], Any]] = MappingProxyType(
    {
        "MARK": lambda: _MARK,
        "NONE": lambda: None,
        "NEWTRUE": lambda: True,
        "NEWFALSE": lambda: False,
        "EMPTY_TUPLE": tuple,
        "EMPTY_LIST": list,
        "EMPTY_DICT": dict,
        # The following carry their value with them.
        "BININT": int,
        "BININT1": int,
        "BININT2": int,
        "LONG1": int,
        "BINFLOAT": float,
        "BINUNICODE": str,
    }
)
_DONE: Mapping[str, Callable[[_Machine, Any], None]] = MappingProxyType(
    {
        "PROTO": lambda machine, version: None,
        "STOP": lambda machine, _: None,
        "TUPLE": _Machine._tuple,
        "TUPLE1": lambda machine, _: machine._tuple_of(1),
        "TUPLE2": lambda machine, _: machine._tuple_of(2),
        "TUPLE3": lambda machine, _: machine._tuple_of(3),
        "SETITEM": lambda machine, _: machine._set([machine._stack.pop(-2), machine._stack.pop()]),
        "SETITEMS": lambda machine, _: machine._set(machine._items()),
        "APPEND": lambda machine, _: machine._append([machine._stack.pop()]),
        "APPENDS": lambda machine, _: machine._append(machine._items()),
        "BUILD": _Machine._build,
        "GLOBAL": _Machine._global,
        "REDUCE": _Machine._reduce,
        "BINPERSID": _Machine._persistent,
        "BINPUT": _Machine._put,
        "LONG_BINPUT": _Machine._put,
        "BINGET": _Machine._get,
        "LONG_BINGET": _Machine._get,
    }
)
