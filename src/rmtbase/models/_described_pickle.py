"""Content of a pickle of any program in outline, with nothing imported and nothing of it called.

Training states hold more than tensors: arguments, paths, random states. Python's own unpickler is given stand-ins for
all classes, which note name, arguments and state. What is described is for messages only; weights are read by
:mod:`rmtbase.models._torch_file`.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from rmtbase.models._files import reading
from rmtbase.models._torch_file import LEGACY, LONGEST_PICKLE, instructions, pickle_in

_MOST_PLACES = 1_000_000  # in the memo, which takes its memory before they are filled
_MOST_CLASSES = 10_000
_TENSORS = ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3")
_PARAMETERS = ("_rebuild_parameter", "_rebuild_parameter_with_state")


class Made:
    """Stand-in for an object of a class.

    Attributes:
        name: its class as ``module class``; of a subclass for each.
        arguments: those of its making.
        state: what was set on it.
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
        """Take a member, which is not kept."""


class DescribedTensor(Made):
    """Tensor of which only the shape is known."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The first tuple of natural numbers among its arguments; the second are its strides."""
        return next(filter(_is_shape, self.arguments), ())


class _Unpickler(pickle.Unpickler):
    """Unpickler for which every class is a stand-in."""

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
        if name == "_rebuild_from_type_v2":  # the function that it calls, the class, its arguments
            return lambda _, __, arguments, ___: DescribedTensor(*arguments)
        if len(self._classes) == _MOST_CLASSES:
            raise ValueError("too many classes")
        called = f"{module} {name}"
        return self._classes.setdefault(called, type("Made", (Made,), {"name": called}))

    def persistent_load(self, _: Any) -> None:
        """Leave out a storage."""


def described(program: BinaryIO) -> Any:
    """Describe the value that the pickle at the stream's place would make.

    Raises:
        ValueError: it is no pickle, or takes more than 1 000 000 instructions.
    """
    begin = program.tell()
    try:
        for name, argument in instructions(program):
            if "PUT" in name and argument > _MOST_PLACES:
                raise ValueError("a memo beyond bounds")
        program.seek(begin)
        return _Unpickler(program).load()
    except Exception as error:  # a pickle can end in any of them
        raise ValueError("no whole pickle") from error


def pickle_of(path: Path) -> BinaryIO:
    """Read the pickle of a file of ``torch.save``, of the old format too: to be described, never made.

    Raises:
        ValueError: it is no such file.
        CheckpointError: it is an archive of another program, or cannot be read.
    """
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
    if first == LEGACY:  # then a version and a record of the system, each a pickle
        for _ in range(3):
            for _ in instructions(program):
                pass
    return program


def _is_shape(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) <= 64 and all(type(one) is int and one >= 0 for one in value)


def flat(value: Any) -> Mapping[str, Any]:
    """Names and values of a dictionary, or of the state of an object; none of anything else."""
    held = value.state if isinstance(value, Made) else value
    return {key: one for key, one in held.items() if isinstance(key, str)} if isinstance(held, dict) else {}
