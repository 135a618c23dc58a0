"""Outline of the content of any program's pickle, without importing or calling anything in it.

Training states hold more than tensors: arguments, paths, random states. Python's own unpickler is given stand-ins for
all classes, which record name, arguments and state. The outline is only for messages; weights are read by
:mod:`rmtbase.models.files._torch_file`.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from rmtbase.models.files._files import reading
from rmtbase.models.files._torch_file import LEGACY, LONGEST_PICKLE, instructions, pickle_in

_MOST_PLACES = 1_000_000  # entries of the memo, which is allocated before they are filled
_MOST_CLASSES = 10_000
_TENSORS = ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3")
_PARAMETERS = ("_rebuild_parameter", "_rebuild_parameter_with_state")


class Made:
    """Stand-in for an object of a class.

    Attributes:
        name: its class as ``module class``; each class has a subclass of its own.
        arguments: the arguments of its construction.
        state: the state that was set on it.
    """

    name = ""

    def __new__(cls, *arguments: Any, **_: Any) -> Made:
        made = super().__new__(cls)
        made.arguments, made.state = arguments, {}
        return made

    def __init__(self, *_: Any, **__: Any) -> None:
        self.arguments: tuple[Any, ...]
        self.state: dict[Any, Any]

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, dict):
            self.state.update(state)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.state[key] = value

    def append(self, _: Any) -> None:
        """Accept an item and discard it."""


class DescribedTensor(Made):
    """Tensor whose shape is all that is known."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The first tuple of natural numbers among its arguments; the second are its strides."""
        return next(filter(_is_shape, self.arguments), ())


class _Unpickler(pickle.Unpickler):
    """Unpickler that replaces every class by a stand-in."""

    def __init__(self, program: BinaryIO) -> None:
        super().__init__(program)
        self._classes: dict[str, type[Made]] = {}

    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        if (module, name) in (("collections", "OrderedDict"), ("builtins", "dict")):
            return OrderedDict
        if (module, name) == ("collections", "defaultdict"):
            return lambda *_: OrderedDict()
        if (module, name) == ("torch", "Size"):
            return tuple
        if name in _TENSORS:
            return DescribedTensor
        if name in _PARAMETERS:
            return lambda data, *_: data
        if name == "_rebuild_from_type_v2":  # arguments: function, class, arguments of the function, state
            return lambda _, __, arguments, ___: DescribedTensor(*arguments)
        if len(self._classes) == _MOST_CLASSES:
            raise ValueError("too many classes")
        called = f"{module} {name}"
        return self._classes.setdefault(called, type("Made", (Made,), {"name": called}))

    def persistent_load(self, _: Any) -> None:
        """Discard a storage."""


def described(program: BinaryIO) -> Any:
    """Describe the value of the pickle at the stream's current position."""
    begin = program.tell()
    try:
        for name, argument in instructions(program):
            if "PUT" in name and argument > _MOST_PLACES:
                raise ValueError("a memo beyond bounds")
        program.seek(begin)
        return _Unpickler(program).load()
    except Exception as error:  # a damaged pickle can raise any exception
        raise ValueError("no whole pickle") from error


def pickle_of(path: Path) -> BinaryIO:
    """Read the pickle in a file of ``torch.save``, in the new or the old format, to be described and never loaded."""
    with reading(path) as stream:
        first = stream.read(len(LEGACY))
        if first.startswith(b"PK\x03\x04"):
            try:
                with zipfile.ZipFile(stream) as archive:
                    return io.BytesIO(pickle_in(path, archive))
            except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
                raise ValueError("no whole archive") from error
        stream.seek(0)
        program = io.BytesIO(stream.read(LONGEST_PICKLE))
    if first == LEGACY:  # magic number, version and system information precede, each a pickle
        for _ in range(3):
            for _ in instructions(program):
                pass
    return program


def _is_shape(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) <= 64 and all(type(one) is int and one >= 0 for one in value)


def flat(value: Any) -> Mapping[str, Any]:
    """Return the names and values of a dictionary or of an object's state; empty for anything else."""
    held = value.state if isinstance(value, Made) else value
    return {key: one for key, one in held.items() if isinstance(key, str)} if isinstance(held, dict) else {}
