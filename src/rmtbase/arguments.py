"""Check of arguments against the declared types, where a user's call enters the library.

Domains, such as positive numbers, are checked by :mod:`rmtbase.parameters`.
"""

import builtins
import inspect
import math
import operator
import os
import sys
from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial, wraps
from itertools import chain, islice, repeat
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, ForwardRef, Literal, SupportsFloat, Union, get_args, get_origin

import lazy_loader

from rmtbase.errors import ParameterError
from rmtbase.shown import quoted

_NO_NUMBERS = frozenset("bcmMOSU")  # kinds of dtype; V is that of narrow floats of other packages


def checked(target: Any) -> Any:
    """Check the arguments of a function, or of a class's constructor, against its annotations before it runs.

    ``int`` and ``float`` include NumPy's and JAX's scalars, and exclude booleans and bytes; ``tuple``, ``Sequence``
    and ``Collection`` include arrays and exclude a text. Arrays are checked where they are converted, and fields of
    JAX arrays never, as JAX fills them with placeholders.
    """
    if not isinstance(target, type):
        return _wrapped(target, inspect.unwrap(target))
    method = "__new__" if issubclass(target, tuple) else "__init__"
    constructor = getattr(target, method)
    if inspect.isfunction(constructor) and not hasattr(constructor, "_checks"):
        setattr(target, method, _wrapped(constructor, inspect.unwrap(constructor), target))
    return target


def check_public(package: dict[str, Any], names: Iterable[str] | None = None) -> None:
    """Apply :func:`checked` to functions and classes in a package's ``globals()``: all public ones, or ``names``."""
    for name in package["__all__"] if names is None else names:
        target = package[name]
        if isinstance(target, type) and not getattr(target, "_is_protocol", False):
            checked(target)
        elif inspect.isfunction(target) and not hasattr(target, "_checks"):
            package[name] = checked(target)
            package[name].__module__ = package["__name__"]  # where pickle finds it


def attach_checked(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Load the names in the stub of a package on first use, as lazy_loader does, with :func:`checked` applied."""
    load, directory, names = lazy_loader.attach_stub(package, file)

    def load_checked(name: str) -> Any:
        module = vars(sys.modules[package])
        module[name] = load(name)
        check_public(module, [name])
        return module[name]

    return load_checked, directory, names


def _wrapped(function: Callable[..., Any], inner: Callable[..., Any], owner: type | None = None) -> Callable[..., Any]:
    signature = inspect.signature(inner).parameters
    parameters = signature.values()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    by_position = [parameter.name for parameter in parameters if parameter.kind in positional]
    by_kind = {parameter.kind: parameter.name for parameter in parameters}
    extra_positional = by_kind.get(inspect.Parameter.VAR_POSITIONAL, "")
    extra_keyword = by_kind.get(inspect.Parameter.VAR_KEYWORD, "")
    types: dict[str, Any] = {}

    @wraps(function)
    def with_checked_arguments(*args: Any, **kwargs: Any) -> Any:
        if not types:
            types.update({name: kind for name, kind in _types(inner, owner).items() if name in signature})
        names = chain(by_position, repeat(extra_positional))
        checked_args = [_require(name, value, types.get(name, Any)) for name, value in zip(names, args, strict=False)]
        for name, value in kwargs.items():
            kwargs[name] = _require(name, value, types.get(name if name in types else extra_keyword, Any))
        return function(*checked_args, **kwargs)

    with_checked_arguments._checks = True  # type: ignore[attr-defined]
    return with_checked_arguments


class _OfPackage(type):
    """Class known by its dotted name; nothing is an instance of it while its package is not imported."""

    def __instancecheck__(cls, value: object) -> bool:
        package, _, path = cls.__name__.partition(".")
        return package in sys.modules and isinstance(value, operator.attrgetter(path)(sys.modules[package]))


def _types(function: Callable[..., Any], owner: type | None) -> dict[str, Any]:
    """Evaluate the annotations of a function, or of the fields of a class; one that cannot be is not checked."""
    types: dict[str, Any] = {}
    sources: list[Any] = [*reversed(owner.__mro__), function] if owner else [function]
    for source in sources:
        names = ChainMap(vars(sys.modules.get(source.__module__, builtins)), sys.modules)
        for name, annotation in inspect.get_annotations(source).items():
            written = annotation.__forward_arg__ if isinstance(annotation, ForwardRef) else annotation
            try:
                declared = eval(written, {}, names) if isinstance(written, str) else written
                types[name] = get_args(declared)[0] if get_origin(declared) is Annotated else declared
            except NameError as error:  # imported for type checkers only
                types.setdefault(name, _OfPackage(written, (), {}) if written.startswith(f"{error.name}.") else Any)
    return types


def _require(name: str, value: Any, declared: Any) -> Any:
    """Return the value; an array of items as a list, and an iterator, whose items come once, as one that checks."""
    if declared is Any:
        return value
    if not _check(declared)[0](value):
        raise ParameterError(*_fault(name, value, declared))
    if declared is bool:
        return bool(value)
    if not isinstance(value, Iterator) and not getattr(value, "ndim", 0):
        return value
    kinds = _alternatives(declared)
    several = [kind for kind in kinds if _is_container(kind, value)]
    if not several or any(_check(kind)[0](value) for kind in kinds if kind not in several):
        return value
    if not isinstance(value, Iterator):
        return value.tolist() if hasattr(value, "tolist") else value
    return (_require(f"{name}[{place}]", item, get_args(several[0])[0]) for place, item in enumerate(value))


def _fault(name: str, value: Any, declared: Any) -> tuple[str, object, str]:
    """Return the name, value and declared type, in words, of the innermost item that is not of its type."""
    for kind in _alternatives(declared):
        if _is_container(kind, value):
            for place, item, item_type in _items(value, kind):
                if not _check(item_type)[0](item):
                    return _fault(f"{name}{place}", item, item_type)
    return name, value, _check(declared)[1]


def _alternatives(declared: Any) -> tuple[Any, ...]:
    return get_args(declared) if get_origin(declared) in (Union, UnionType) else (declared,)


def _holds(declared: Any, value: Any) -> bool:
    """Return True for a container of the declared kind whose items are of their types."""
    items = _items(value, declared)
    return _is_container(declared, value) and all(_check(kind)[0](item) for _, item, kind in items)


@cache
def _check(declared: Any) -> tuple[Callable[[Any], bool], str]:
    """Return the test that a value is of a declared type, and that type in words."""
    origin, args = get_origin(declared), get_args(declared)
    if origin in (Union, UnionType):
        tests, words = zip(*map(_check, args), strict=True)
        return (lambda value: any(test(value) for test in tests)), " or ".join(dict.fromkeys(words))
    if origin is Literal:
        named = " or ".join(filter(None, (", ".join(map(repr, args[:-1])), repr(args[-1]))))
        return (lambda value: any(isinstance(value, type(choice)) and value == choice for choice in args)), named
    if declared in _SCALARS:
        return _SCALARS[declared]
    if origin is type or declared is type:
        return (lambda value: isinstance(value, type)), "a class"
    if origin is Callable or declared is Callable:
        return callable, "a function"
    is_shaped = _module(declared) == "jaxtyping"
    if _module(declared.array_type if is_shaped else origin) == "numpy":
        return _is_array, "an array of numbers"
    if isinstance(origin, type):
        if issubclass(origin, Mapping):
            named = f"a mapping, each key {_check(args[0])[1]} and each value {_check(args[1])[1]}"
        elif _is_fixed(declared):
            named = f"({', '.join(_check(kind)[1] for kind in args)})"
        else:
            several = "a sequence" if issubclass(origin, Sequence) else "a collection"
            named = f"{several}, each item {_check(args[0])[1]}"
        return partial(_holds, declared), named
    name = getattr(declared, "__name__", str(declared))
    opened = ", as rmtbase.open_table opens it" if _module(declared).startswith("xarray") else ""
    named = f"{'an' if name[0] in 'AEIOU' else 'a'} {name}{opened}"
    if getattr(declared, "_is_protocol", False):
        members = [name for kind in declared.__mro__ if kind is not object for name in vars(kind) if name[0] != "_"]
        return (lambda value: all(hasattr(value, name) for name in members)), named
    is_class = isinstance(declared, type) and declared is not object
    if is_shaped or not is_class or _module(declared).startswith("numpy._typing"):
        return _is_anything, named
    base = Mapping if hasattr(declared, "__total__") else declared  # a TypedDict is no class of its values
    return (lambda value: isinstance(value, base)), named


def _module(kind: Any) -> str:
    return str(getattr(kind, "__module__", ""))


def _is_anything(value: object) -> bool:
    return True


def _is_integer(value: Any) -> bool:
    try:
        return not isinstance(value, bool) and operator.index(value) is not None
    except TypeError:
        return False


def _is_number(value: Any) -> bool:
    dtype = getattr(value, "dtype", None)
    if dtype is not None:
        return value.ndim == 0 and getattr(dtype, "kind", "f") not in _NO_NUMBERS
    try:
        number = float(value) if isinstance(value, SupportsFloat) and not isinstance(value, bool) else None
        return number is not None and (isinstance(value, float) or not math.isnan(number))
    except (TypeError, OverflowError):  # a class, an integer beyond float64; a decimal NaN cannot be compared
        return False


def _is_array(value: Any) -> bool:
    """Return True for what NumPy may convert to an array: the conversion says what is wrong with it."""
    return isinstance(value, list | tuple) or hasattr(value, "dtype") or _is_number(value)


_SCALARS: dict[Any, tuple[Callable[[Any], bool], str]] = {
    Any: (_is_anything, "anything"),
    int: (_is_integer, "an integer"),
    float: (_is_number, "a number"),
    bool: (
        lambda value: isinstance(value, bool) or getattr(getattr(value, "dtype", None), "kind", "") == "b",
        "True or False",
    ),
    str: (lambda value: isinstance(value, str), "a text"),
    bytes: (lambda value: isinstance(value, bytes), "bytes"),
    Path: (lambda value: isinstance(value, os.PathLike), "a path"),
    **dict.fromkeys((None, NoneType), (lambda value: value is None, "None")),
}


def _is_container(declared: Any, value: Any) -> bool:
    """Return True for a container of the declared kind and length, whatever it holds."""
    origin, args = get_origin(declared), get_args(declared)
    if not isinstance(origin, type) or not issubclass(origin, Iterable) or _module(origin) == "numpy":
        return False  # arrays are judged and kept as a whole
    if issubclass(origin, Mapping) or origin is frozenset:
        return isinstance(value, origin)
    if isinstance(value, str | bytes | bytearray | memoryview) or not isinstance(value, Iterable):
        return False
    ordered = hasattr(value, "__len__") and hasattr(value, "__getitem__") and not isinstance(value, Mapping)
    if getattr(value, "ndim", 1) == 0 or (issubclass(origin, Sequence) and not ordered):
        return False
    return not _is_fixed(declared) or len(value) == len(args)  # type: ignore[arg-type]


def _is_fixed(declared: Any) -> bool:
    return get_origin(declared) is tuple and Ellipsis not in get_args(declared)


def _items(value: Any, declared: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the place, value and declared type of each item of a container; nothing of an iterator."""
    args = get_args(declared)
    if isinstance(value, Mapping) and issubclass(get_origin(declared), Mapping):
        for key, item in value.items():
            yield from (("", key, args[0]), (f"[{quoted(key)}]", item, args[1]))
    elif isinstance(value, Collection):
        few = islice(value, 1) if getattr(value, "dtype", "O") != "O" else value  # those of an array are of one type
        for index, item in enumerate(few):
            yield f"[{index}]", item, args[index if _is_fixed(declared) else 0]
