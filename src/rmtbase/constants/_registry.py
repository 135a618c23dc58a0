"""Registry of all constants, by name and identifier, in the released sets."""

from __future__ import annotations

import copyreg
from collections.abc import Mapping
from typing import Any

from rmtbase.constants import _product, _square, _tracy_widom, _weibull
from rmtbase.constants._chain import chain_constants
from rmtbase.constants._constant import IDENTIFIER, Constant, ConstantFunction
from rmtbase.constants._record import NEWEST, read_record
from rmtbase.constants._release import ConstantSet, constant_set
from rmtbase.errors import ParameterError

V1 = constant_set(
    read_record("v1", "8cc966b1527d41ca38c778e111912297731c03a83481a83759b3b9081247ba95"),
    constants={**_tracy_widom.CONSTANTS, **_square.CONSTANTS, **_product.CONSTANTS, **_weibull.CONSTANTS},
    functions=_product.FUNCTIONS,
)
_SETS = {V1.name: V1}
_CURRENT = _SETS[NEWEST]


def sets() -> dict[str, ConstantSet]:
    """Return the released sets by name, the oldest first."""
    return dict(_SETS)


def current_set() -> ConstantSet:
    """Return the newest set, whose constants are the attributes of :mod:`rmtbase.constants`."""
    return _CURRENT


def set_named(name: str) -> ConstantSet:
    if name not in _SETS:
        raise ParameterError("set", name, f"one of {', '.join(_SETS)}")
    return _SETS[name]


def groups() -> dict[str, tuple[Constant | ConstantFunction, ...]]:
    """Return the headings of the newest set, with the constants and functions under them."""
    return _CURRENT.groups()


def constants() -> tuple[Constant, ...]:
    """Return the pure numbers of the newest set."""
    return _CURRENT.constants()


def functions() -> tuple[ConstantFunction, ...]:
    """Return the functions of the shape of the newest set."""
    return _CURRENT.functions()


def find(name: str) -> Constant | ConstantFunction:
    """Find a constant or function by its name in the newest set, or by its identifier in any set.

    Raises:
        ParameterError: there is none; the message lists the nearest ones.
    """
    if isinstance(name, str) and name.startswith(IDENTIFIER):
        set_name, _, _ = name.removeprefix(IDENTIFIER).partition("/")
        return set_named(set_name).find(name)
    return _CURRENT.find(name)


def _restored(fields: Mapping[str, Any]) -> Constant:
    constant = object.__new__(Constant)
    vars(constant).update(fields)
    arguments = constant.arguments or {}
    if "dims" in arguments:
        entry = chain_constants(**arguments)[constant.name]
    else:
        entry = find(constant.id or constant.name)
        entry = entry(**arguments) if isinstance(entry, ConstantFunction) else entry
    vars(constant)["compute"] = entry.compute
    return constant


# Registered here, because the classes would have to import the registry that imports them.
copyreg.pickle(
    Constant,  # type: ignore[arg-type]
    lambda constant: (_restored, ({name: value for name, value in vars(constant).items() if name != "compute"},)),
)
copyreg.pickle(ConstantFunction, lambda function: (find, (function.id or function.name,)))  # type: ignore[arg-type]
