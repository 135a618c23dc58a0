"""Every public name: what it is, its parameters, the methods of classes, the keys of registries."""

import inspect
import pkgutil
import re
from contextlib import suppress
from importlib import import_module
from typing import Any

import stated
from entries import Entries, public

_HOLDERS = ("laws.parents",)
_REGISTRIES = (
    "statistics.SPECTRAL_STATISTICS",
    "statistics.ELEMENT_STATISTICS",
    "ensembles.ENSEMBLES",
    "ensembles.INITIALIZERS",
    "laws.NULL_STATISTICS",
    "tables.KINDS",
    "models.COMPONENTS",
)


def collect(entries: Entries) -> None:
    """Collect the names of all packages."""
    import rmtbase

    rooms = [one.name for one in pkgutil.iter_modules(rmtbase.__path__) if not one.name.startswith("_")]
    for room in ("", *rooms, *_HOLDERS):
        module = public(room) if room in _HOLDERS else import_module(f"rmtbase.{room}".rstrip("."))
        for name in getattr(module, "__all__", ()):
            _describe(entries, f"{room}.{name}" if room else name, getattr(module, name))
    for name in entries.before:  # what is no longer public, and importable
        place = stated.moved(name)
        if "." in name and " " not in name and place not in entries.values and name not in entries.values:
            with suppress(AttributeError):
                _describe(entries, place, public(name))
    for name in _REGISTRIES:
        entries.take(f"keys of {name}", lambda name=name: list(map(str, public(name))))
    entries.take("keys of models", lambda: [one.name for one in public("models.known_models")()])
    entries.take("keys of constants", lambda: [one.name for one in public("constants.constants")()])
    entries.take("keys of functions", lambda: [one.name for one in public("constants.functions")()])


def _describe(entries: Entries, name: str, value: Any) -> None:
    if inspect.isclass(value):
        entries.add(name, f"class{_parameters(value)}")
        for attribute in dir(value):
            if not attribute.startswith("_"):
                member = inspect.getattr_static(value, attribute)
                entries.add(f"{name}.{attribute}", _parameters(member) if inspect.isroutine(member) else "attribute")
    elif callable(value):
        entries.add(name, f"function{_parameters(value)}")
    else:
        entries.add(name, type(value).__name__)


def _parameters(value: Any) -> str:
    """Names, kinds and defaults; annotations say the same in many ways, and progress is told in one."""
    if isinstance(value, classmethod | staticmethod):
        value = value.__func__
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return ""
    kept = [one.replace(annotation=one.empty) for one in parameters if one.name not in stated.REPORTERS]
    return re.sub(r" at 0x[0-9a-f]+", "", f"({', '.join(str(one) for one in kept)})")
